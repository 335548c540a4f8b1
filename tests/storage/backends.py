"""The back ends that the conformance suite and the state machine run over: a line each.

A back end is an async context manager that yields a `Place`. It may find data of earlier runs:
tests use queues, tenants and slots' epochs that are their own.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from tempfile import TemporaryDirectory

from pushlane_storage.interface import Backend
from pushlane_storage.memory import MemoryStore
from pushlane_storage.sqlite.store import SqliteStore
from tests.held import let_go
from tests.storage.cassandra.tools import NODE, RING, open_store


class Place:
    """An open store, and the way to close it and open it again on the same data."""

    def __init__(self, store: Backend, again: Callable[[], Awaitable[Backend]]) -> None:
        self.store = store
        self._again = again

    async def reopen(self) -> Backend:
        await let_go(self.store)
        self.store = await self._again()
        return self.store


Factory = Callable[[], AbstractAsyncContextManager[Place]]


@asynccontextmanager
async def memory() -> AsyncIterator[Place]:
    store = MemoryStore()

    async def again() -> Backend:
        return MemoryStore(store.tables)

    backend = Place(store, again)
    yield backend
    await let_go(backend.store)


@asynccontextmanager
async def sqlite() -> AsyncIterator[Place]:
    with TemporaryDirectory(dir=fast_folder()) as folder:

        async def again() -> Backend:
            return await SqliteStore.open(folder)

        backend = Place(await again(), again)
        yield backend
        await let_go(backend.store)


def cassandra() -> AbstractAsyncContextManager[Place]:
    return _cassandra(NODE)


def cassandra_ring() -> AbstractAsyncContextManager[Place]:
    return _cassandra(RING)


@asynccontextmanager
async def _cassandra(kind: str) -> AsyncIterator[Place]:
    async def again() -> Backend:
        return await open_store(kind)

    backend = Place(await again(), again)
    yield backend
    await let_go(backend.store)


def fast_folder() -> str | None:
    """Where an fsync costs nothing: these tests restart processes at most, not machines."""
    memory = "/dev/shm"
    return memory if os.access(memory, os.W_OK) else None


BACKENDS: list[Factory] = [
    memory,
    sqlite,
    cassandra,
    cassandra_ring,
]
