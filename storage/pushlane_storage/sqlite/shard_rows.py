"""What the writer does to the rows of shards.

An append or settle that comes behind everything its bucket holds (nearly every one does) only
joins what waits to be inserted: that it is new follows from what its place remembers. Others are
looked up first. A call that fails, fails before it wrote anything, so it takes nobody along.

Segments are packed here, in the writer's thread, and not by the task that asks: it is as fast
(measured: the same to 15 % more messages/s), what waits is not in memory twice, and the trio
loop is not held up by a large one.
"""

import sqlite3
from collections.abc import Sequence

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.memory_shard import merge
from pushlane_storage.note import Note
from pushlane_storage.packing import checksum_of, pack_note, pack_seal, pack_settlement
from pushlane_storage.seal import Seal
from pushlane_storage.segment import PackedSegment, Segment, head_checksum, pack
from pushlane_storage.seq import epoch_of
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite.columns import BUCKET_COLUMNS, NO_MARKS, bucket_of, bucket_values
from pushlane_storage.sqlite.places import Place, Places
from pushlane_storage.sqlite.slots import Slots

CHUNKS = (64, 16, 4, 1)
"""Rows of one statement: few different statements, and few of them for any number of rows."""


class Bulk:
    def __init__(self, connection: sqlite3.Connection, table: str, columns: int) -> None:
        self._connection = connection
        self._columns = columns
        self._values: list[object] = []
        row = f"({','.join('?' * columns)})"
        self._statements = {
            rows: f"INSERT INTO {table} VALUES {','.join([row] * rows)}" for rows in CHUNKS
        }

    def add(self, row: tuple[object, ...]) -> None:
        self._values.extend(row)

    def flush(self) -> None:
        values, at = self._values, 0
        for rows in CHUNKS:
            width = rows * self._columns
            while len(values) - at >= width:
                self._connection.execute(self._statements[rows], values[at : at + width])
                at += width
        values.clear()

    def clear(self) -> None:
        self._values.clear()


ROW_BYTES = 512
"""What a row without its blobs adds to the log: a few bytes, or a page that it has for itself."""


