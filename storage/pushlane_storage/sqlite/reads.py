"""Reads of shards' rows: each is one or two range reads of an index.

These run in a reader's thread, on its connection. Rows are fetched here; what takes longer
(checking and decoding) is done by the caller, when SQLite's read is over.
"""

import sqlite3
from collections.abc import Sequence

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.note import DueShard
from pushlane_storage.packing import unpack_note, unpack_seal
from pushlane_storage.seal import Outline
from pushlane_storage.segment import StoredHead, StoredSegment
from pushlane_storage.sqlite.columns import BUCKET_COLUMNS, SELECT_HEADS, SELECT_SEGMENTS, bucket_of

_SHARD = "(SELECT id FROM shard WHERE queue_id = ? AND number = ?)"
_BUCKET = f"(SELECT id FROM bucket WHERE shard = {_SHARD} AND lane = ? AND epoch = ? AND start = ?)"


def outline(connection: sqlite3.Connection, shard: ShardKey) -> Outline:
    found = [unpack_seal(*columns) for columns in seals(connection, shard)]
    stored = note(connection, shard)
    kept = None if stored is None else unpack_note(*stored)
    return Outline(found, buckets(connection, shard), kept)


def buckets(connection: sqlite3.Connection, shard: ShardKey) -> list[Bucket]:
    found = connection.execute(
        f"SELECT {BUCKET_COLUMNS} FROM bucket WHERE shard = {_SHARD} AND first IS NOT NULL"
        " ORDER BY lane, epoch, start",
        shard,
    )
    return [bucket_of(columns) for columns in found.fetchall()]


def seals(connection: sqlite3.Connection, shard: ShardKey) -> list[tuple[int, int, bytes]]:
    return connection.execute(
        "SELECT owner, checksum, CAST(body AS BLOB) FROM seal"
        f" WHERE shard = {_SHARD} ORDER BY owner",
        shard,
    ).fetchall()


def note(connection: sqlite3.Connection, shard: ShardKey) -> tuple[int, int, int, bytes] | None:
    found: tuple[int, int, int, bytes] | None = connection.execute(
        f"SELECT owner, n, checksum, CAST(body AS BLOB) FROM note WHERE shard = {_SHARD}", shard
    ).fetchone()
    return found


def due_shards(connection: sqlite3.Connection, slot: int, until: int, limit: int) -> list[DueShard]:
    found = connection.execute(
        "SELECT due, tenant, queue, queue_id, number FROM note JOIN shard ON shard.id = note.shard"
        " WHERE slot = ? AND due < ? ORDER BY due LIMIT ?",
        (slot, until, limit),
    )
    return [DueShard(*columns) for columns in found.fetchall()]


def settlements(
    connection: sqlite3.Connection, shard: ShardKey, key: BucketKey
) -> list[tuple[int, int, int, bytes]]:
    return connection.execute(
        f"SELECT owner, n, checksum, CAST(body AS BLOB) FROM settlement WHERE bucket = {_BUCKET}"
        " ORDER BY owner, n",
        (*shard, *key),
    ).fetchall()


def heads(connection: sqlite3.Connection, shard: ShardKey, key: BucketKey) -> list[StoredHead]:
    found = connection.execute(
        f"{SELECT_HEADS} WHERE bucket = {_BUCKET} ORDER BY first",
        (*shard, *key),
    )
    return [StoredHead(*columns) for columns in found.fetchall()]


def segments(
    connection: sqlite3.Connection,
    shard: ShardKey,
    key: BucketKey,
    start: int,
    limit: int,
    after: int | None = None,
) -> list[StoredSegment]:
    """Segments until there are `limit` messages: those behind the one at `after`; without it
    from the one that holds `start` on, or the one before it.

    What a row says of itself may be damaged: whether it reaches to `start` is for the caller.
    """
    bucket = _bucket(connection, shard, key)
    if after is None:
        [first] = connection.execute(
            "SELECT max(first) FROM segment WHERE bucket = ? AND first <= ?", (bucket, start)
        ).fetchone()
        after = start - 1 if first is None else first - 1
    cursor = connection.execute(
        f"{SELECT_SEGMENTS} WHERE bucket = ? AND first > ? ORDER BY first",
        (bucket, after),
    )
    found: list[StoredSegment] = []
    count = 0
    for columns in cursor:
        stored = StoredSegment(*columns)
        found.append(stored)
        if stored.first + stored.count > start:
            count += stored.count
            if count >= limit:
                break
    cursor.close()
    return found


def segments_of(
    connection: sqlite3.Connection, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
) -> list[StoredSegment]:
    """The segments that hold these seqs, and perhaps some that don't."""
    bucket = _bucket(connection, shard, key)
    found: list[StoredSegment] = []
    end = -1
    for seq in sorted(seqs):
        if seq < end:
            continue
        columns = connection.execute(
            f"{SELECT_SEGMENTS} WHERE bucket = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            (bucket, seq),
        ).fetchone()
        if columns is not None and not (found and found[-1].first == columns[0]):
            stored = StoredSegment(*columns)
            end = stored.first + stored.count
            found.append(stored)
    return found


def due(
    connection: sqlite3.Connection, shard: ShardKey, start: int, end: int, limit: int
) -> list[Due]:
    """What dropped buckets left in the index doesn't count."""
    found = connection.execute(
        "SELECT due, lane, epoch, start, seq FROM schedule"
        f" WHERE shard = {_SHARD} AND due >= ? AND due < ?"
        " AND EXISTS (SELECT 1 FROM bucket WHERE bucket.id = schedule.bucket)"
        " ORDER BY due, lane, epoch, start, seq LIMIT ?",
        (*shard, start, end, limit),
    )
    return [
        Due(at, lane, BucketKey(lane, epoch, begin), seq)
        for at, lane, epoch, begin, seq in found.fetchall()
    ]


def _bucket(connection: sqlite3.Connection, shard: ShardKey, key: BucketKey) -> int | None:
    number: int | None = connection.execute(f"SELECT {_BUCKET}", (*shard, *key)).fetchone()[0]
    return number
