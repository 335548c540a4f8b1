"""The back ends that the conformance suite and the state machine run over: a line each.

A back end is an async context manager that yields a `Backend`. It may find data of earlier runs:
tests use queues, tenants and slots' epochs that are their own.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from tempfile import TemporaryDirectory

from pushlane_storage.interface import Store
from pushlane_storage.memory import MemoryStore
from pushlane_storage.sqlite.store import SqliteStore
from tests.storage.cassandra.tools import NODE, RING, open_store


class Backend:
    """An open store, and the way to close it and open it again on the same data."""

    def __init__(self, store: Store, again: Callable[[], Awaitable[Store]]) -> None:
        self.store = store
        self._again = again

    async def reopen(self) -> Store:
        await self.store.close()
        self.store = await self._again()
        return self.store


Factory = Callable[[], AbstractAsyncContextManager[Backend]]


@asynccontextmanager
async def memory() -> AsyncIterator[Backend]:
    store = MemoryStore()

    async def again() -> Store:
        return MemoryStore(store.tables)

    backend = Backend(store, again)
    yield backend
    await backend.store.close()


@asynccontextmanager
async def sqlite() -> AsyncIterator[Backend]:
    with TemporaryDirectory(dir=fast_folder()) as folder:

        async def again() -> Store:
            return await SqliteStore.open(folder)

        backend = Backend(await again(), again)
        yield backend
        await backend.store.close()


def cassandra() -> AbstractAsyncContextManager[Backend]:
    return _cassandra(NODE)


def cassandra_ring() -> AbstractAsyncContextManager[Backend]:
    return _cassandra(RING)


@asynccontextmanager
async def _cassandra(kind: str) -> AsyncIterator[Backend]:
    async def again() -> Store:
        return await open_store(kind)

    backend = Backend(await again(), again)
    yield backend
    await backend.store.close()


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