class ShardRows:
    def __init__(self, connection: sqlite3.Connection, slots: Slots, places: int) -> None:
        self._connection = connection
        self._slots = slots
        self._segments = Bulk(connection, "segment", 9)
        self._payloads = Bulk(connection, "payload", 2)
        self._marks = Bulk(connection, "mark", 2)
        self._settlements = Bulk(connection, "settlement", 5)
        self._schedule = Bulk(connection, "schedule", 7)
        self._bulks = (
            self._payloads,
            self._marks,
            self._segments,
            self._settlements,
            self._schedule,
        )
        self._places = Places(connection, self.flush, places)
        [greatest] = connection.execute("SELECT max(id) FROM payload").fetchone()
        self._next_payload = 1 + (greatest or 0)
        self.bytes = 0
        """What was added since the count was last set to 0."""

    def flush(self) -> None:
        for bulk in self._bulks:
            bulk.flush()

    def forget(self) -> None:
        """Everything since the last commit was undone."""
        for bulk in self._bulks:
            bulk.clear()
        self._places.forget()

    # Segments

    def append(self, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None:
        assert segment.messages, "an empty segment"
        assert epoch_of(segment.first) == segment.bucket.epoch, "a seq of another epoch"
        assert opens is None or opens.key == segment.bucket, "a segment opens its own bucket only"
        self._slots.check(shard, segment.bucket.epoch)
        place = self._places.bucket(shard, segment.bucket)
        last = self._places.last(place)
        packed = pack(segment)
        new = packed.first > last or self._is_new(place, packed)
        if opens is not None:
            self._mark(place, opens, opening=True)
        if new:
            self._insert(place, packed)
            self._schedule_delayed(shard, place, segment)
            place.last = max(last, segment.last)

    def _is_new(self, place: Place, packed: PackedSegment) -> bool:
        """Whether a segment that is not the last one is new; if so it must not overlap."""
        self.flush()
        before = self._connection.execute(
            "SELECT first, count, checksum FROM segment WHERE bucket = ? AND first <= ?"
            " ORDER BY first DESC LIMIT 1",
            (place.id, packed.first),
        ).fetchone()
        if before is not None and before[0] == packed.first:
            same = before[1:] == (packed.count, packed.checksum)
            assert same, f"segment {packed.first} again, with other content"
            return False
        after = self._connection.execute(
            "SELECT min(first) FROM segment WHERE bucket = ? AND first > ?",
            (place.id, packed.first),
        ).fetchone()[0]
        assert before is None or before[0] + before[1] <= packed.first, "segments overlap"
        assert after is None or packed.first + packed.count <= after, "segments overlap"
        return True

    def _insert(self, place: Place, packed: PackedSegment) -> None:
        payload, self._next_payload = self._next_payload, self._next_payload + 1
        self._segments.add(
            (
                place.id,
                packed.first,
                packed.count,
                packed.size,
                packed.last_at,
                packed.format,
                packed.checksum,
                head_checksum(packed),
                payload,
            )
        )
        self._payloads.add((payload, packed.payload))
        if packed.marks != NO_MARKS:
            self._marks.add((payload, packed.marks))
        self.bytes += len(packed.marks) + len(packed.payload) + ROW_BYTES

    def _schedule_delayed(self, shard: ShardKey, place: Place, segment: Segment) -> None:
        for index, message in enumerate(segment.messages):
            if message.not_before:
                number, seq = self._places.shard(shard), segment.first + index
                self._schedule.add((number, message.not_before, *segment.bucket, seq, place.id))
                self.bytes += 2 * ROW_BYTES

    # Settlements and seals

    def settle(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        first = rows[0]
        assert {row.bucket for row in rows} == set(first.parts), "a flush is all of its parts"
        for row in rows:
            assert (row.owner, row.n, row.parts) == (first.owner, first.n, first.parts)
        self.settle_rows(shard, rows)

    def settle_rows(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        """Rows of one flush, as far as they are not there yet."""
        first = rows[0]
        self._slots.check(shard, first.owner)
        number = (first.owner, first.n)
        new: list[tuple[Place, bytes]] = []
        for row in rows:
            place = self._places.bucket(shard, row.bucket)
            body = pack_settlement(row)
            if number > self._places.settled(place) or self._is_unknown(place, number, body):
                new.append((place, body))
        for place, body in new:
            self._settlements.add((place.id, *number, checksum_of(body, *number), body))
            place.settled = max(number, self._places.settled(place))
            self.bytes += len(body) + ROW_BYTES

    def _is_unknown(self, place: Place, number: tuple[int, int], body: bytes) -> bool:
        self.flush()
        found = self._connection.execute(
            "SELECT body FROM settlement WHERE bucket = ? AND owner = ? AND n = ?",
            (place.id, *number),
        ).fetchone()
        assert found in (None, (body,)), f"flush {number} again, with other content"
        return found is None

    def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        self._slots.check(shard, seal.owner)
        key = (self._places.shard(shard), seal.owner)
        body = pack_seal(seal)
        found = self._connection.execute(
            "SELECT body FROM seal WHERE shard = ? AND owner = ?", key
        ).fetchone()
        assert found in (None, (body,)), f"seal {seal.owner} again, with other content"
        if found is None:
            self._connection.execute(
                "INSERT INTO seal VALUES (?, ?, ?, ?)", (*key, checksum_of(body, seal.owner), body)
            )
        self._connection.execute("DELETE FROM seal WHERE shard = ? AND owner < ?", key)

    def write_note(self, shard: ShardKey, note: Note) -> None:
        self._slots.check(shard, note.owner)
        put_note(self._connection, self._places.shard(shard), slot_of(shard), note)

    # Buckets

    def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        place = self._places.find(shard, bucket.key)
        if place is not None:  # else it was dropped: a late mark doesn't bring it back
            self._mark(place, bucket)

    def _mark(self, place: Place, new: Bucket, opening: bool = False) -> None:
        old = self._row(place)
        if old is None and not opening:
            return
        row = new if old is None else merge(old, new)
        if row == old:
            return
        self._connection.execute(
            "UPDATE bucket SET first = ?, closed = ?, drained = ?, count = ?, size = ?,"
            " last_at = ?, checksum = ?, marks = ? WHERE id = ?",
            (*bucket_values(row), place.id),
        )

    def _row(self, place: Place) -> Bucket | None:
        found = self._connection.execute(
            f"SELECT {BUCKET_COLUMNS} FROM bucket WHERE id = ? AND first IS NOT NULL", (place.id,)
        ).fetchone()
        return None if found is None else bucket_of(found)

    def drop_bucket(self, shard: ShardKey, key: BucketKey) -> None:
        place = self._places.find(shard, key)
        if place is None:
            return
        row = self._row(place)
        assert row is None or row.drained, f"{key} is not drained"
        self._places.drop(shard, key)
        self.flush()
        self._discard("id = ?", place.id)

    def drop_settlements(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]]
    ) -> None:
        place = self._places.find(shard, key)
        if place is not None:
            self.flush()
            self._connection.executemany(
                "DELETE FROM settlement WHERE bucket = ? AND owner = ? AND n = ?",
                [(place.id, *flush) for flush in flushes],
            )

    def remove_shards(self, queue_id: str) -> None:
        """Everything that the shards of a queue stored."""
        self.flush()
        found = self._connection.execute("SELECT id FROM shard WHERE queue_id = ?", (queue_id,))
        for (shard,) in found.fetchall():
            self._discard("shard = ?", shard)
            for table in ("seal", "note"):
                self._connection.execute(f"DELETE FROM {table} WHERE shard = ?", (shard,))
            self._connection.execute("DELETE FROM shard WHERE id = ?", (shard,))
        self._places.forget()

    def _discard(self, which: str, number: int) -> None:
        """From here on these buckets are garbage: nobody sees them, and they are swept."""
        self._connection.execute(
            f"INSERT INTO garbage SELECT id FROM bucket WHERE {which}", (number,)
        )
        self._connection.execute(f"DELETE FROM bucket WHERE {which}", (number,))


def put_note(connection: sqlite3.Connection, shard: int, slot: int, note: Note) -> None:
    body = pack_note(note)
    number = (note.owner, note.n)
    connection.execute(
        "INSERT INTO note VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (shard) DO UPDATE SET"
        " due = excluded.due, tenant = excluded.tenant, queue = excluded.queue,"
        " owner = excluded.owner, n = excluded.n, checksum = excluded.checksum,"
        " body = excluded.body WHERE (excluded.owner, excluded.n) > (owner, n)",
        (shard, slot, note.due, note.tenant, note.queue, *number, checksum_of(body, *number), body),
    )
