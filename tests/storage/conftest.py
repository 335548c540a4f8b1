"""Fixtures of the storage tests. A test that asks for `backend` runs over every back end."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pushlane_storage.interface import Backend
from tests.storage.backends import BACKENDS, Factory, Place
from tests.storage.samples import Owner, claimed, unique

pytest.register_assert_rewrite(
    "tests.storage.conformance",
    "tests.storage.conformance_catalog",
    "tests.storage.conformance_ownership",
    "tests.storage.conformance_shards",
    "tests.storage.conformance_settlements",
    "tests.storage.conformance_usage",
)


@pytest.fixture(params=BACKENDS, ids=lambda factory: factory.__name__)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    factory: Factory = request.param
    async with factory() as backend:
        yield backend


@pytest.fixture
def store(backend: Place) -> Backend:
    return backend.store


@pytest.fixture
def reopen(backend: Place) -> Callable[[], Awaitable[Backend]]:
    return backend.reopen


@pytest.fixture
def tenant() -> str:
    return unique("tenant")


@pytest.fixture
async def owner(store: Backend) -> Owner:
    """The owner of a fresh shard."""
    return await claimed(store)
