"""Usage is kept for so many days, and forgotten bit by bit."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from pushlane_storage.sqlite import usage_rows
from pushlane_storage.sqlite.schema import migrate
from pushlane_storage.usage import Usage, UsageKey

DAYS = 10
OLD = 30_000_000
NOW = OLD + DAYS * usage_rows.DAY + 90


def row(tenant: str, minute: int) -> Usage:
    return Usage(UsageKey(tenant, "orders", minute, "node"), {"acked": 1}, 1)


def minutes(connection: sqlite3.Connection, tenant: str) -> list[int]:
    return [found.key.minute for found in usage_rows.read(connection, tenant, 0, 1 << 40)]


def test_what_is_old_goes_by_the_hour() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        migrate(connection, Path())
        usage_rows.put(connection, [row("a", 0), *[row("a", OLD + n) for n in range(0, 120, 20)]])
        usage_rows.put(connection, [row("b", 0), row("b", OLD)])
        latest = [row("a", NOW), row("a", 0)]
        usage_rows.put(connection, latest)
        usage_rows.forget(connection, latest, DAYS)
        assert minutes(connection, "a") == [0, OLD + 60, OLD + 80, OLD + 100, NOW]
        usage_rows.forget(connection, latest, DAYS)
        kept = [0, OLD + 100, NOW]
        assert minutes(connection, "a") == kept
        usage_rows.forget(connection, latest, DAYS)
        usage_rows.forget(connection, [], DAYS)
        assert minutes(connection, "a") == kept
        assert minutes(connection, "b") == [0, OLD]


def test_a_tenant_that_has_only_tallies() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        migrate(connection, Path())
        usage_rows.put(connection, [row("a", 0)])
        usage_rows.forget(connection, [row("a", 0)], DAYS)
        assert minutes(connection, "a") == [0]
