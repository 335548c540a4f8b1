"""Usage counters: one row per tenant, minute, queue and node."""

import sqlite3
from collections.abc import Sequence

import msgspec

from pushlane_storage.usage import Usage, UsageKey

_encode = msgspec.msgpack.Encoder().encode
_counters = msgspec.msgpack.Decoder(dict[str, int])


def add(connection: sqlite3.Connection, usage: Sequence[Usage]) -> None:
    sums: dict[tuple[str, int, str, str], dict[str, int]] = {}
    for added in usage:
        key = (added.key.tenant, added.key.minute, added.key.queue, added.key.node)
        if key not in sums:
            sums[key] = _stored(connection, key)
        counters = sums[key]
        for name, value in added.counters.items():
            counters[name] = counters.get(name, 0) + value
    rows = [(*key, _encode(counters)) for key, counters in sums.items()]
    connection.executemany("REPLACE INTO usage VALUES (?, ?, ?, ?, ?)", rows)


def _stored(connection: sqlite3.Connection, key: tuple[str, int, str, str]) -> dict[str, int]:
    found = connection.execute(
        "SELECT counters FROM usage WHERE tenant = ? AND minute = ? AND queue = ? AND node = ?",
        key,
    ).fetchone()
    return {} if found is None else _counters.decode(found[0])


def read(
    connection: sqlite3.Connection, tenant: str, first_minute: int, last_minute: int
) -> list[Usage]:
    found = connection.execute(
        "SELECT queue, minute, node, counters FROM usage WHERE tenant = ?"
        " AND minute BETWEEN ? AND ? ORDER BY queue, minute, node",
        (tenant, first_minute, last_minute),
    )
    return [
        Usage(UsageKey(tenant, queue, minute, node), _counters.decode(counters))
        for queue, minute, node, counters in found.fetchall()
    ]
