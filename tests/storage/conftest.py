"""Fixtures of the storage tests. A test that asks for `backend` runs over every back end."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pushlane_storage.interface import Store
from tests.storage.backends import BACKENDS, Backend, Factory
from tests.storage.samples import Owner, claimed, unique

pytest.register_assert_rewrite(
    "tests.storage.conformance",
    "tests.storage.conformance_queues",
    "tests.storage.conformance_shards",
    "tests.storage.conformance_settlements",
    "tests.storage.conformance_usage",
)


@pytest.fixture(params=BACKENDS, ids=lambda factory: factory.__name__)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    factory: Factory = request.param
    async with factory() as backend:
        yield backend


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def reopen(backend: Backend) -> Callable[[], Awaitable[Store]]:
    return backend.reopen


@pytest.fixture
def tenant() -> str:
    return unique("tenant")


@pytest.fixture
async def owner(store: Store) -> Owner:
    """The owner of a fresh shard."""
    return await claimed(store)
