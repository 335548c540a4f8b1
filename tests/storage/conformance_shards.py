"""Claims, buckets, segments, the schedule index."""

from collections.abc import Awaitable, Callable

import msgspec

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend, Due
from pushlane_storage.message import Message, size_of
from pushlane_storage.outcome import append
from pushlane_storage.segment import DedupMark, Segment, SegmentHead
from tests.storage.samples import (
    FULL_MESSAGE,
    LANE,
    START,
    Owner,
    claimed_all,
    message,
    messages,
    seqs_of,
    unique,
)

Reopen = Callable[[], Awaitable[Backend]]
LATER = START + 600_000
SLOT = 255
EVER = 1 << 62


class ShardConformance:
    # Owners

    async def test_a_newer_owner_reads_and_settles_what_older_ones_stored(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        old = await owner.append(0, messages(2))
        store = await reopen()
        [newer] = await claimed_all(store, owner.shard)
        assert newer.epoch > owner.epoch
        new = await newer.append(0, messages(1))
        rows = await newer.settle(0, old.bucket, new.bucket, acked=[(old.first, old.first)])
        assert [row.key for row in (await store.outline(owner.shard)).buckets] == [
            old.bucket,
            new.bucket,
        ]
        assert await store.segments(owner.shard, old.bucket, 0, 10) == [old]
        assert await store.segments(owner.shard, new.bucket, 0, 10) == [new]
        assert await store.settlements(owner.shard, old.bucket) == [rows[0]]

    # Segments

    async def test_every_field_of_a_message_comes_back(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        for field in Message.__struct_fields__[2:]:
            assert getattr(FULL_MESSAGE, field) != getattr(message(), field), field
        content = [FULL_MESSAGE, message(), Message(b"", 0, headers={}, key="", event_at=0)]
        segment = await owner.append(0, content)
        store = await reopen()
        assert await store.segments(owner.shard, segment.bucket, segment.first, 10) == [segment]
        found = await store.messages(owner.shard, segment.bucket, [segment.first])
        assert found == {segment.first: FULL_MESSAGE}

    async def test_big_and_empty_bodies(self, store: Backend, owner: Owner) -> None:
        big = bytes(range(256)) * 4096
        segment = await owner.append(0, [Message(b"", 0), Message(big, 1), Message(b"\0", 2)])
        [found] = await store.segments(owner.shard, segment.bucket, 0, 1)
        assert [one.body for one in found.messages] == [b"", big, b"\0"]

    async def test_segments_come_in_order_until_the_limit_is_reached(
        self, store: Backend, owner: Owner
    ) -> None:
        for counter in (0, 3, 6, 9):
            await owner.append(counter, messages(3))
        key, seq = owner.bucket(), owner.seq

        async def read(start: int, limit: int) -> list[int]:
            return seqs_of(await store.segments(owner.shard, key, start, limit))

        assert await read(0, 100) == [seq(counter) for counter in range(12)]
        assert await read(seq(0), 3) == [seq(counter) for counter in range(3)]
        assert await read(seq(0), 4) == [seq(counter) for counter in range(6)]
        assert await read(seq(0), 0) == [seq(counter) for counter in range(3)]
        assert await read(seq(3), 1) == [seq(counter) for counter in range(3, 6)]
        assert await read(seq(5), 1) == [seq(counter) for counter in range(3, 6)]
        assert await read(seq(11), 9) == [seq(counter) for counter in range(9, 12)]
        assert await read(seq(12), 9) == []

    async def test_reads_go_over_holes(self, store: Backend, owner: Owner) -> None:
        await owner.append(0, messages(2))
        await owner.append(7, messages(2))
        key, seq = owner.bucket(), owner.seq
        found = await store.segments(owner.shard, key, seq(2), 10)
        assert seqs_of(found) == [seq(7), seq(8)]
        some = await store.messages(owner.shard, key, [seq(8), seq(3), seq(0), seq(9), seq(6)])
        assert some == {seq(0): message(0), seq(8): message(1)}
        assert await store.messages(owner.shard, key, []) == {}

    async def test_flushes_that_overlap_may_land_in_any_order(
        self, store: Backend, owner: Owner
    ) -> None:
        late = owner.segment(2, messages(2))
        await append(store, owner.shard, late, None)
        assert (await store.outline(owner.shard)).buckets == []
        first = await owner.append(0, messages(2))
        assert [row.key for row in (await store.outline(owner.shard)).buckets] == [first.bucket]
        assert await store.segments(owner.shard, first.bucket, 0, 10) == [first, late]

    async def test_the_same_segment_again_is_stored_once(
        self, store: Backend, owner: Owner
    ) -> None:
        first = await owner.append(0, [FULL_MESSAGE, message(1)])
        second = await owner.append(2, messages(2, not_before=9))
        await owner.append(2, messages(2, not_before=9))
        await owner.append(0, [FULL_MESSAGE, message(1)])
        assert await store.segments(owner.shard, first.bucket, 0, 10) == [first, second]
        assert len(await store.due(owner.shard, 0, EVER, 10)) == 3

    async def test_heads_carry_the_marks_and_no_bodies(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        both = message(1, dedup="d", key="k", producer="p", producer_seq=7)
        later = await owner.append(3, messages(2))
        first = await owner.append(0, [message(9), both, message(2, producer="q")])
        store = await reopen()
        marks = [
            DedupMark(owner.seq(1), both.published_at, "k", "d", "p", 7),
            DedupMark(owner.seq(2), START + 2, producer="q"),
        ]
        assert await store.heads(owner.shard, owner.bucket()) == [
            SegmentHead(owner.seq(0), 3, sum(map(size_of, first.messages)), START + 9, marks),
            SegmentHead(owner.seq(3), 2, sum(map(size_of, later.messages)), START + 1, []),
        ]

    async def test_shards_lanes_and_buckets_do_not_see_each_other(
        self, store: Backend, owner: Owner
    ) -> None:
        name = unique("queue")
        shards = [ShardKey(name, 0), ShardKey(name, 1), ShardKey(name + "x", 0)]
        stored: list[tuple[Owner, Segment]] = []
        for one in await claimed_all(store, *shards):
            for lane in (0, 9):
                for start in (START, LATER):
                    text = message(len(stored), not_before=5 + len(stored))
                    stored.append((one, await one.append(0, [text], lane, start)))
        for one, segment in stored:
            assert await store.segments(one.shard, segment.bucket, 0, 100) == [segment]
            found = await store.messages(one.shard, segment.bucket, [segment.first])
            assert found == {segment.first: segment.messages[0]}
            assert len((await store.outline(one.shard)).buckets) == 4
            assert len(await store.due(one.shard, 0, EVER, 100)) == 4
        assert (await store.outline(owner.shard)).buckets == []

    # Buckets

    async def test_a_bucket_row_is_there_with_its_first_segment(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        keys = [owner.bucket(9, START), owner.bucket(0, LATER), owner.bucket(0, START)]
        for key in keys:
            await owner.append(0, messages(1), key.lane, key.start)
        store = await reopen()
        rows = (await store.outline(owner.shard)).buckets
        assert rows == [Bucket(key, owner.seq(0)) for key in sorted(keys)]
        assert all(isinstance(row.key, BucketKey) for row in rows)

    async def test_a_closed_bucket_shows_its_counts(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        segment = await owner.append(0, messages(2))
        closed = Bucket(
            segment.bucket, segment.first, closed=True, count=2, size=1 << 40, last_at=LATER
        )
        await store.mark_bucket(owner.shard, closed)
        await store.mark_bucket(owner.shard, closed)
        assert (await store.outline(owner.shard)).buckets == [closed]
        drained = msgspec.structs.replace(closed, drained=True)
        await store.mark_bucket(owner.shard, drained)
        store = await reopen()
        assert (await store.outline(owner.shard)).buckets == [drained]

    async def test_flags_never_go_back(self, store: Backend, owner: Owner) -> None:
        segment = await owner.append(0, messages(2))
        opened = Bucket(segment.bucket, segment.first)
        drained = Bucket(segment.bucket, segment.first, True, True, 2, 100, LATER)
        await store.mark_bucket(owner.shard, drained)
        await store.mark_bucket(owner.shard, opened)
        assert (await store.outline(owner.shard)).buckets == [drained]
        await append(store, owner.shard, segment, opened)
        assert (await store.outline(owner.shard)).buckets == [drained]
        await store.mark_bucket(owner.shard, msgspec.structs.replace(drained, drained=False))
        assert (await store.outline(owner.shard)).buckets == [drained]

    async def test_a_dropped_bucket_leaves_nothing(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        gone = await owner.append(0, messages(2, not_before=7))
        kept = await owner.append(0, messages(2, not_before=7), LANE, LATER)
        await owner.settle(0, gone.bucket, kept.bucket)
        assert len(await store.due(owner.shard, 0, EVER, 10)) == 4
        await owner.drain(gone.bucket)
        for _ in range(2):
            await store.drop(owner.shard, gone.bucket)
        await owner.drain(gone.bucket)  # a mark that comes late doesn't bring it back
        store = await reopen()
        assert await store.heads(owner.shard, gone.bucket) == []
        assert await store.segments(owner.shard, gone.bucket, 0, 10) == []
        assert await store.messages(owner.shard, gone.bucket, [gone.first]) == {}
        assert await store.settlements(owner.shard, gone.bucket) == []
        assert [row.key for row in (await store.outline(owner.shard)).buckets] == [kept.bucket]
        assert await store.segments(owner.shard, kept.bucket, 0, 10) == [kept]
        assert len(await store.settlements(owner.shard, kept.bucket)) == 1
        dues = await store.due(owner.shard, 0, EVER, 10)
        assert [entry.bucket for entry in dues] == [kept.bucket] * 2

    async def test_a_bucket_without_schedule_is_dropped_alone(
        self, store: Backend, owner: Owner
    ) -> None:
        plain = await owner.append(0, messages(1))
        await owner.append(0, messages(1, not_before=7), LANE, LATER)
        assert len(await store.due(owner.shard, 0, EVER, 10)) == 1
        await owner.drain(plain.bucket)
        await store.drop(owner.shard, plain.bucket)
        assert len(await store.due(owner.shard, 0, EVER, 10)) == 1

    async def test_dropping_what_was_never_there(self, store: Backend, owner: Owner) -> None:
        await store.drop(owner.shard, owner.bucket())
        assert (await store.outline(owner.shard)).buckets == []

    async def test_purges_that_a_later_one_covers_are_dropped(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        kept = await owner.append(0, messages(2))
        for n in range(4):
            await owner.settle(n, CONTROL, kept.bucket)
        for _ in range(2):
            await store.drop(owner.shard, CONTROL, [(owner.epoch, 0), (owner.epoch, 2)])
        await store.drop(owner.shard, CONTROL, [(owner.epoch, 99)])
        store = await reopen()
        assert [row.n for row in await store.settlements(owner.shard, CONTROL)] == [1, 3]
        assert [row.n for row in await store.settlements(owner.shard, kept.bucket)] == [0, 1, 2, 3]

    async def test_dropping_purges_where_there_were_none(
        self, store: Backend, owner: Owner
    ) -> None:
        await store.drop(owner.shard, CONTROL, [(owner.epoch, 0)])
        assert await store.settlements(owner.shard, CONTROL) == []

    # The schedule index

    async def test_what_must_wait_is_in_the_schedule(
        self, store: Backend, reopen: Reopen, owner: Owner
    ) -> None:
        segment = await owner.append(0, [message(), message(not_before=LATER), message()])
        store = await reopen()
        entry = Due(LATER, LANE, segment.bucket, owner.seq(1))
        found = await store.due(owner.shard, 0, EVER, 10)
        assert found == [entry]
        assert isinstance(found[0].bucket, BucketKey)

    async def test_the_schedule_is_read_by_windows(self, store: Backend, owner: Owner) -> None:
        times = [30, 10, 20, 10, LATER, 40]
        await owner.append(0, [message(not_before=time) for time in times])

        async def read(start: int, end: int, limit: int = 100) -> list[tuple[int, int]]:
            found = await store.due(owner.shard, start, end, limit)
            return [(entry.due, entry.seq - owner.seq(0)) for entry in found]

        assert await read(0, 10) == []
        assert await read(0, 11) == [(10, 1), (10, 3)]
        assert await read(10, 30) == [(10, 1), (10, 3), (20, 2)]
        assert await read(11, 41) == [(20, 2), (30, 0), (40, 5)]
        assert await read(0, EVER, 2) == [(10, 1), (10, 3)]
        assert await read(41, EVER) == [(LATER, 4)]
        assert await read(20, 20) == []

    async def test_the_schedule_goes_over_lanes_and_buckets(
        self, store: Backend, owner: Owner
    ) -> None:
        last = await owner.append(0, [message(not_before=9)], 9, LATER)
        first = await owner.append(0, [message(not_before=9)], 1, LATER)
        assert len(await store.due(owner.shard, 0, EVER, 10)) == 2
        early = await owner.append(0, [message(not_before=8)], 9, START)
        expected = [early, first, last]
        found = await store.due(owner.shard, 0, EVER, 10)
        assert [entry.bucket for entry in found] == [segment.bucket for segment in expected]
        assert [entry.lane for entry in found] == [9, 1, 9]

    async def test_a_shard_that_stored_nothing_reads_empty(self, store: Backend) -> None:
        shard, key = ShardKey(unique("queue"), 3), BucketKey(LANE, 1, START)
        assert (await store.outline(shard)).buckets == []
        assert await store.heads(shard, key) == []
        assert await store.segments(shard, key, 0, 10) == []
        assert await store.messages(shard, key, [0, 1]) == {}
        assert await store.settlements(shard, key) == []
        assert (await store.outline(shard)).seals == []
        assert await store.due(shard, 0, EVER, 10) == []
