"""The schema, the steps from one version of it to the next, and how a keyspace takes them.

A keyspace's version stands in `schema_version`. Step n leads from version n to n + 1; its
statements may be run twice, and by two processes at once: tables are made with ids that both know,
else each node could make a table of its own under the same name. A column that is there already was
added (`ADD IF NOT EXISTS` would need Cassandra 4.1). Steps are never changed once they
were released: what comes later is a step more.

The version is advanced by a lightweight transaction, after the statements of its step were run. Two
processes that migrate at once run the same statements, and one of them advances the version.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from uuid import NAMESPACE_URL, UUID, uuid5

import trio

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Change, Ring, Row, Table
from pushlane_storage.cassandra.tables import (
    DRAINING,
    NODES,
    NOTES,
    PROMPT,
    PROMPTED,
    ROSTER,
    SCHEMA,
    TABLES,
    USAGE,
)
from pushlane_storage.errors import (
    KeyspaceMissing,
    KeyspaceNewer,
    KeyspaceUnusable,
    Unreachable,
)
from pushlane_storage.interface import StoreError

Step = Callable[[str, UUID], list[str]]
"""The statements for a keyspace; the salt is its own, made once."""

NODES_FOR_SAFETY = 3
"""Replicas of a keyspace that is made without being told how many, if there are as many nodes."""


def create_keyspace(address: Address, nodes: int) -> str:
    replication = address.replication
    if replication is None:
        replication = max(1, min(NODES_FOR_SAFETY, nodes))
    if isinstance(replication, int):
        replication = {"replication_factor": replication}
    factors = "".join(f", '{name}': {count}" for name, count in replication.items())
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {address.keyspace} WITH replication ="
        f" {{'class': 'NetworkTopologyStrategy'{factors}}} AND durable_writes = true"
    )


def create_version_table(keyspace: str) -> str:
    return create_table(keyspace, SCHEMA, uuid5(NAMESPACE_URL, f"pushlane:{keyspace}"))


def create_table(keyspace: str, table: Table, salt: UUID) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
    key = f"({', '.join(table.partition)})"
    primary = ", ".join([key, *table.clustering])
    options = f" AND {table.options}" if table.options else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {keyspace}.{table.name} ({columns},"
        f" PRIMARY KEY ({primary})) WITH ID = '{uuid5(salt, table.name)}'{options}"
    )


def _create_tables(keyspace: str, salt: UUID) -> list[str]:
    return [create_table(keyspace, table, salt) for table in TABLES]


def _replace_usage(keyspace: str, salt: UUID) -> list[str]:
    """Rows instead of counters. Version 1 had made a table `usage` that nothing ever wrote to.

    The new one has another name: two processes that migrate at once could not drop and make a table
    of the same name, the second one would drop what the first one has made.
    """
    return [create_table(keyspace, USAGE, salt), f"DROP TABLE IF EXISTS {keyspace}.usage"]


def _add_notes(keyspace: str, salt: UUID) -> list[str]:
    return [create_table(keyspace, NOTES, salt)]


def _nothing(_keyspace: str, _salt: UUID) -> list[str]:
    """Version 4 had set what version 6 sets anew."""
    return []


def _add_members(keyspace: str, salt: UUID) -> list[str]:
    column = f"{DRAINING} {NODES.columns[DRAINING]}"
    return [
        create_table(keyspace, ROSTER, salt),
        f"ALTER TABLE {keyspace}.{NODES.name} ADD {column}",
    ]


def _ask_others_early(keyspace: str, _: UUID) -> list[str]:
    return [f"ALTER TABLE {keyspace}.{name} WITH {PROMPT}" for name in PROMPTED]


STEPS: Sequence[Step] = (
    _create_tables,
    _replace_usage,
    _add_notes,
    _nothing,
    _add_members,
    _ask_others_early,
)


log = logging.getLogger(__name__)

STATEMENT_SECONDS = 60
"""How long a statement of the schema may take: every node must have heard of it."""
_KEY = ("pushlane",)
_SALT_BYTES = 16
_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds between reads of a table that is listed but not there yet."""


