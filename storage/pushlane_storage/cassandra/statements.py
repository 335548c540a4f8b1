"""CQL texts of the seam's operations. One text for one shape, so that each is prepared once."""

from __future__ import annotations

from typing import Any, NamedTuple

from pushlane_storage.cassandra.ring import Bound, Change, Delete, Range, Row, Table, Write


class Statement(NamedTuple):
    text: str
    values: tuple[Any, ...]


TIME = Statement("SELECT toUnixTimestamp(now()) AS at FROM system.local", ())


def _where(columns: tuple[str, ...]) -> str:
    return " AND ".join(f"{name} = ?" for name in columns)


def insert(keyspace: str, write: Write, row: Row) -> Statement:
    names = tuple(row)
    text = (
        f"INSERT INTO {keyspace}.{write.table.name} ({', '.join(names)})"
        f" VALUES ({', '.join('?' * len(names))})"
    )
    using, extra = _using(write.stamp, write.ttl)
    return Statement(text + using, (*row.values(), *extra))


def _using(stamp: int | None, ttl: int | None = None) -> tuple[str, tuple[int, ...]]:
    parts = [("TIMESTAMP", stamp), ("TTL", ttl)]
    known = [(name, value) for name, value in parts if value is not None]
    if not known:
        return "", ()
    text = " USING " + " AND ".join(f"{name} ?" for name, _ in known)
    return text, tuple(value for _, value in known)


def delete(keyspace: str, write: Delete) -> Statement:
    using, extra = _using(write.stamp)
    names = write.table.key[: len(write.key)]
    text = f"DELETE FROM {keyspace}.{write.table.name}{using} WHERE {_where(names)}"
    return Statement(text, (*extra, *write.key))


def select(keyspace: str, range: Range) -> Statement:
    table = range.table
    text = (
        f"SELECT {', '.join(range.columns) or '*'} FROM {keyspace}.{table.name}"
        f" WHERE {_where(table.partition)}"
    )
    values = range.partition
    if range.low is not None and range.low == range.high:
        names = table.clustering[: len(range.low.values)]
        text += f" AND {_where(names)}"
        values += range.low.values
    else:
        for bound, sign in ((range.low, ">"), (range.high, "<")):
            if bound is not None:
                text += f" AND {_compare(table, bound, sign)}"
                values += bound.values
    if range.reverse:
        text += f" ORDER BY {table.clustering[0]} DESC"
    return Statement(f"{text} LIMIT ?", (*values, range.limit))


def _compare(table: Table, bound: Bound, sign: str) -> str:
    names = table.clustering[: len(bound.values)]
    sign += "=" if bound.included else ""
    return f"({', '.join(names)}) {sign} ({', '.join('?' * len(names))})"


def change(keyspace: str, change: Change) -> Statement:
    table = change.table
    name = f"{keyspace}.{table.name}"
    if change.expect is None:
        assert change.row is not None
        names = (*table.key, *change.row)
        text = f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        return Statement(f"{text} IF NOT EXISTS", (*change.key, *change.row.values()))
    condition = " AND ".join(f"{column} = ?" for column in change.expect)
    key = _where(table.key)
    expected = tuple(change.expect.values())
    if change.row is None:
        return Statement(f"DELETE FROM {name} WHERE {key} IF {condition}", (*change.key, *expected))
    sets = ", ".join(f"{column} = ?" for column in change.row)
    text = f"UPDATE {name} SET {sets} WHERE {key} IF {condition}"
    return Statement(text, (*change.row.values(), *change.key, *expected))
