"""Inspecting a database that nobody writes to: is it whole, and what is in it?

Everything is read: SQLite's own check of its structure, every row for the digest, every row that
carries a checksum against it. A row with a wrong checksum is counted and no more: a store can
serve with a damaged segment, so it can be backed up and restored with it.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pushlane_storage.errors import ChecksumMismatch
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.packing import checksum_of
from pushlane_storage.segment import DamagedSegment, PackedSegment, StoredSegment, unpack_head
from pushlane_storage.sqlite.columns import BUCKET_COLUMNS, SELECT_SEGMENTS, bucket_of
from pushlane_storage.sqlite.manifest import Contents

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is (in bytes)."""

KEPT = 1_000
"""Places of damaged segments that are remembered; beyond it they are counted only."""
STEP_ROWS = 256
CACHE_KIB = 16_384


class Place(NamedTuple):
    """A segment's key in its table."""

    bucket: int
    first: int


class Inspection(NamedTuple):
    contents: Contents
    places: list[Place]
    """Of damaged segments."""


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """A file that doesn't change: no lock is taken, and nothing is created beside it."""
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.text_factory = bytes  # damage may have left anything in a text
        yield connection


def inspect(path: Path, progress: Progress) -> Inspection:
    """Read all of it; `ChecksumMismatch` when its structure is damaged."""
    try:
        with read_only(path) as connection:
            return _inspect(connection, path, progress)
    except sqlite3.DatabaseError as error:
        raise ChecksumMismatch(path, str(error)) from error


def tables_of(connection: sqlite3.Connection, schema: str = "main") -> list[str]:
    found = connection.execute(
        f"SELECT CAST(name AS BLOB) FROM {schema}.sqlite_schema"
        " WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
    )
    return [name.decode() for (name,) in found.fetchall()]


def _inspect(connection: sqlite3.Connection, path: Path, progress: Progress) -> Inspection:
    total = path.stat().st_size
    progress("checking the structure", 0, total)
    problems = connection.execute("PRAGMA integrity_check(3)").fetchall()
    if problems != [(b"ok",)]:
        raise ChecksumMismatch(path, b"; ".join(row[0] for row in problems).decode())
    tables, digest = _digest(connection, total, progress)
    places = _damaged_segments(connection, total, progress)
    damaged = {"segment": len(places)}
    for table, count in (
        ("bucket", _buckets),
        ("settlement", _log),
        ("seal", _log),
        ("note", _log),
    ):
        damaged[table] = count(connection, table)
    contents = Contents(
        tables=tables,
        messages=_messages(connection),
        damaged={table: count for table, count in damaged.items() if count},
        digest=digest,
    )
    return Inspection(contents, places[:KEPT])


def _digest(
    connection: sqlite3.Connection, total: int, progress: Progress
) -> tuple[dict[str, int], str]:
    encode = msgspec.msgpack.Encoder().encode
    rows, whole, done = {}, sha256(), 0
    for table in tables_of(connection):
        count, hashed = 0, sha256()
        cursor = connection.execute(f'SELECT * FROM "{table}"')
        while some := cursor.fetchmany(STEP_ROWS):
            text = b"".join(map(encode, some))
            hashed.update(text)
            count += len(some)
            done += len(text)
            progress("reading every row", min(done, total), total)
        rows[table] = count
        if table != "meta":
            whole.update(encode((table, count, hashed.digest())))
    return rows, whole.hexdigest()


def _damaged_segments(
    connection: sqlite3.Connection, total: int, progress: Progress
) -> list[Place]:
    select = SELECT_SEGMENTS.replace("SELECT ", "SELECT segment.bucket, ", 1)
    places, done = [], 0
    cursor = connection.execute(select)
    while some := cursor.fetchmany(STEP_ROWS):
        for bucket, *columns in some:
            stored = StoredSegment(*columns)
            if not is_whole(stored):
                places.append(Place(bucket, stored.first))
            done += len(stored.body or b"")
        progress("checking every segment", min(done, total), total)
    return places


def is_whole(stored: StoredSegment) -> bool:
    """Whether both checksums of a segment are right."""
    packed = PackedSegment(
        stored.first,
        stored.count,
        stored.size,
        stored.last_at,
        stored.format,
        stored.checksum,
        stored.marks,
        stored.body,
    )
    try:
        unpack_head(packed)
        stored.unpack()
    except (DamagedSegment, msgspec.MsgspecError, TypeError, ValueError):
        return False
    return True


def _messages(connection: sqlite3.Connection) -> int:
    [count] = connection.execute(
        "SELECT coalesce(sum(count), 0) FROM segment WHERE typeof(count) = 'integer'"
    ).fetchone()
    return int(count)


def _log(connection: sqlite3.Connection, table: str) -> int:
    """Damaged rows of the settlement log, of the seals, or of the notes."""
    keys = {"settlement": "owner, n", "seal": "owner", "note": "owner, n"}[table]
    found = connection.execute(f"SELECT checksum, CAST(body AS BLOB), {keys} FROM {table}")
    return sum(checksum != checksum_of(body or b"", *key) for checksum, body, *key in found)


def _buckets(connection: sqlite3.Connection, _: str) -> int:
    found = connection.execute(f"SELECT {BUCKET_COLUMNS} FROM bucket WHERE first IS NOT NULL")
    return sum(not _is_bucket(columns) for columns in found)


def _is_bucket(columns: tuple[Any, ...]) -> bool:
    try:
        bucket_of(columns)
    except (StoreDamaged, TypeError, ValueError):
        return False
    return True