class Migration:
    def __init__(
        self,
        connection: Connection,
        ring: Ring,
        decisions: Decisions,
        randbytes: Callable[[int], bytes],
        steps: Sequence[Step] = STEPS,
    ) -> None:
        self._connection = connection
        self._ring = ring
        self._decisions = decisions
        self._randbytes = randbytes
        self._steps = steps
        self._keyspace = connection.address.keyspace

    async def check(self) -> None:
        """`KeyspaceMissing` unless it is of this version."""
        row = await self._row() if await self._has_version_table() else None
        version = 0 if row is None else row["version"]
        self._refuse_newer(version)
        if version < len(self._steps):
            what = "is not there" if row is None else f"has schema {version}"
            raise KeyspaceMissing(
                f"keyspace {self._keyspace} {what}, this version needs schema {len(self._steps)}:"
                " run `pushlane store migrate`"
            )

    async def run(self) -> tuple[int, int]:
        """The version that was there, and the one that is there now."""
        if not await self._has_version_table():
            nodes = self._connection.count_nodes()
            await self._execute(create_keyspace(self._connection.address, nodes))
            await self._execute(create_version_table(self._keyspace))
        await trio.to_thread.run_sync(self._connection.agree)
        row = await self._begin()
        found = row["version"]
        self._refuse_newer(found)
        for version in range(found, len(self._steps)):
            salt = UUID(bytes=bytes.fromhex(row["nonce"]))
            for statement in self._steps[version](self._keyspace, salt):
                await self._execute(statement)
            await trio.to_thread.run_sync(self._connection.agree)
            await self._advance(version)
        return found, len(self._steps)

    async def secret(self) -> bytes:
        """Made of the keyspace's nonce: who can read that can read everything anyway."""
        row = await self._row()
        assert row is not None, "asked for after `run` or `check`"
        return sha256(f"pushlane secret of a keyspace {row['nonce']}".encode()).digest()

    async def _begin(self) -> Row:
        """The row of the version, made if need be."""
        row = await self._row()
        while row is None:
            log.info("keyspace %s is new: its tables are made", self._keyspace)
            new = {"version": 0, "nonce": self._randbytes(_SALT_BYTES).hex()}
            await self._decide(Change(SCHEMA, _KEY, None, new))
            row = await self._row()
        return row

    async def _advance(self, version: int) -> None:
        await self._decide(Change(SCHEMA, _KEY, {"version": version}, {"version": version + 1}))
        log.info("keyspace %s has schema %d now", self._keyspace, version + 1)

    async def _decide(self, change: Change) -> None:
        try:
            await self._decisions.decide(change, lambda _: True)  # by us or another
        except StoreError as error:
            raise KeyspaceUnusable(f"keyspace {self._keyspace}: {error}") from error

    async def _row(self) -> Row | None:
        """A table that another process makes just now is listed a moment before it can be read."""
        pauses = iter(_PAUSES)
        while True:
            try:
                return await self._decisions.read(SCHEMA, _KEY)
            except StoreError as error:
                pause = next(pauses, None) if "does not exist" in str(error) else None
                if pause is None:
                    what = f"keyspace {self._keyspace} can't be read: {error}"
                    raise Unreachable(what) from error
                await trio.sleep(pause)

    def _refuse_newer(self, version: int) -> None:
        if version > len(self._steps):
            raise KeyspaceNewer(self._keyspace, version, len(self._steps))

    async def _has_version_table(self) -> bool:
        found = await self._execute(
            "SELECT table_name FROM system_schema.tables"
            f" WHERE keyspace_name = '{self._keyspace}' AND table_name = '{SCHEMA.name}'"
        )
        return bool(found)

    async def _execute(self, statement: str) -> list[object]:
        def run() -> list[object]:
            return self._connection.execute(statement, STATEMENT_SECONDS)

        try:
            return await trio.to_thread.run_sync(run)
        except Exception as error:
            if _is_added(statement, error):
                return []
            raise KeyspaceUnusable(
                f"keyspace {self._keyspace} can't be made: {type(error).__name__}: {error}"
            ) from error


def _is_added(statement: str, error: Exception) -> bool:
    """Whether a column could not be added because it is there."""
    return " ADD " in statement and "already exists" in str(error)


async def migrate(address: Address, limits: Limits | None = None) -> tuple[int, int]:
    """Bring a keyspace up to date, and do nothing else; `OpenError` says why it can't be."""
    bounds = limits or Limits()
    connection = await trio.to_thread.run_sync(Connection.connect, address, bounds)
    ring = DriverRing(connection, bounds)
    try:
        decisions = Decisions(ring, bounds.decisions)
        return await Migration(connection, ring, decisions, secrets.token_bytes).run()
    finally:
        with trio.CancelScope(shield=True):
            await ring.close()
