"""The in-memory store: what the conformance suite doesn't ask of every back end."""

import inspect
from collections.abc import Callable
from random import Random

import pytest
import trio
import trio.testing

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.interface import (
    Backend,
    Catalog,
    Fenced,
    Store,
    StoreError,
    StoreRefused,
    UsageStore,
)
from pushlane_storage.memory import MemoryStore, MemoryTables
from pushlane_storage.ownership import Ownership
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import SLOTS, slot_of
from tests.held import let_go
from tests.storage.samples import message, messages

SHARD = ShardKey("orders", 0)
KEY = BucketKey(4, 1, 0)
FIRST = make_seq(1, 0)
OPENS = Bucket(KEY, FIRST)


def segment(counter: int, count: int = 2, epoch: int = 1) -> Segment:
    return Segment(BucketKey(4, epoch, 0), make_seq(epoch, counter), messages(count))


def flush(n: int, owner: int = 1, **fields: object) -> list[Settlement]:
    return [Settlement(KEY, owner, n, [KEY], **fields)]  # type: ignore[arg-type]


def calls(of: type) -> dict[str, Callable[..., object]]:
    return {
        name: value
        for name, value in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_")
    }


TABLES: dict[type, dict[str, str]] = {
    Store: {name: name for name in calls(Store) if not name.endswith("_soon")},
    Ownership: {"claim": "claim", "next_epoch": "next_epoch"},
    Catalog: {
        "create": "create_queue", "read": "read_queue", "list": "list_queues",
        "update": "update_queue", "mark_deleting": "mark_deleting", "remove": "remove_queue",
    },
    UsageStore: {"put": "put_usage", "find": "find_usage", "read": "usage"},
}  # fmt: skip
"""What each call is named that the tables have."""


@pytest.mark.parametrize(
    ("seam", "name"), [(seam, name) for seam, names in TABLES.items() for name in sorted(names)]
)
def test_the_tables_have_the_calls_of_a_store(seam: type, name: str) -> None:
    found = calls(MemoryTables)[TABLES[seam][name]]
    wanted = calls(seam)[name]
    assert inspect.signature(found, eval_str=True) == inspect.signature(wanted, eval_str=True)
    assert not inspect.iscoroutinefunction(found)


def test_the_tables_have_all_calls_but_those_that_name_nothing_in_them() -> None:
    assert set(calls(Catalog)) == set(TABLES[Catalog])
    assert set(calls(UsageStore)) == set(TABLES[UsageStore])


async def test_every_call_is_a_checkpoint() -> None:
    store: Backend = MemoryStore()
    with trio.testing.assert_checkpoints():
        await store.catalog.read("t", "q")
    with trio.testing.assert_checkpoints():
        await let_go(store)


async def test_a_cancelled_write_changed_nothing() -> None:
    store = MemoryStore()
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.catalog.create("t", "q", QueueConfig())
    assert scope.cancelled_caught
    assert store.tables.read_queue("t", "q") is None


async def test_a_closed_store_takes_no_calls() -> None:
    store = MemoryStore()
    await let_go(store)
    await let_go(store)
    with pytest.raises(AssertionError, match="closed"):
        await store.catalog.read("t", "q")


def test_queue_ids_come_from_the_random_source() -> None:
    tables = MemoryTables(randbytes=Random(1).randbytes)
    ids = [tables.create_queue("t", name, QueueConfig()).id for name in "ab"]
    source = Random(1)
    assert ids == [source.randbytes(16).hex(), source.randbytes(16).hex()]


def test_claims_count_from_one_in_each_slot() -> None:
    tables = MemoryTables()
    assert [tables.claim(7, "a"), tables.claim(7, "b"), tables.claim(8, "a")] == [1, 2, 1]
    with pytest.raises(AssertionError):
        tables.claim(SLOTS, "a")


class TestFencing:
    def test_a_fenced_write_leaves_nothing(self) -> None:
        tables = MemoryTables()
        for node in ("node-1", "node-2"):
            tables.claim(slot_of(SHARD), node)
        with pytest.raises(Fenced, match="node-2 has epoch 2"):
            tables.append(SHARD, segment(0), OPENS)
        with pytest.raises(Fenced):
            tables.settle(SHARD, flush(0))
        with pytest.raises(Fenced):
            tables.write_seal(SHARD, Seal(1, [], []))
        assert tables.outline(SHARD).buckets == []
        assert tables.settlements(SHARD, KEY) == []
        assert tables.outline(SHARD).seals == []

    def test_the_other_slots_are_free(self) -> None:
        tables = MemoryTables()
        for slot in set(range(SLOTS)) - {slot_of(SHARD)}:
            for _ in range(2):
                tables.claim(slot, "node-2")
        tables.append(SHARD, segment(0), OPENS)
        assert tables.outline(SHARD).buckets == [OPENS]

    def test_without_it_what_a_zombie_writes_lands(self) -> None:
        tables = MemoryTables(fencing=False)
        for _ in range(2):
            tables.claim(slot_of(SHARD), "node")
        tables.append(SHARD, segment(0, epoch=2), None)
        tables.append(SHARD, segment(0), OPENS)
        tables.settle(SHARD, flush(0))
        assert tables.segments(SHARD, KEY, 0, 10) == [segment(0)]
        assert tables.settlements(SHARD, KEY) == flush(0)


