"""A replicated store as the target of a copy.

Until it is finished all slots belong to `COPYING`, which no server outlives, and no server opens
the keyspace. Progress is noted by lightweight transactions, of which two copies at once notice.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import trio

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.cassandra.errors import OpenError
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.migrate import STATEMENT_SECONDS
from pushlane_storage.cassandra.ring import Change, Row, Table
from pushlane_storage.cassandra.schema import create_table
from pushlane_storage.cassandra.slots import COPYING, NOBODY, NONCE_BYTES
from pushlane_storage.cassandra.tables import (
    LANES,
    QUEUES,
    USAGE,
)
from pushlane_storage.cassandra.tables import SLOTS as SLOT_ROWS
from pushlane_storage.copy import record as records
from pushlane_storage.copy.cassandra_rows import CassandraRows
from pushlane_storage.copy.cassandra_writer import CassandraWriter
from pushlane_storage.copy.errors import (
    CopyTaken,
    TargetNotEmpty,
    TargetServed,
    TargetUnusable,
)
from pushlane_storage.copy.keyspace import Keyspace, connected
from pushlane_storage.copy.record import Record
from pushlane_storage.slot import SLOTS

RECORD = Table(
    "copy_record",
    ("id",),
    (),
    {"id": "text", "record": "text", "nonce": "text"},
    lightweight=True,
    options="read_repair = 'BLOCKING'",
)
"""Made by the first copy into a keyspace, and kept: who runs it again learns that it is finished.
No part of the schema: servers never look at it."""
_KEY = ("copy",)


class CassandraTarget(CassandraWriter):
    """Made by `open_target`."""

    def __init__(self, name: str, keyspace: Keyspace) -> None:
        super().__init__(keyspace)
        self.name = name
        self._nonce = ""

    # What is there

    async def read_record(self) -> Record | None:
        if RECORD.name not in await self._keyspace.tables():
            return None
        row = await self._keyspace.decisions.read(RECORD, _KEY)
        if row is None:
            return None
        self._nonce = row["nonce"]
        try:
            return records.decode(row["record"])
        except ValueError as error:
            raise TargetNotEmpty(self.name, f"a copy of another version: {error}") from error

    async def check_empty(self) -> None:
        there = await self._keyspace.tables()
        for table in (QUEUES, LANES, SLOT_ROWS, USAGE):
            if table.name in there and await self._keyspace.has_rows(table):
                raise TargetNotEmpty(self.name, f"there are rows in {table.name}")

    # Beginning and ending

    async def begin(self, record: Record) -> CassandraRows:
        await self._make_tables()
        if record.state == "copying":
            await self._check_quiet()
            await self.note(record)
            await self._close_slots(record.copy)
        return self._keyspace.rows()

    async def _check_quiet(self) -> None:
        found = await self._keyspace.beating()
        if found is not None:
            raise TargetServed(self.name, f"process {found['process']} on {found['address']}")

    async def _make_tables(self) -> None:
        keyspace, address = self._keyspace, self._keyspace.connection.address
        try:
            if address.migrate:
                await keyspace.migration.run()
            else:
                await keyspace.migration.check()
            salt = UUID(bytes=bytes.fromhex(await keyspace.salt()))
            text = create_table(keyspace.name, RECORD, salt)

            def run() -> list[Row]:
                return keyspace.connection.execute(text, STATEMENT_SECONDS)

            await trio.to_thread.run_sync(run)
        except OpenError as error:
            raise TargetUnusable(f"{self.name} can't be used: {error}") from error

    async def _close_slots(self, copy: str) -> None:
        """Keep servers out, from here until it is finished."""

        async def close(slot: int) -> None:
            row = {"epoch": 0, "process": COPYING, "owner": copy, "dc": self._keyspace.dc}
            change = Change(SLOT_ROWS, (slot,), None, {**row, "nonce": _nonce()})

            def is_ours(found: Row | None) -> bool:
                return found is not None and (found["process"], found["owner"]) == (COPYING, copy)

            decided = await self._keyspace.decisions.decide(change, is_ours)
            if not decided.applied and not is_ours(decided.row):
                raise TargetServed(self.name, f"slot {slot} was claimed")

        await gather(close, range(SLOTS), self._limits.reads)

    async def note(self, record: Record) -> None:
        nonce = _nonce()
        expect = {"nonce": self._nonce} if self._nonce else None
        change = Change(RECORD, _KEY, expect, {"record": records.encode(record), "nonce": nonce})

        def verdict(found: Row | None) -> bool:
            return found is not None and found["nonce"] == nonce

        if not (await self._keyspace.decisions.decide(change, verdict)).applied:
            raise CopyTaken(f"another copy into {self.name} has begun: run only one")
        self._nonce = nonce

    async def finish(self, record: Record) -> None:
        async def open_slot(slot: int) -> None:
            row = {"epoch": record.epoch, "process": NOBODY, "nonce": _nonce()}
            change = Change(SLOT_ROWS, (slot,), {"process": COPYING}, row)
            await self._keyspace.decisions.decide(change, lambda _: True)  # or it was open before

        await gather(open_slot, range(1, SLOTS), self._limits.reads)
        await open_slot(0)
        await self.note(record)


def _nonce() -> str:
    return secrets.token_bytes(NONCE_BYTES).hex()


@asynccontextmanager
async def open_target(
    name: str, address: Address, limits: Limits
) -> AsyncIterator[CassandraTarget]:
    try:
        async with connected(address, limits) as keyspace:
            yield CassandraTarget(name, keyspace)
    except OpenError as error:
        raise TargetUnusable(f"{name} can't be used: {error}") from error
