"""The back ends that the conformance suite and the state machine run over: a line each.

A back end is an async context manager that yields a `Backend`. It may find data of earlier runs:
tests use shards and tenants that are their own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from pushlane_leases.interface import LeaseCache
from pushlane_leases.memory import InstantLeases, MemoryLeases
from pushlane_leases.redis.cache import RedisLeases
from tests.services import service


class Backend:
    """An open cache, and the way to close it and open another on the same data."""

    def __init__(self, leases: LeaseCache, again: Callable[[], Awaitable[LeaseCache]]) -> None:
        self.leases = leases
        self._again = again

    async def reopen(self) -> LeaseCache:
        await self.leases.close()
        self.leases = await self._again()
        return self.leases


Factory = Callable[[], AbstractAsyncContextManager[Backend]]


@asynccontextmanager
async def memory(kind: type[MemoryLeases] = MemoryLeases) -> AsyncIterator[Backend]:
    leases = kind()

    async def again() -> LeaseCache:
        return kind(leases.table)

    backend = Backend(leases, again)
    yield backend
    await backend.leases.close()


def instant() -> AbstractAsyncContextManager[Backend]:
    return memory(InstantLeases)


@asynccontextmanager
async def redis(kind: str = "redis", options: str = "") -> AsyncIterator[Backend]:
    url = (await trio.to_thread.run_sync(service, kind)).redis_url + options

    async def again() -> LeaseCache:
        return RedisLeases(url)

    backend = Backend(RedisLeases(url), again)
    yield backend
    await backend.leases.close()


def redis_cluster() -> AbstractAsyncContextManager[Backend]:
    return redis("redis-cluster", "?cluster=true")


BACKENDS: list[Factory] = [
    memory,
    instant,
    redis,
    redis_cluster,
]
