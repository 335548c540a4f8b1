"""What became of a bucket's messages: the settlement log, folded.

The rows of a shard come together in one place, and there the code of a new owner judges them
(`pushlane_storage.seal`): what lies beyond a seal, or in a flush that was cut off, does not
exist. Nothing of this is large: of segments only their places are looked at, and only in buckets
that are not closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pushlane_spark import frames
from pushlane_spark.frames import BUCKET, SHARD, Batches, batched, rows_of
from pushlane_spark.source import Source
from pushlane_storage.bucket import Bucket, BucketKey
from pushlane_storage.packing import unpack_seal, unpack_settlement
from pushlane_storage.seal import ShardRows, fold_shard
from pushlane_storage.segment import DamagedSegment, SegmentHead, StoredSegment
from pushlane_storage.settlement import BucketState

_HEADS = frames.struct(frames.BUCKET_KEY, first=frames.LONG, count=frames.LONG)
_BATCH = 64
"""States that go back to Spark together: one may have thousands of ranges."""
MOST_AT_HAND = 1_000_000
"""Buckets and their ranges that every machine gets a copy of: some ten megabytes."""
_KIND = "bucket", "seal", "settlement", "head"


def read_states(source: Source, buckets: DataFrame) -> DataFrame:
    """`STATES` of these buckets. All buckets of a shard must be among them."""
    cut_off = buckets.where(~F.col("closed"))
    heads = source.segments(cut_off).mapInArrow(_heads, _HEADS)
    parts = [buckets, source.seals(buckets), source.settlements(buckets), heads]
    rows = _together(parts).repartition(*SHARD).sortWithinPartitions(*SHARD)
    return rows.mapInArrow(_fold, frames.STATES)


def at_hand(states: DataFrame) -> DataFrame:
    """States that were read, marked to be sent to wherever segments are, as long as they are small:
    else segments, with all their bodies, would go to where the states are."""
    lists = [F.coalesce(F.size(name), F.lit(0)) for name in ("acked", "gone", "voids", "leaving")]
    found = states.select(F.sum(sum(lists, F.lit(1))).alias("entries")).first()
    assert found is not None
    return F.broadcast(states) if (found.entries or 0) <= MOST_AT_HAND else states


def _together(parts: Iterable[DataFrame]) -> DataFrame:
    """Rows of several kinds in one frame; what a kind doesn't have is null."""
    tagged = [part.withColumn("kind", F.lit(kind)) for kind, part in zip(_KIND, parts, strict=True)]
    found, *others = tagged
    for other in others:
        found = found.unionByName(other, allowMissingColumns=True)
    return found


def _heads(batches: Batches) -> Batches:
    """Where the segments of buckets that were cut off stand."""

    def places() -> Iterator[dict[str, Any]]:
        for row in rows_of(batches):
            head = _head(stored_segment(row), bucket_key(row))
            yield {**{name: row[name] for name in BUCKET}, "first": head.first, "count": head.count}

    return batched(places(), _HEADS, 1_000)


def _head(stored: StoredSegment, key: BucketKey) -> SegmentHead:
    try:
        return stored.unpack()
    except DamagedSegment:
        return stored.rebuild_head(key)


def bucket_key(row: dict[str, Any]) -> BucketKey:
    return BucketKey(row["lane"], row["epoch"], row["start"])


def stored_segment(row: dict[str, Any]) -> StoredSegment:
    return StoredSegment(*(row[name] for name in StoredSegment.__struct_fields__))


def _fold(batches: Batches) -> Batches:
    def states() -> Iterator[dict[str, Any]]:
        for shard, rows in groupby(rows_of(batches), lambda row: (row["queue_id"], row["shard"])):
            for bucket, state in fold_shard(_shard_rows(rows)):
                yield {**dict(zip(SHARD, shard, strict=True)), **_state(bucket, state)}

    return batched(states(), frames.STATES, _BATCH)


def _shard_rows(found: Iterable[dict[str, Any]]) -> ShardRows:
    rows = ShardRows([], [], {}, {})
    for row in found:
        if row["kind"] == "seal":
            rows.seals.append(unpack_seal(row["owner"], row["checksum"], row["body"]))
            continue
        key = bucket_key(row)
        if row["kind"] == "bucket":
            marks = row["closed"], row["drained"]
            rows.buckets.append(Bucket(key, row["first"], *marks, row["count"], row["size"]))
        elif row["kind"] == "settlement":
            place = row["owner"], row["n"], row["checksum"]
            settlement = unpack_settlement(key, *place, row["body"])
            rows.settlements.setdefault(key, []).append(settlement)
        else:
            head = SegmentHead(row["first"], row["count"], 0, 0, [])
            rows.heads.setdefault(key, []).append(head)
    for heads in rows.heads.values():
        heads.sort(key=lambda head: head.first)
    return rows


def _state(bucket: Bucket, state: BucketState) -> dict[str, Any]:
    folded = state.checkpoint()
    return {
        **bucket.key._asdict(),
        "bucket_first": bucket.first,
        "bucket_end": bucket.first + bucket.count,
        "closed": bucket.closed,
        "drained": bucket.drained,
        "acked": [{"low": low, "high": high} for low, high in folded.acked],
        "gone": [msgspec.structs.asdict(gone) for gone in folded.gone],
        "voids": [_without(void, "fence") for void in folded.voids],
        "leaving": [_without(leaving, "at") for leaving in folded.leaving],
    }


def _without(row: msgspec.Struct, name: str) -> dict[str, Any]:
    return {field: getattr(row, field) for field in row.__struct_fields__ if field != name}
