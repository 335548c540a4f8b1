"""Every back end against the model: random writes, reads and restarts."""

from typing import TypeVar

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend, QueueExists, QueueMissing, VersionConflict
from pushlane_storage.message import Message
from pushlane_storage.outcome import append, settle
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment, head_of
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.usage import Usage, UsageKey
from tests.portal import Portal
from tests.storage.backends import BACKENDS, Factory, Place
from tests.storage.model import Model, ShardModel
from tests.storage.samples import unique

T = TypeVar("T")

EVER = 1 << 62
picks = st.integers(0, 1_000)
names = st.sampled_from(["a", "a.dead", "b"])
configs = st.builds(QueueConfig, lease_ms=st.integers(1, 3))
small = st.integers(0, 8)
dues = st.sampled_from([0, 0, 10, 20, 30])
ids = st.none() | st.just("d")
contents = st.lists(
    st.builds(Message, st.binary(max_size=3), small, not_before=dues, dedup=ids, key=ids),
    min_size=1,
    max_size=3,
)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, factory: Factory) -> None:
        super().__init__()
        self.portal: Portal[Place] = Portal(factory)
        self.model = Model()
        self.tenant = unique("tenant")
        self.seen: list[QueueRow] = []
        self.epochs: dict[int, int] = {}
        self.greatest: dict[int, int] = {}

    def teardown(self) -> None:
        try:
            self.compare_all()
        finally:
            self.portal.close()

    @property
    def store(self) -> Backend:
        backend: Place = self.portal.held
        return backend.store

    # Queues

    @initialize()
    def first_queue(self) -> None:
        self.create("a", QueueConfig())

    @rule(name=names, config=configs)
    def create(self, name: str, config: QueueConfig) -> None:
        if name in self.model.queues:
            with pytest.raises(QueueExists):
                self.portal.call(self.store.catalog.create, self.tenant, name, config)
            return
        row = self.portal.call(self.store.catalog.create, self.tenant, name, config)
        assert row.id not in {known.id for known in self.seen}
        assert row == QueueRow(self.tenant, name, row.id, config, 1)
        self.saw(row)

    @rule(pick=picks, config=configs)
    def update(self, pick: int, config: QueueConfig) -> None:
        row = one_of(self.seen, pick)
        current = self.model.queues.get(row.name)
        if current is None or (current.id, current.version) != (row.id, row.version):
            with pytest.raises(QueueMissing if current is None else VersionConflict):
                self.portal.call(self.store.catalog.update, row, config)
            return
        updated = self.portal.call(self.store.catalog.update, row, config)
        assert updated == msgspec.structs.replace(row, config=config, version=row.version + 1)
        self.saw(updated)

    @rule(pick=picks)
    def mark_deleting(self, pick: int) -> None:
        row = one_of(self.seen, pick)
        current = self.model.queues.get(row.name)
        if current is not None and current.id == row.id and current.deleting:
            assert self.portal.call(self.store.catalog.mark_deleting, row) == current
        elif current is None or (current.id, current.version) != (row.id, row.version):
            with pytest.raises(QueueMissing if current is None else VersionConflict):
                self.portal.call(self.store.catalog.mark_deleting, row)
        else:
            marked = self.portal.call(self.store.catalog.mark_deleting, row)
            assert marked == msgspec.structs.replace(row, deleting=True, version=row.version + 1)
            self.saw(marked)

    @precondition(lambda self: any(row.deleting for row in self.seen))
    @rule(pick=picks)
    def remove(self, pick: int) -> None:
        row = one_of([row for row in self.seen if row.deleting], pick)
        self.portal.call(self.store.catalog.remove, row)
        self.model.remove(row)

    def saw(self, row: QueueRow) -> None:
        self.seen.append(row)
        self.model.queues[row.name] = row
        for shard in range(2):
            self.model.shards.setdefault(ShardKey(row.id, shard), ShardModel())

    # Shards

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks)
    def claim(self, pick: int) -> None:
        shard, _ = self.shard(pick)
        slot = slot_of(shard)
        epoch = self.portal.call(self.store.ownership.claim, slot, "node")
        assert epoch > self.greatest.get(slot, 0)
        self.epochs[slot] = self.greatest[slot] = epoch

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, lane=st.sampled_from([1, 4]), content=contents)
    def append(self, pick: int, lane: int, content: list[Message]) -> None:
        shard, model = self.shard(pick)
        epoch = self.epoch(pick)
        first = make_seq(epoch, model.take(lane, epoch, len(content)))
        bucket = model.open_bucket(lane, epoch)
        opens = None
        if bucket is None:
            # Dropped buckets leave no trace in the model: seqs grow, so they serve as times.
            bucket = opens = Bucket(BucketKey(lane, epoch, first), first)
        segment = Segment(bucket.key, first, content)
        self.portal.call(append, self.store, shard, segment, opens)
        model.rows[bucket.key] = bucket
        model.segments[bucket.key, first] = segment

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, which=picks, opens=st.booleans())
    def append_again(self, pick: int, which: int, opens: bool) -> None:
        shard, model = self.shard(pick)
        epoch = self.epoch(pick)
        own = [segment for segment in model.segments.values() if segment.bucket.epoch == epoch]
        if own:
            segment = one_of(own, which)
            row = Bucket(segment.bucket, model.rows[segment.bucket].first) if opens else None
            self.portal.call(append, self.store, shard, segment, row)

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, which=st.sets(picks, min_size=1, max_size=3), span=st.tuples(small, small))
    def settle(self, pick: int, which: set[int], span: tuple[int, int]) -> None:
        shard, model = self.shard(pick)
        epoch = self.epoch(pick)
        keys = sorted({one_of([CONTROL, *model.rows], number) for number in which})
        n = model.next_flush(epoch)
        rows = [Settlement(key, epoch, n, keys, acked=[span]) for key in keys]
        for _ in range(1 + n % 2):
            self.portal.call(settle, self.store, shard, rows)
        model.settlements.update({(row.bucket, row.owner, row.n): row for row in rows})

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, which=picks, drained=st.booleans(), old=st.booleans())
    def mark(self, pick: int, which: int, drained: bool, old: bool) -> None:
        """Close and perhaps drain a bucket; then perhaps write the row that it once had."""
        shard, model = self.shard(pick)
        if not model.rows:
            return
        key = one_of(list(model.rows), which)
        row = model.rows[key]
        closed = row if row.closed else model.close(key)
        marked = msgspec.structs.replace(closed, drained=drained)
        self.portal.call(self.store.mark_bucket, shard, marked)
        if old:
            self.portal.call(self.store.mark_bucket, shard, Bucket(key, row.first))
        model.rows[key] = msgspec.structs.replace(closed, drained=drained or row.drained)

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, which=picks)
    def drop(self, pick: int, which: int) -> None:
        shard, model = self.shard(pick)
        drained = [key for key, row in model.rows.items() if row.drained]
        key = one_of([*drained, BucketKey(9, 1, 1)], which)
        self.portal.call(self.store.drop, shard, key)
        model.drop(key)

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, counter=small)
    def seal(self, pick: int, counter: int) -> None:
        shard, model = self.shard(pick)
        epoch = self.epoch(pick)
        seal = model.seals.setdefault(epoch, Seal(epoch, [(4, 0, counter)], [(0, counter)]))
        self.portal.call(self.store.write_seal, shard, seal)

    # Usage, restarts

    @rule(queue=names, minute=small, versions=st.lists(small, unique=True, max_size=2))
    def put_usage(self, queue: str, minute: int, versions: list[int]) -> None:
        key = UsageKey(self.tenant, queue, minute, "node")
        # Content follows from the version, as with every writer of ours.
        rows = [Usage(key, {"acked": one, f"dead.{one}": 1}, one) for one in sorted(versions)]
        self.portal.call(self.store.usage.put, rows)
        for row in rows:
            self.model.put_usage(row)
        assert self.portal.call(self.store.usage.find, key) == self.model.usage.get(key)

    @rule()
    def reopen(self) -> None:
        self.portal.call(self.portal.held.reopen)
        self.epochs.clear()  # a store that was opened again may have fenced every claim

    # Reads

    @rule(after=st.sampled_from(["", "a", "a.", "b"]), limit=st.integers(1, 3))
    def list_queues(self, after: str, limit: int) -> None:
        found = self.portal.call(self.store.catalog.list, self.tenant, after, limit)
        assert found == self.model.list(after, limit)

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, which=picks, start=small, limit=small)
    def read_bucket(self, pick: int, which: int, start: int, limit: int) -> None:
        shard, model = self.shard(pick)
        key = one_of([*model.rows, BucketKey(4, 1, 1)], which)
        seq = make_seq(key.epoch, start)
        found = self.portal.call(self.store.segments, shard, key, seq, limit)
        assert found == model.segments_read(key, seq, limit)
        seqs = [seq + 1, seq, seq + 7]
        some = self.portal.call(self.store.messages, shard, key, seqs)
        assert some == model.messages_read(key, seqs)

    @precondition(lambda self: self.model.shards)
    @rule(pick=picks, start=dues, end=dues, limit=st.integers(1, 3))
    def read_due(self, pick: int, start: int, end: int, limit: int) -> None:
        shard, model = self.shard(pick)
        found = self.portal.call(self.store.due, shard, start, end, limit)
        assert found == model.due_read(start, end, limit)

    @rule(first=small, last=small, queue=st.one_of(st.none(), names))
    def read_usage(self, first: int, last: int, queue: str | None = None) -> None:
        found = self.portal.call(self.store.usage.read, self.tenant, first, last, queue)
        keys = sorted(key for key in self.model.usage if first <= key.minute <= last)
        assert found == [self.model.usage[key] for key in keys if queue in (None, key.queue)]

    def compare_all(self) -> None:
        self.list_queues("", 1_000)
        for name in ("a", "a.dead", "b"):
            found = self.portal.call(self.store.catalog.read, self.tenant, name)
            assert found == self.model.queues.get(name)
        for row in self.seen:
            for number in range(2):
                self.compare(ShardKey(row.id, number))

    def compare(self, shard: ShardKey) -> None:
        model = self.model.shards.get(shard, ShardModel())
        call, store = self.portal.call, self.store
        outline = call(store.outline, shard)
        assert outline.buckets == model.buckets_read()
        assert outline.seals == [model.seals[owner] for owner in sorted(model.seals)[-1:]]
        assert call(store.due, shard, 0, EVER, 1_000) == model.due_read(0, EVER, 1_000)
        for key in [*model.rows, CONTROL]:
            segments = model.segments_read(key, 0, 1_000)
            assert call(store.segments, shard, key, 0, 1_000) == segments
            assert call(store.heads, shard, key) == [head_of(segment) for segment in segments]
            assert call(store.settlements, shard, key) == model.settlements_read(key)

    def shard(self, pick: int) -> tuple[ShardKey, ShardModel]:
        return one_of(list(self.model.shards.items()), pick)

    def epoch(self, pick: int) -> int:
        """The epoch of the shard's owner; after a restart it is claimed first."""
        slot = slot_of(self.shard(pick)[0])
        if slot not in self.epochs:
            self.claim(pick)
        return self.epochs[slot]


EXAMPLES = {"cassandra": 30, "cassandra_ring": 15}
"""Fewer where each takes long: they show that a real ring does what the model of one does, and
tests/storage/cassandra/test_model.py looks for the rest there."""


def one_of(things: list[T], pick: int) -> T:
    return things[pick % len(things)]


@pytest.mark.parametrize("factory", BACKENDS, ids=lambda factory: factory.__name__)
def test_a_store_does_what_its_model_does(factory: Factory) -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(factory)

    examples = EXAMPLES.get(factory.__name__, 100)
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None)
    )
