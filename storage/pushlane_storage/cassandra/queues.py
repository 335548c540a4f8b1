"""Queue rows: lightweight transactions only.

Each version of a row is made by one transaction, with a nonce in it: so one that timed out can be
told from somebody else's.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.ring import Bound, Change, Range, Ring, Row, read_row
from pushlane_storage.cassandra.tables import QUEUES
from pushlane_storage.interface import (
    QueueExists,
    QueueMissing,
    StoreDamaged,
    VersionConflict,
)
from pushlane_storage.queue import QueueConfig, QueueRow

ID_BYTES = 16
"""Random bytes in a queue's id: enough that no two queues ever made share one."""


class Queues:
    def __init__(self, ring: Ring, decisions: Decisions, randbytes: Callable[[int], bytes]) -> None:
        self._ring = ring
        self._decisions = decisions
        self._randbytes = randbytes

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        new = QueueRow(tenant, name, self._nonce(), config, version=1)
        change = Change(QUEUES, (tenant, name), None, self._columns(new))

        def verdict(row: Row | None) -> bool | None:
            return None if row is None else row["id"] == new.id

        if (await self._decisions.decide(change, verdict)).applied:
            return new
        raise QueueExists(name)

    async def put(self, row: QueueRow) -> None:
        """A row as it stood in another store; `QueueExists` when there is another one."""
        change = Change(QUEUES, (row.tenant, row.name), None, self._columns(row))

        def verdict(found: Row | None) -> bool:
            return found is not None and _unpack(found) == row

        decided = await self._decisions.decide(change, verdict)
        if not decided.applied and not verdict(decided.row):
            raise QueueExists(row.name)

    async def read(self, tenant: str, name: str) -> QueueRow | None:
        found = await read_row(self._ring, QUEUES, (tenant, name))
        return None if found is None else _unpack(found)

    async def list_after(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        # Names are ordered by their bytes, as they are in Cassandra.
        low = Bound((after,), included=False)
        rows = await self._ring.read(Range(QUEUES, (tenant,), limit, low=low))
        return [_unpack(row) for row in rows]

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        stored = await self._stored(row)
        if stored.version != row.version:
            raise VersionConflict(row.name)
        return await self._replace(msgspec.structs.replace(stored, config=config))

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        stored = await self._stored(row)
        if stored.deleting:
            return stored
        if stored.version != row.version:
            raise VersionConflict(row.name)
        return await self._replace(msgspec.structs.replace(stored, deleting=True))

    async def check_removable(self, row: QueueRow) -> None:
        stored = await self._serial(row)
        if stored is not None and stored.id == row.id:
            assert stored.deleting, f"{row.name} is removed before it was marked"

    async def remove(self, row: QueueRow) -> None:
        """Remove the row, if it still is that of this queue."""
        change = Change(QUEUES, (row.tenant, row.name), {"id": row.id}, None)
        await self._decisions.decide(change, lambda _: True)  # whoever did it

    async def _serial(self, row: QueueRow) -> QueueRow | None:
        found = await self._decisions.read(QUEUES, (row.tenant, row.name))
        return None if found is None else _unpack(found)

    async def _stored(self, row: QueueRow) -> QueueRow:
        stored = await self._serial(row)
        if stored is None:
            raise QueueMissing(row.name)
        if stored.id != row.id:
            raise VersionConflict(row.name)
        return stored

    async def _replace(self, row: QueueRow) -> QueueRow:
        new = msgspec.structs.replace(row, version=row.version + 1)
        columns = self._columns(new)
        expect = {"id": row.id, "version": row.version}
        change = Change(QUEUES, (row.tenant, row.name), expect, columns)

        def verdict(found: Row | None) -> bool | None:
            if found is None or found["id"] != row.id or found["version"] > new.version:
                return None
            return bool(found["nonce"] == columns["nonce"])

        decided = await self._decisions.decide(change, verdict)
        if decided.applied:
            return new
        if decided.row is None:
            raise QueueMissing(row.name)
        raise VersionConflict(row.name)

    def _columns(self, row: QueueRow) -> Row:
        return {
            "id": row.id,
            "version": row.version,
            "deleting": row.deleting,
            "config": msgspec.json.encode(row.config).decode(),
            "nonce": self._nonce(),
        }

    def _nonce(self) -> str:
        return self._randbytes(ID_BYTES).hex()


def _unpack(row: Row) -> QueueRow:
    try:
        config = msgspec.json.decode(row["config"], type=QueueConfig)
    except (msgspec.MsgspecError, TypeError) as error:
        name = row["name"]
        raise StoreDamaged(f"the configuration of queue {name} is damaged: {error}") from error
    return QueueRow(
        row["tenant"], row["name"], row["id"], config, row["version"], row["deleting"] is True
    )
