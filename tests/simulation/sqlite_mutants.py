"""Bugs planted in the rows of the embedded store: on SQLite a named rule must catch each.

Only worlds on SQLite run this code: a bug that is caught here also shows that they really do.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from pushlane_storage import packing
from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.segment import StoredHead, StoredSegment
from pushlane_storage.settlement import Settlement
from pushlane_storage.sqlite import reads, shard_rows
from pushlane_storage.sqlite.places import Places
from pushlane_storage.sqlite.shard_rows import ShardRows
from pushlane_storage.sqlite.space import Garbage
from tests.simulation.mutants import Planter

plant = Planter("sqlite")


@plant("lost", "ack_before_durable")
def heads_skip_the_last_segment() -> list[tuple[Any, str, Any]]:
    heads = reads.heads

    def short(connection: sqlite3.Connection, shard: ShardKey, key: BucketKey) -> list[StoredHead]:
        return heads(connection, shard, key)[:-1]

    return [(reads, "heads", short)]


@plant("transfer", "dead_cause", "lost")
def a_page_skips_a_segment() -> list[tuple[Any, str, Any]]:
    segments = reads.segments

    def gap(*args: Any) -> list[StoredSegment]:
        found = segments(*args)
        return found[:1] + found[2:]

    return [(reads, "segments", gap)]


@plant("grant_after_ack", "confirmed_settle_lost", "ended_twice")
def an_acked_range_is_one_too_short() -> list[tuple[Any, str, Any]]:
    pack = packing.pack_settlement

    def short(row: Settlement) -> bytes:
        acked = [(low, high - 1) for low, high in row.acked if low < high]
        return pack(msgspec.structs.replace(row, acked=acked))

    return [(shard_rows, "pack_settlement", short)]


@plant("lost", "ack_before_durable", seed=3)
def a_drop_takes_older_buckets_along() -> list[tuple[Any, str, Any]]:
    discard = ShardRows._discard

    def greedy(self: ShardRows, which: str, number: int) -> None:
        discard(self, "id <= ?" if which == "id = ?" else which, number)

    return [(ShardRows, "_discard", greedy)]


@plant("audit", "ack_before_durable", "confirmed_settle_lost", seed=3)
def places_outlive_a_rollback() -> list[tuple[Any, str, Any]]:
    return [(Places, "forget", lambda self: None)]


@plant("audit", "dead_cause")
def a_sweep_takes_one_body_too_many() -> list[tuple[Any, str, Any]]:
    segments = Garbage._segments

    def greedy(self: Garbage, bucket: int, size: int) -> int:
        self._connection.execute(
            "DELETE FROM payload WHERE id ="
            " (SELECT min(payload) FROM segment WHERE bucket > ? AND bucket IN"
            " (SELECT id FROM bucket))",
            (bucket,),
        )
        return segments(self, bucket, size)

    return [(Garbage, "_segments", greedy)]


@plant("audit")
def a_drop_leaves_its_rows_behind() -> list[tuple[Any, str, Any]]:
    def forgetful(self: ShardRows, which: str, number: int) -> None:
        self._connection.execute(f"DELETE FROM bucket WHERE {which}", (number,))

    return [(ShardRows, "_discard", forgetful)]
