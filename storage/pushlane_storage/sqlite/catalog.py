"""The catalog of the embedded store."""

from __future__ import annotations

from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.sqlite import queue_rows
from pushlane_storage.sqlite.calls import Calls


class SqliteCatalog:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        return await self._calls.write(lambda tables: tables.create_queue(tenant, name, config))

    async def read(self, tenant: str, name: str) -> QueueRow | None:
        return await self._calls.read(lambda reading: reading.fetch(queue_rows.read, tenant, name))

    async def list(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return await self._calls.read(
            lambda reading: reading.fetch(queue_rows.list_after, tenant, after, limit)
        )

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        return await self._calls.write(lambda tables: tables.update_queue(row, config))

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        return await self._calls.write(lambda tables: tables.mark_deleting(row))

    async def remove(self, row: QueueRow) -> None:
        await self._calls.write(lambda tables: tables.remove_queue(row))
