"""The tables, and the steps from one version of them to the next.

A folder's version is SQLite's `user_version`. Version 0 is an empty file, and step n leads from
version n to n + 1 in one transaction: a new folder takes all of them, an older one the rest, and
a crash in between leaves a folder of one version or the other. Steps are never changed once they
were released: what comes later is a step more.

Shards and buckets have numbers, so that keys stay small. A number is used once: bucket numbers
are counted up from the greatest one that is stored, and what refers to a dropped bucket is gone,
or known as garbage, in the same transaction.
"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from pushlane_storage.errors import FolderForeign, FolderNewer
from pushlane_storage.segment import FORMAT

APPLICATION = 0x50534C4E
"""SQLite's `application_id` of our files: "PSLN"."""

Step = Callable[[sqlite3.Connection], None]

_VERSION_1 = """
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- A row per slot that was ever claimed.
CREATE TABLE slot (
    slot INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL
);

CREATE TABLE queue (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    deleting INTEGER NOT NULL,
    config TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

CREATE TABLE shard (
    id INTEGER PRIMARY KEY,
    queue_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    UNIQUE (queue_id, number)
);

-- `first` is NULL until the segment that opens the bucket has landed. `marks` is what its dedup
-- marks are about, once it is closed. `checksum` covers the row.
CREATE TABLE bucket (
    id INTEGER PRIMARY KEY,
    shard INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    start INTEGER NOT NULL,
    first INTEGER,
    closed INTEGER NOT NULL DEFAULT 0,
    drained INTEGER NOT NULL DEFAULT 0,
    count INTEGER NOT NULL DEFAULT 0,
    size INTEGER NOT NULL DEFAULT 0,
    last_at INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER NOT NULL DEFAULT 0,
    marks BLOB,
    UNIQUE (shard, lane, epoch, start)
);

-- Small rows, so that recovery and paging find their way without touching a body. Bodies and
-- dedup marks stand in tables of their own, in the order in which they came, whatever queue they
-- are of; a segment without marks has no row in `mark`.
-- `head` is a checksum over the row and the marks, `checksum` is one over the body, too.
CREATE TABLE segment (
    bucket INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    format INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    head INTEGER NOT NULL,
    payload INTEGER NOT NULL,
    PRIMARY KEY (bucket, first)
) WITHOUT ROWID;

CREATE TABLE payload (
    id INTEGER PRIMARY KEY,
    body BLOB NOT NULL
);

CREATE TABLE mark (
    payload INTEGER PRIMARY KEY,
    marks BLOB NOT NULL
);

CREATE TABLE settlement (
    bucket INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    n INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (bucket, owner, n)
) WITHOUT ROWID;

CREATE TABLE seal (
    shard INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (shard, owner)
) WITHOUT ROWID;

CREATE TABLE schedule (
    shard INTEGER NOT NULL,
    due INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    start INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    bucket INTEGER NOT NULL,
    PRIMARY KEY (shard, due, lane, epoch, start, seq, bucket)
) WITHOUT ROWID;
CREATE INDEX schedule_bucket ON schedule (bucket);

-- Buckets that were dropped: what they held is deleted bit by bit.
CREATE TABLE garbage (bucket INTEGER PRIMARY KEY);

CREATE TABLE usage (
    tenant TEXT NOT NULL,
    minute INTEGER NOT NULL,
    queue TEXT NOT NULL,
    node TEXT NOT NULL,
    counters BLOB NOT NULL,
    PRIMARY KEY (tenant, minute, queue, node)
) WITHOUT ROWID;

-- Damaged segments as they were found.
CREATE TABLE quarantine (
    queue_id TEXT NOT NULL,
    shard INTEGER NOT NULL,
    lane INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    start INTEGER NOT NULL,
    first INTEGER NOT NULL,
    count INTEGER NOT NULL,
    reason TEXT NOT NULL,
    found_at INTEGER NOT NULL,
    size, last_at, format, checksum, head, marks, body,
    PRIMARY KEY (queue_id, shard, lane, epoch, start, first)
);
"""


def _create(connection: sqlite3.Connection) -> None:
    for statement in _VERSION_1.split(";\n"):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('epoch', 0), ('format', ?)", (FORMAT,))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")


def _add_notes(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE note (shard INTEGER PRIMARY KEY, slot INTEGER NOT NULL, due INTEGER,"
        " tenant TEXT NOT NULL, queue TEXT NOT NULL, owner INTEGER NOT NULL, n INTEGER NOT NULL,"
        " checksum INTEGER NOT NULL, body BLOB NOT NULL)"
    )
    connection.execute("CREATE INDEX note_due ON note (slot, due) WHERE due IS NOT NULL")


STEPS: tuple[Step, ...] = (_create, _add_notes)


def migrate(connection: sqlite3.Connection, folder: Path, steps: Sequence[Step] = STEPS) -> None:
    """Bring a folder to the newest version that this code knows."""
    version = _value(connection, "PRAGMA user_version")
    empty = not _value(connection, "SELECT count(*) FROM sqlite_schema")
    if not empty and _value(connection, "PRAGMA application_id") != APPLICATION:
        raise FolderForeign(f"the database in {folder} was not made by Pushlane")
    if version > len(steps):
        raise FolderNewer(folder, version, len(steps))
    for number in range(version, len(steps)):
        connection.execute("BEGIN IMMEDIATE")
        try:
            steps[number](connection)
            connection.execute(f"PRAGMA user_version = {number + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    written = _value(connection, "SELECT value FROM meta WHERE name = 'format'")
    if written > FORMAT:
        raise FolderNewer(folder, written, FORMAT)


def raise_epoch(connection: sqlite3.Connection) -> int:
    """The epoch of this opening: greater than every epoch that any slot ever had."""
    known = _value(connection, "SELECT value FROM meta WHERE name = 'epoch'")
    claimed = _value(connection, "SELECT coalesce(max(epoch), 0) FROM slot")
    epoch = max(known, claimed) + 1
    connection.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
    return epoch


def _value(connection: sqlite3.Connection, query: str) -> int:
    [value] = connection.execute(query).fetchone()
    assert isinstance(value, int)
    return value
