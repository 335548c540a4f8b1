"""Usage counters: one row per tenant, minute, queue and node."""

import sqlite3
from collections.abc import Sequence

from pushlane_storage.sqlite.calls import Calls
from pushlane_storage.usage import BILLING, TALLY_MINUTE, Usage, UsageKey, pack, unpack

DAY = 24 * 60


def put(connection: sqlite3.Connection, usage: Sequence[Usage]) -> None:
    """In the order given: of two rows with one key the later one is stored last."""
    for row in usage:
        stored = find(connection, row.key)
        if stored is None or stored.version <= row.version:
            connection.execute(
                "REPLACE INTO usage VALUES (?, ?, ?, ?, ?)", (*_place(row), pack(row))
            )


def forget(connection: sqlite3.Connection, usage: Sequence[Usage], days: int) -> None:
    """Of the tenants that something was counted of, remove what is so many days older than that.

    One minute of theirs at a time, so that it doesn't take long. Rows of a minute come in several
    writes, so this keeps up, and when the number of days is made less it catches up bit by bit.
    """
    newest: dict[str, int] = {}
    for row in usage:
        if row.key.node != BILLING:
            newest[row.key.tenant] = max(row.key.minute, newest.get(row.key.tenant, 0))
    for tenant, minute in newest.items():
        [(oldest,)] = connection.execute(
            "SELECT min(minute) FROM usage WHERE tenant = ? AND minute > ?", (tenant, TALLY_MINUTE)
        )
        if oldest is not None and oldest < minute - days * DAY:
            place = tenant, oldest
            connection.execute("DELETE FROM usage WHERE tenant = ? AND minute = ?", place)


def _place(row: Usage) -> tuple[str, int, str, str]:
    return row.key.tenant, row.key.minute, row.key.queue, row.key.node


def find(connection: sqlite3.Connection, key: UsageKey) -> Usage | None:
    found = connection.execute(
        "SELECT counters FROM usage WHERE tenant = ? AND minute = ? AND queue = ? AND node = ?",
        (key.tenant, key.minute, key.queue, key.node),
    ).fetchone()
    return None if found is None else unpack(key, found[0])


def read(
    connection: sqlite3.Connection,
    tenant: str,
    first_minute: int,
    last_minute: int,
    queue: str | None = None,
) -> list[Usage]:
    found = connection.execute(
        "SELECT queue, minute, node, counters FROM usage WHERE tenant = ?"
        " AND minute BETWEEN ? AND ? AND queue = coalesce(?, queue) ORDER BY queue, minute, node",
        (tenant, first_minute, last_minute, queue),
    )
    return [
        unpack(UsageKey(tenant, queue, minute, node), counters)
        for queue, minute, node, counters in found.fetchall()
    ]


class SqliteUsage:
    """The store's seam: the functions above, in the store's threads."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def put(self, usage: Sequence[Usage]) -> None:
        await self._calls.write(lambda tables: tables.put_usage(usage))

    async def find(self, key: UsageKey) -> Usage | None:
        return await self._calls.read(lambda reading: reading.fetch(find, key))

    async def read(
        self, tenant: str, first_minute: int, last_minute: int, queue: str | None = None
    ) -> list[Usage]:
        return await self._calls.read(
            lambda reading: reading.fetch(read, tenant, first_minute, last_minute, queue)
        )
