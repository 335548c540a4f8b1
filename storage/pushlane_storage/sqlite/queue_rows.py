"""The catalog of the embedded store: queue rows, changed by compare-and-set.

Everything is checked before anything is written.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from pushlane_storage.interface import QueueExists, QueueMissing, StoreDamaged, VersionConflict
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.sqlite.calls import Calls

_COLUMNS = "tenant, name, id, version, deleting, config"


def create(
    connection: sqlite3.Connection, tenant: str, name: str, id: str, config: QueueConfig
) -> QueueRow:
    if read(connection, tenant, name) is not None:
        raise QueueExists(name)
    row = QueueRow(tenant, name, id, config, version=1)
    connection.execute(f"INSERT INTO queue ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", _pack(row))
    return row


def put(connection: sqlite3.Connection, row: QueueRow) -> None:
    """A row as it stood in another store."""
    connection.execute(f"REPLACE INTO queue ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", _pack(row))


def read(connection: sqlite3.Connection, tenant: str, name: str) -> QueueRow | None:
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM queue WHERE tenant = ? AND name = ?", (tenant, name)
    ).fetchone()
    return None if found is None else _unpack(found)


def list_after(
    connection: sqlite3.Connection, tenant: str, after: str, limit: int
) -> list[QueueRow]:
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM queue WHERE tenant = ? AND name > ? ORDER BY name LIMIT ?",
        (tenant, after, limit),
    )
    return [_unpack(columns) for columns in found.fetchall()]


def update(connection: sqlite3.Connection, row: QueueRow, config: QueueConfig) -> QueueRow:
    stored = _stored(connection, row)
    if stored.version != row.version:
        raise VersionConflict(row.name)
    return _replace(connection, msgspec.structs.replace(stored, config=config))


def mark_deleting(connection: sqlite3.Connection, row: QueueRow) -> QueueRow:
    stored = _stored(connection, row)
    if stored.deleting:
        return stored
    if stored.version != row.version:
        raise VersionConflict(row.name)
    return _replace(connection, msgspec.structs.replace(stored, deleting=True))


def remove(connection: sqlite3.Connection, row: QueueRow) -> None:
    """Remove the row, if it still is that of this queue."""
    stored = read(connection, row.tenant, row.name)
    if stored is not None and stored.id == row.id:
        assert stored.deleting, f"{row.name} is removed before it was marked"
        connection.execute(
            "DELETE FROM queue WHERE tenant = ? AND name = ?", (row.tenant, row.name)
        )


def _stored(connection: sqlite3.Connection, row: QueueRow) -> QueueRow:
    stored = read(connection, row.tenant, row.name)
    if stored is None:
        raise QueueMissing(row.name)
    if stored.id != row.id:
        raise VersionConflict(row.name)
    return stored


def _replace(connection: sqlite3.Connection, row: QueueRow) -> QueueRow:
    row = msgspec.structs.replace(row, version=row.version + 1)
    put(connection, row)
    return row


def _pack(row: QueueRow) -> tuple[object, ...]:
    config = msgspec.json.encode(row.config).decode()
    return row.tenant, row.name, row.id, row.version, int(row.deleting), config


def _unpack(columns: tuple[Any, ...]) -> QueueRow:
    tenant, name, id, version, deleting, config = columns
    try:
        decoded = msgspec.json.decode(config, type=QueueConfig)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the configuration of queue {name} is damaged: {error}") from error
    return QueueRow(tenant, name, id, decoded, version, deleting == 1)


class SqliteCatalog:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        return await self._calls.write(lambda tables: tables.create_queue(tenant, name, config))

    async def read(self, tenant: str, name: str) -> QueueRow | None:
        return await self._calls.read(lambda reading: reading.fetch(read, tenant, name))

    async def list(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return await self._calls.read(
            lambda reading: reading.fetch(list_after, tenant, after, limit)
        )

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        return await self._calls.write(lambda tables: tables.update_queue(row, config))

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        return await self._calls.write(lambda tables: tables.mark_deleting(row))

    async def remove(self, row: QueueRow) -> None:
        await self._calls.write(lambda tables: tables.remove_queue(row))
