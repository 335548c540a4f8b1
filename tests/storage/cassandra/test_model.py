"""The store on the models of Cassandra does what every store does: no real node is in the way."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.interface import Backend
from tests.held import held, let_go
from tests.simulation.replicated.calm_ring import CalmRing
from tests.simulation.replicated.replicas import Replicas
from tests.storage.backends import Place
from tests.storage.cassandra.model_ring import ModelRing, Tables
from tests.storage.conformance import StoreConformance
from tests.storage.test_machine import StoreMachine


@asynccontextmanager
async def model() -> AsyncIterator[Place]:
    tables = Tables()

    async def again() -> Backend:
        return await held(CassandraStore.over(ModelRing(tables), Limits(page_rows=2, batch_rows=2)))

    backend = Place(await again(), again)
    yield backend
    await let_go(backend.store)


@asynccontextmanager
async def replicated() -> AsyncIterator[Place]:
    """The simulator's three replicas; every write is on two of them only."""
    replicas, rng = Replicas(), Random(7)

    async def again() -> Backend:
        return await held(
            CassandraStore.over(CalmRing(replicas, rng), Limits(page_rows=2, batch_rows=2))
        )

    backend = Place(await again(), again)
    yield backend
    await let_go(backend.store)


@pytest.fixture(params=[model, replicated])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with request.param() as backend:
        yield backend


class TestConformance(StoreConformance):
    pass


def test_a_store_does_what_its_model_does() -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(model)

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=100, stateful_step_count=40, deadline=None)
    )
