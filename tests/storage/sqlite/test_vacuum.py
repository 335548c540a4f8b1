"""Space is given back: step by step, and all at once when little is left."""

import sqlite3
from collections.abc import Iterator
from itertools import chain, repeat

import pytest

from pushlane_storage.sqlite.connection import PAGE_BYTES
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.space import Vacuum

ROWS = 400


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
    connection.execute("BEGIN")
    for _ in range(ROWS):
        connection.execute("INSERT INTO t (body) VALUES (?)", (bytes(2 * PAGE_BYTES),))
    connection.execute("COMMIT")
    yield connection
    connection.close()


def limits(rebuild_free: int = 1 << 30) -> Limits:
    return Limits(
        spare_bytes=8 * PAGE_BYTES,
        vacuum_bytes=16 * PAGE_BYTES,
        rebuild_free_bytes=rebuild_free,
        rebuild_bytes=100 * PAGE_BYTES,
    )


def pages(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA page_count").fetchone()[0]
    return found


def test_step_by_step(connection: sqlite3.Connection) -> None:
    vacuum = Vacuum(connection, limits(), clock=repeat(0.0).__next__)
    before_anything = vacuum.due
    connection.execute("DELETE FROM t WHERE id <= 100")
    before = pages(connection)
    assert (before_anything, vacuum.due) == (False, True)
    vacuum.step()
    assert pages(connection) == before - 16
    while vacuum.due:
        vacuum.step()
    assert 8 <= vacuum.free < 8 + 16


def test_little_that_is_left_is_written_anew_at_once(connection: sqlite3.Connection) -> None:
    vacuum = Vacuum(connection, limits(rebuild_free=100 * PAGE_BYTES))
    connection.execute("DELETE FROM t WHERE id <= 100")
    before = pages(connection)
    vacuum.step()
    assert pages(connection) > before // 2, "too much is left"
    connection.execute("DELETE FROM t WHERE id > 110")
    vacuum.step()
    assert pages(connection) < 50
    assert vacuum.free == 0
    assert connection.execute("SELECT count(*), min(id) FROM t").fetchone() == (10, 101)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


def test_slow_steps_get_smaller_and_quick_ones_bigger(connection: sqlite3.Connection) -> None:
    times = chain([0.0, 0.1, 0.2, 0.3, 0.4, 0.401], repeat(0.5))
    vacuum = Vacuum(connection, limits(), clock=times.__next__)
    connection.execute("DELETE FROM t WHERE id <= 300")
    gone = []
    for _ in range(5):
        before = pages(connection)
        vacuum.step()
        gone.append(before - pages(connection))
    # A page of SQLite's own map may go along.
    assert [count - count % 4 for count in gone] == [16, 8, 4, 8, 16]
