"""Damaged segments: noted once, kept as they were found, and never delivered.

The rows stay where they are until their bucket is dropped; the copy in the quarantine is for
whoever looks into it afterwards.
"""

import sqlite3

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.damage import Damage
from pushlane_storage.segment import StoredSegment


def note(connection: sqlite3.Connection, damage: Damage, stored: StoredSegment, bound: int) -> None:
    """Keep a damaged segment, unless `bound` are there already or it is one of them."""
    [kept] = connection.execute("SELECT count(*) FROM quarantine").fetchone()
    if kept < bound:
        connection.execute(
            f"INSERT OR IGNORE INTO quarantine VALUES ({', '.join('?' * 16)})",
            (
                *damage.shard,
                *damage.bucket,
                damage.first,
                damage.count,
                damage.reason,
                damage.found_at,
                stored.size,
                stored.last_at,
                stored.format,
                stored.checksum,
                stored.head,
                stored.marks,
                stored.body,
            ),
        )


def read(connection: sqlite3.Connection, shard: ShardKey, bucket: BucketKey) -> list[Damage]:
    found = connection.execute(
        "SELECT first, count, reason, found_at FROM quarantine WHERE queue_id = ? AND shard = ?"
        " AND lane = ? AND epoch = ? AND start = ? ORDER BY first",
        (*shard, *bucket),
    )
    return [Damage(shard, bucket, *columns) for columns in found.fetchall()]
