"""Usage is kept for so many days, and forgotten bit by bit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from pushlane_storage.sqlite import usage_rows
from pushlane_storage.sqlite.schema import migrate
from pushlane_storage.usage import BILLING, Usage, UsageKey

DAYS = 10
OLD = 30_000_000
NOW = OLD + DAYS * usage_rows.DAY + 90


def row(tenant: str, minute: int) -> Usage:
    return Usage(UsageKey(tenant, "orders", minute, "node"), {"acked": 1}, 1)


def minutes(connection: sqlite3.Connection, tenant: str) -> list[int]:
    return [found.key.minute for found in usage_rows.read(connection, tenant, 0, 1 << 40)]


def test_what_is_old_goes_minute_by_minute() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        migrate(connection, Path())
        usage_rows.put(connection, [row("a", 0), *[row("a", OLD + n) for n in (0, 1, 5, 90)]])
        usage_rows.put(connection, [row("b", 0), row("b", OLD)])
        latest = [row("a", NOW), row("a", 0)]
        usage_rows.put(connection, latest)
        for left in ([1, 5, 90], [5, 90], [90], [90]):
            usage_rows.forget(connection, latest, DAYS)
            assert minutes(connection, "a") == [0, *[OLD + n for n in left], NOW]
        usage_rows.forget(connection, [], DAYS)
        bill = Usage(UsageKey("a", "orders", 1 << 40, BILLING), {"billing.day.total": 1})
        usage_rows.forget(connection, [bill], DAYS)
        assert minutes(connection, "a") == [0, OLD + 90, NOW]
        assert minutes(connection, "b") == [0, OLD]


def test_a_tenant_that_has_only_tallies() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        migrate(connection, Path())
        usage_rows.put(connection, [row("a", 0)])
        usage_rows.forget(connection, [row("a", 0)], DAYS)
        assert minutes(connection, "a") == [0]
