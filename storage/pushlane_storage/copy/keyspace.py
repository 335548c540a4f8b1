"""A keyspace as a copy uses it: the store's parts, without being one of its servers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.home import Home, find_home
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.migrate import Migration
from pushlane_storage.cassandra.node import is_alive
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.queues import Queues
from pushlane_storage.cassandra.ring import Row, Table, read_row
from pushlane_storage.cassandra.slots import Claim
from pushlane_storage.cassandra.tables import HEARTBEATS, NODES, SCHEMA
from pushlane_storage.copy.cassandra_rows import CassandraRows, Scan


class _Unowned:
    """Claims of a process that has none: what is read is not remembered."""

    def find(self, shard: ShardKey) -> Claim | None:
        return None


class Keyspace:
    def __init__(self, connection: Connection, limits: Limits) -> None:
        self.connection = connection
        self.limits = limits
        self.name = connection.address.keyspace
        self.dc = connection.address.dc or ""
        self.ring = DriverRing(connection, limits)
        self.decisions = Decisions(self.ring, limits.decisions)
        self.scan = Scan(connection)
        self.places = Places(self.ring, limits)
        self.migration = Migration(connection, self.ring, self.decisions, secrets.token_bytes)

    def rows(self) -> CassandraRows:
        queues = Queues(self.ring, self.decisions, secrets.token_bytes)
        buckets = Buckets(self.ring, self.places, _Unowned(), self.limits)
        return CassandraRows(self.ring, self.scan, queues, self.places, buckets)

    async def home(self) -> Home:
        return await trio.to_thread.run_sync(find_home, self.connection)

    async def tables(self) -> set[str]:
        """The names of its tables; none when it is not there."""

        def read() -> list[Row]:
            return self.connection.execute(
                f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{self.name}'"
            )

        return {row["table_name"] for row in await trio.to_thread.run_sync(read)}

    async def salt(self) -> str:
        """Drawn when its tables were made: no two keyspaces share one."""
        [row] = await self.scan.read(SCHEMA, "nonce")
        salt: str = row["nonce"]
        return salt

    async def has_rows(self, table: Table) -> bool:
        return bool(await self.scan.read(table, "*", limit=1))

    async def beating(self, but: str = "") -> Row | None:
        """A process that shows a sign of life, if there is one. Looks for a heartbeat and a half.

        Those that don't may be alive nevertheless: claiming their slots finds out.
        """
        found = await self.scan.read(NODES, "process, address, fenced")
        known = {row["process"]: row for row in found if is_alive(row) and row["process"] != but}
        before = await gather(self._beat, known, self.limits.reads)
        if all(beat is None for beat in before.values()):
            return None
        with trio.move_on_after(1.5 * self.limits.beat_ms / 1000):
            while True:
                await trio.sleep(self.limits.poll_ms / 1000)
                now = await gather(self._beat, known, self.limits.reads)
                for process, beat in now.items():
                    if beat != before[process]:
                        return known[process]
        return None

    async def _beat(self, process: str) -> int | None:
        found = await read_row(self.ring, HEARTBEATS, (process,))
        return None if found is None else found["beat"]


@asynccontextmanager
async def connected(address: Address, limits: Limits) -> AsyncIterator[Keyspace]:
    """`OpenError` when no node lets us in."""
    connection = await trio.to_thread.run_sync(Connection.connect, address, limits)
    keyspace = Keyspace(connection, limits)
    try:
        yield keyspace
    finally:
        with trio.CancelScope(shield=True):
            await keyspace.ring.close()
