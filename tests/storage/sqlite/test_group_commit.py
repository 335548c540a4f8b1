"""Group commit: many calls, few commits; and nobody fails for somebody else."""

import sqlite3
from functools import partial

import pytest
import trio
import trio.testing

from pushlane_storage.bucket import Bucket
from pushlane_storage.interface import Fenced, QueueExists, StoreRefused
from pushlane_storage.message import Message
from pushlane_storage.outcome import append
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.usage import Usage, UsageKey
from tests.storage.samples import Owner, claimed, messages, seqs_of
from tests.storage.sqlite.tools import Ask, Jam, Opened, together, until


async def test_what_gathers_during_a_commit_is_one_group(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened()
    owner = await claimed(store)
    await owner.append(0, messages(1))
    before = store.stats()
    jam = Jam(monkeypatch)
    calls = [partial(owner.append, number, messages(1)) for number in range(1, 101)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.ownership.claim, 0 if slot_of(owner.shard) else 1, "node")
        await jam.held()
        nursery.start_soon(together, calls)
        await until(lambda: store.stats().waiting == len(calls))
        assert await store.heads(owner.shard, owner.bucket()) != []  # reads go on
        jam.go()
    after = store.stats()
    assert (after.commits - before.commits, after.calls - before.calls) == (2, 101)
    assert after.largest_group == 100
    found = await store.segments(owner.shard, owner.bucket(), 0, 1_000)
    assert seqs_of(found) == [owner.seq(number) for number in range(101)]


async def test_a_thousand_appends_at_once_need_few_commits(opened: Opened) -> None:
    store = await opened()
    owner = await claimed(store)
    await together([partial(owner.append, number, messages(1)) for number in range(1_000)])
    assert store.stats().commits < 100
    found = await store.segments(owner.shard, owner.bucket(), 0, 10_000)
    assert len(seqs_of(found)) == 1_000


async def test_who_fails_fails_alone(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened()
    owner = await claimed(store)
    stale = Owner(store, owner.shard, owner.epoch - 1)
    await owner.append(0, messages(2))
    await store.catalog.create("t", "q", QueueConfig())
    jam = Jam(monkeypatch)
    overlap = Segment(owner.bucket(), owner.seq(1), messages(4))
    calls: list[Ask] = [
        partial(owner.append, 2, messages(2)),
        partial(stale.append, 0, messages(2)),
        partial(append, store, owner.shard, overlap, Bucket(owner.bucket(), owner.seq(0))),
        partial(store.catalog.create, "t", "q", QueueConfig()),
        partial(owner.append, 4, messages(2)),
        partial(owner.settle, 0, owner.bucket(), acked=[(1, 2)]),
    ]
    results: list[object] = []

    async def run() -> None:
        results.extend(await together(calls))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.usage.put, [])
        await jam.held()
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        jam.go()
    kinds = [type(result) for result in results]
    assert kinds == [Segment, Fenced, AssertionError, QueueExists, Segment, list]
    found = await store.segments(owner.shard, owner.bucket(), 0, 100)
    assert seqs_of(found) == [owner.seq(number) for number in range(6)]
    assert store.stats().alone == 0


async def test_a_call_that_breaks_its_transaction_is_singled_out(opened: Opened) -> None:
    """Numbers that SQLite can't take are found late: when the rows go in."""
    store = await opened()
    owner = await claimed(store)
    huge = Message(b"", 1 << 63)
    calls: list[Ask] = [
        partial(owner.append, 0, messages(2)),
        partial(owner.append, 2, [huge]),
        partial(owner.append, 3, messages(2, not_before=1 << 63)),
        partial(owner.settle, 0, owner.bucket(), acked=[(1, 2)]),
        partial(owner.append, 5, messages(2)),
    ]
    results = await together(calls)
    assert [type(result) for result in results][1:3] == [OverflowError, OverflowError]
    assert not isinstance(results[0], Exception)
    assert not isinstance(results[4], Exception)
    found = await store.segments(owner.shard, owner.bucket(), 0, 100)
    assert seqs_of(found) == [owner.seq(number) for number in (0, 1, 5, 6)]
    assert len(await store.settlements(owner.shard, owner.bucket())) == 1
    assert store.stats().alone >= 1
    await owner.append(7, messages(1))


async def test_the_same_twice_in_one_group(opened: Opened) -> None:
    store = await opened()
    owner = await claimed(store)
    calls: list[Ask] = [partial(owner.append, 0, messages(2, not_before=5))] * 3
    settle = partial(owner.settle, 0, owner.bucket(), acked=[(1, 1)])
    results = await together([*calls, settle, settle, settle])
    assert [result for result in results if isinstance(result, Exception)] == []
    assert len(await store.segments(owner.shard, owner.bucket(), 0, 100)) == 1
    assert len(await store.settlements(owner.shard, owner.bucket())) == 1
    assert len(await store.due(owner.shard, 0, 10, 10)) == 2


async def test_a_group_is_bounded_in_bytes(opened: Opened) -> None:
    store = await opened(Limits(group_bytes=10_000))
    owner = await claimed(store)
    before = store.stats().commits
    content = [Message(b"x" * 3_000, 0)]
    await together([partial(owner.append, number, content) for number in range(40)])
    found = await store.segments(owner.shard, owner.bucket(), 0, 100)
    assert seqs_of(found) == [owner.seq(number) for number in range(40)]
    assert store.stats().commits - before >= 40 // 4


async def test_calls_that_wait_are_bounded(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened(Limits(waiting_calls=3))
    jam = Jam(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.ownership.claim, 0, "node")
        await jam.held()
        for slot in (1, 2, 3):
            nursery.start_soon(store.ownership.claim, slot, "node")
        await until(lambda: store.stats().waiting == 3)
        with pytest.raises(StoreRefused, match="3 calls wait"):
            await store.ownership.claim(4, "node")
        jam.go()


async def test_whoever_is_cancelled_while_waiting_changed_nothing(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened()
    jam = Jam(monkeypatch)
    done: list[str] = []

    async def create(name: str) -> None:
        await store.catalog.create("t", name, QueueConfig())
        done.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(create, "begun")
        await jam.held()
        nursery.start_soon(create, "waiting")
        await until(lambda: store.stats().waiting == 1)
        nursery.cancel_scope.cancel()
        jam.go()
    # The one that was begun was waited for: its outcome is known.
    assert done == ["begun"]
    assert [row.name for row in await store.catalog.list("t", "", 10)] == ["begun"]


async def test_a_cancelled_call_is_not_even_put(opened: Opened) -> None:
    store = await opened()
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.catalog.create("t", "q", QueueConfig())
    assert scope.cancelled_caught
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.catalog.read("t", "q")
    assert scope.cancelled_caught
    assert await store.catalog.read("t", "q") is None


async def test_every_call_is_a_checkpoint(opened: Opened) -> None:
    store = await opened()
    with trio.testing.assert_checkpoints():
        await store.catalog.read("t", "q")
    with trio.testing.assert_checkpoints():
        await store.usage.put([])


async def test_a_closed_store_takes_no_calls(opened: Opened) -> None:
    store = await opened()
    await store.close()
    with pytest.raises(AssertionError, match="closed"):
        await store.catalog.read("t", "q")
    with pytest.raises(AssertionError, match="closed"):
        await store.ownership.claim(0, "node")


async def test_closing_finishes_what_waits(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await opened()
    jam = Jam(monkeypatch)
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(store.catalog.create, "t", f"q{number}", QueueConfig())
        await jam.held()
        nursery.start_soon(store.close)
        await trio.testing.wait_all_tasks_blocked()
        jam.go()
    store = await opened()
    assert len(await store.catalog.list("t", "", 100)) == 10


async def test_usage_with_numbers_too_large_fails_alone(opened: Opened) -> None:
    store = await opened()
    key = UsageKey("t", "q", 1, "n")
    wrong = UsageKey("t", "q", 1 << 70, "n")
    results = await together(
        [
            partial(store.usage.put, [Usage(key, {"acked": 1}, 1)]),
            partial(store.usage.put, [Usage(key, {"acked": 5}, 5), Usage(wrong, {"acked": 1}, 5)]),
            partial(store.usage.put, [Usage(key, {"acked": 2}, 2)]),
        ]
    )
    assert isinstance(results[1], OverflowError)
    assert await store.usage.read("t", 0, 9) == [Usage(key, {"acked": 2}, 2)]


def test_a_seq_fits_sqlites_integers() -> None:
    greatest = make_seq((1 << 23) - 1, (1 << 40) - 1)
    connection = sqlite3.connect(":memory:")
    assert connection.execute("SELECT ?", (greatest,)).fetchone() == (greatest,)
    connection.close()
