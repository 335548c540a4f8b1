"""The back ends that the conformance suite and the state machine run over: a line each.

A back end is an async context manager that yields a `Backend`. It may find data of earlier runs:
tests use queues, tenants and slots' epochs that are their own.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pushlane_storage.interface import Store
from pushlane_storage.memory import MemoryStore


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


BACKENDS: list[Factory] = [
    memory,
]
