"""What is stored, as columns, and back: the same bytes and checksums as in the embedded store."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.cassandra import tables
from pushlane_storage.cassandra.ring import Row
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.note import Note
from pushlane_storage.packing import (
    checksum_of,
    pack_note,
    pack_seal,
    pack_settlement,
    unpack_note,
    unpack_seal,
    unpack_settlement,
)
from pushlane_storage.seal import Seal
from pushlane_storage.segment import PackedSegment, StoredHead, StoredSegment, head_checksum
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of

_encode = msgspec.msgpack.Encoder().encode
_summary = msgspec.msgpack.Decoder(MarkSummary)

HEAD = ("first", "count", "size", "last_at", "format", "head", "marks")
"""The columns of a segment that recovery reads."""


def segment_row(shard: ShardKey, bucket: BucketKey, packed: PackedSegment) -> Row:
    return {
        **dict(zip(tables.SEGMENTS.partition, (*shard, *bucket), strict=True)),
        "first": packed.first,
        "count": packed.count,
        "size": packed.size,
        "last_at": packed.last_at,
        "format": packed.format,
        "checksum": packed.checksum,
        "head": head_checksum(packed),
        "marks": packed.marks,
        "payload": packed.payload,
    }


def stored_row(shard: ShardKey, bucket: BucketKey, stored: StoredSegment) -> Row:
    """A segment as it stood in another store, whole or damaged."""
    names = (*HEAD, "checksum", "payload")
    values = (getattr(stored, "body" if name == "payload" else name) for name in names)
    return {
        **dict(zip(tables.SEGMENTS.partition, (*shard, *bucket), strict=True)),
        **dict(zip(names, values, strict=True)),
    }


def stored_head(row: Row) -> StoredHead:
    return StoredHead(*(row[name] for name in HEAD))


def stored_segment(row: Row) -> StoredSegment:
    return StoredSegment(*(row[name] for name in (*HEAD, "checksum", "payload")))


def settlement_row(shard: ShardKey, row: Settlement) -> Row:
    body = pack_settlement(row)
    key = (*shard, *row.bucket, row.owner, row.n)
    checksum = checksum_of(body, row.owner, row.n)
    return tables.keyed(tables.SETTLEMENTS, key, checksum=checksum, body=body)


def settlement_of(bucket: BucketKey, row: Row) -> Settlement:
    return unpack_settlement(bucket, row["owner"], row["n"], row["checksum"], row["body"])


def seal_row(shard: ShardKey, seal: Seal) -> Row:
    body = pack_seal(seal)
    checksum = checksum_of(body, seal.owner)
    return tables.keyed(tables.SEALS, (*shard, seal.owner), checksum=checksum, body=body)


def seal_of(row: Row) -> Seal:
    return unpack_seal(row["owner"], row["checksum"], row["body"])


def note_row(shard: ShardKey, note: Note) -> Row:
    body = pack_note(note)
    return tables.keyed(
        tables.NOTES, (slot_of(shard), *shard), due=note.due, tenant=note.tenant, queue=note.queue,
        owner=note.owner, n=note.n, checksum=checksum_of(body, note.owner, note.n), body=body,
    )  # fmt: skip


def note_of(row: Row) -> Note | None:
    if row["body"] is None:  # nobody had any: its queue is being deleted
        return None
    return unpack_note(row["owner"], row["n"], row["checksum"], row["body"])


def opened_row(shard: ShardKey, bucket: Bucket) -> Row:
    return _bucket_row(shard, bucket.key, first=bucket.first)


def marked_row(shard: ShardKey, bucket: Bucket, writer: int) -> Row | None:
    """The columns that a mark sets: only those that are true, so that none goes back."""
    values: dict[str, Any] = {}
    if bucket.closed:
        values["closed"] = _close(bucket, writer)
    if bucket.drained:
        values["drained"] = True
    return _bucket_row(shard, bucket.key, **values) if values else None


def _bucket_row(shard: ShardKey, key: BucketKey, **values: Any) -> Row:
    return tables.keyed(tables.BUCKETS, (*shard, *key), **values)


def _close(bucket: Bucket, writer: int) -> tuple[Any, ...]:
    """One value, so that two owners' are never mixed. The later owner's is the greater one."""
    marks = _encode(bucket.marks)
    numbers = (writer, bucket.count, bucket.size, bucket.last_at)
    return *numbers, marks, _check(bucket.key, bucket.first, numbers, marks)


def _check(key: BucketKey, first: int, numbers: tuple[int, ...], marks: bytes) -> int:
    return zlib.crc32(marks, zlib.crc32(repr((*key, first, *numbers)).encode()))


def bucket_of(row: Row) -> Bucket | None:
    """None: a mark that came after the bucket was dropped, or before it was opened."""
    first = row["first"]
    if first is None:
        return None
    key = BucketKey(row["lane"], row["epoch"], row["start"])
    drained = row["drained"] is True
    if row["closed"] is None:
        return Bucket(key, first, drained=drained)
    try:
        *numbers, marks, checksum = row["closed"]
        if _check(key, first, tuple(numbers), marks) == checksum:
            _, count, size, last_at = numbers
            return Bucket(key, first, True, drained, count, size, last_at, _summary.decode(marks))
    except (msgspec.MsgspecError, TypeError, ValueError):
        pass
    raise StoreDamaged(f"the row of {key} is damaged")
