"""Fixtures of the Cassandra store's tests: clusters of the model, with several processes on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pushlane_storage.cassandra.home import Home
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Ring
from pushlane_storage.cassandra.store import CassandraStore
from tests.held import held, let_go
from tests.storage.cassandra.model_ring import ModelRing, Tables

Join = Callable[..., Awaitable[CassandraStore]]


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
async def join(tables: Tables) -> AsyncIterator[Join]:
    """One more process on the cluster."""
    opened: list[CassandraStore] = []

    async def join(
        ring: Ring | None = None, home: Home | None = None, **bounds: int
    ) -> CassandraStore:
        store = await held(
            CassandraStore.over(ring or ModelRing(tables), Limits(**bounds), home=home or Home())
        )
        opened.append(store)
        return store

    yield join
    for store in opened:
        await let_go(store)