class TestOurBugs:
    """What must not happen is an assertion, not an answer."""

    @pytest.fixture
    def tables(self) -> MemoryTables:
        tables = MemoryTables()
        tables.append(SHARD, segment(4), OPENS)
        tables.settle(SHARD, flush(0, acked=[(1, 2)]))
        tables.write_seal(SHARD, Seal(1, [], []))
        return tables

    def test_other_content_under_the_same_key(self, tables: MemoryTables) -> None:
        with pytest.raises(AssertionError, match="other content"):
            tables.append(SHARD, segment(4, count=3), None)
        with pytest.raises(AssertionError, match="other content"):
            tables.settle(SHARD, flush(0, acked=[(1, 3)]))
        with pytest.raises(AssertionError, match="other content"):
            tables.write_seal(SHARD, Seal(1, [(4, 0, 1)], []))

    @pytest.mark.parametrize(("counter", "count"), [(3, 2), (5, 2), (0, 9), (5, 1)])
    def test_segments_that_overlap(self, tables: MemoryTables, counter: int, count: int) -> None:
        with pytest.raises(AssertionError, match="overlap"):
            tables.append(SHARD, segment(counter, count), None)

    def test_an_empty_segment(self, tables: MemoryTables) -> None:
        with pytest.raises(AssertionError, match="empty"):
            tables.append(SHARD, segment(9, count=0), None)

    def test_a_seq_of_another_epoch(self, tables: MemoryTables) -> None:
        wrong = Segment(KEY, make_seq(2, 0), [message()])
        with pytest.raises(AssertionError, match="another epoch"):
            tables.append(SHARD, wrong, None)

    def test_opening_another_bucket(self, tables: MemoryTables) -> None:
        with pytest.raises(AssertionError, match="its own bucket"):
            tables.append(SHARD, segment(9), Bucket(KEY._replace(start=1), FIRST))

    def test_a_bucket_that_begins_twice(self, tables: MemoryTables) -> None:
        with pytest.raises(AssertionError, match="opened at"):
            tables.mark_bucket(SHARD, Bucket(KEY, FIRST + 1))

    def test_dropping_what_is_not_drained(self, tables: MemoryTables) -> None:
        with pytest.raises(AssertionError, match="not drained"):
            tables.drop(SHARD, KEY)
        assert tables.outline(SHARD).buckets == [OPENS]

    def test_a_flush_that_is_not_all_of_its_parts(self, tables: MemoryTables) -> None:
        rows = [Settlement(key, 1, 1, [KEY, CONTROL]) for key in (KEY, CONTROL)]
        with pytest.raises(AssertionError, match="all of its parts"):
            tables.settle(SHARD, rows[:1])
        with pytest.raises(AssertionError):
            tables.settle(SHARD, [rows[0], Settlement(CONTROL, 1, 2, [KEY, CONTROL])])

    def test_removing_a_queue_that_was_not_marked(self, tables: MemoryTables) -> None:
        row = tables.create_queue("t", "q", QueueConfig())
        with pytest.raises(AssertionError, match="before it was marked"):
            tables.remove_queue(row)
        assert tables.read_queue("t", "q") == row


def test_the_counts_of_the_first_close_stand() -> None:
    tables = MemoryTables()
    tables.append(SHARD, segment(0), OPENS)
    tables.mark_bucket(SHARD, Bucket(KEY, FIRST, closed=True, count=2, size=3, last_at=4))
    tables.mark_bucket(SHARD, Bucket(KEY, FIRST, closed=True, drained=True, count=9))
    assert tables.outline(SHARD).buckets == [Bucket(KEY, FIRST, True, True, 2, 3, 4)]


@pytest.mark.parametrize("read_before", [False, True])
def test_a_dropped_bucket_leaves_the_schedule(read_before: bool) -> None:
    tables = MemoryTables()
    tables.append(SHARD, Segment(KEY, FIRST, [message(not_before=5)]), OPENS)
    if read_before:
        assert len(tables.due(SHARD, 0, 10, 10)) == 1
    tables.mark_bucket(SHARD, Bucket(KEY, FIRST, closed=True, drained=True))
    tables.drop(SHARD, KEY)
    assert tables.due(SHARD, 0, 10, 10) == []


def test_every_refusal_is_a_store_error() -> None:
    assert issubclass(StoreRefused, StoreError)
    assert issubclass(Fenced, StoreError)
    assert not issubclass(Fenced, StoreRefused)
