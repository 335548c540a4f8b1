"""Fixtures of the lease tests. A test that asks for `backend` runs over every back end."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from pushlane_leases.interface import LeaseCache
from tests.leases.backends import BACKENDS, Backend, Factory
from tests.leases.samples import unique

pytest.register_assert_rewrite("tests.leases.conformance")


@pytest.fixture(params=BACKENDS, ids=lambda factory: factory.__name__)
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    factory: Factory = request.param
    async with factory() as backend:
        yield backend


@pytest.fixture
def leases(backend: Backend) -> LeaseCache:
    return backend.leases


@pytest.fixture
def reopen(backend: Backend) -> Callable[[], Awaitable[LeaseCache]]:
    return backend.reopen


@pytest.fixture
def shard() -> str:
    return unique("shard")
