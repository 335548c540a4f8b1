"""The in-memory lease cache: what the conformance suite doesn't ask of every back end."""

import inspect
from collections.abc import Callable

import pytest
import trio
import trio.testing

from pushlane_leases.interface import LeaseCache, LeaseCacheError, ReceiptRun, StaleEpoch
from pushlane_leases.memory import Forgotten, LeaseLimits, LeaseTable, MemoryLeases, ShardLeases
from tests.leases.samples import NOW, by_receipt, run


def calls(of: type) -> dict[str, Callable[..., object]]:
    return {
        name: value
        for name, value in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_")
    }


def out(table: LeaseTable, shard: str = "s", now: int = NOW) -> list[int]:
    return sorted(n for _, n in by_receipt(table.claim(shard, 1, now)))


@pytest.mark.parametrize("name", sorted(set(calls(LeaseCache)) - {"close"}))
def test_the_table_has_the_calls_of_a_cache(name: str) -> None:
    expected = inspect.signature(calls(LeaseCache)[name])
    assert inspect.signature(calls(LeaseTable)[name]) == expected
    assert not inspect.iscoroutinefunction(calls(LeaseTable)[name])


async def test_every_call_is_a_checkpoint() -> None:
    leases: LeaseCache = MemoryLeases()
    with trio.testing.assert_checkpoints():
        await leases.claim("s", 1, NOW)
    with trio.testing.assert_checkpoints():
        await leases.close()


async def test_a_cancelled_call_changed_nothing() -> None:
    leases = MemoryLeases()
    with trio.CancelScope() as scope:
        scope.cancel()
        await leases.grant("s", 1, [run(1)])
    assert scope.cancelled_caught
    assert out(leases.table) == []


async def test_a_closed_cache_takes_no_calls() -> None:
    leases = MemoryLeases()
    await leases.close()
    with pytest.raises(AssertionError, match="closed"):
        await leases.claim("s", 1, NOW)


def test_a_stale_epoch_names_both() -> None:
    table = LeaseTable()
    table.claim("s", 4, NOW)
    with pytest.raises(StaleEpoch, match="s: epoch 3, the owner's is 4"):
        table.claim("s", 3, NOW)
    assert issubclass(StaleEpoch, LeaseCacheError)


class TestLimits:
    def test_runs_with_the_earliest_deadlines_go_first(self) -> None:
        table = LeaseTable(LeaseLimits(runs=16))
        for n in range(1, 17):
            shard = "s" if n % 2 else "t"
            table.grant(shard, 1, [run(10 * n, 5, prefix=f"p{n}", deadline=NOW + 1_000 - n)])
        assert table.forgotten.runs == 0
        table.grant("s", 1, [run(1, deadline=NOW + 2_000)])
        assert table.forgotten == Forgotten(0, 3, 0, 0)
        assert {n // 10 for n in out(table)} == {0, 1, 3, 5, 7, 9, 11, 13}
        assert {n // 10 for n in out(table, "t")} == {2, 4, 6, 8, 10, 12}

    def test_holes_count(self) -> None:
        table = LeaseTable(LeaseLimits(runs=4))
        table.grant("s", 1, [run(1, 99)])
        for n in range(10, 50, 10):
            table.release("s", 1, [ReceiptRun("p", n, n)])
        assert table.forgotten.runs == 1
        assert len(table.claim("s", 1, NOW)) == 4

    def test_what_is_released_or_expired_makes_room(self) -> None:
        table = LeaseTable(LeaseLimits(runs=2))
        for n in range(0, 100, 2):
            table.grant("s", 1, [run(n)])
            table.release("s", 1, [ReceiptRun("p", n, n)])
        for time in range(NOW, NOW + 100, 10):
            table.grant("s", 1, [run(1, deadline=time + 10), run(3, deadline=time + 10)])
            assert table.claim("s", 1, time + 10) == []
        table.grant("s", 1, [run(1), run(3)])
        assert out(table) == [1, 3]
        assert table.forgotten == Forgotten(0, 0, 0, 0)

    def test_the_shard_claimed_longest_ago_goes(self) -> None:
        table = LeaseTable(LeaseLimits(shards=2, runs=2))
        table.grant("a", 5, [run(1)])
        table.grant("b", 5, [run(1)])
        table.claim("a", 5, NOW)
        table.grant("c", 5, [run(1)])
        assert table.forgotten == Forgotten(1, 0, 0, 0)
        assert len(table.claim("a", 5, NOW)) == 1
        assert len(table.claim("c", 5, NOW)) == 1
        assert table.claim("b", 1, NOW) == []  # its epoch is forgotten, too

    def test_marks(self) -> None:
        table = LeaseTable(LeaseLimits(marks=8))
        table.remember("s", 1, [(str(n), b"id") for n in range(8)], 1_000, NOW)
        table.remember("t", 1, [("0", b"id")], 500, NOW)
        assert table.forgotten.marks == 2
        assert table.recall("t", ["0"], NOW) == {}
        assert len(table.recall("s", [str(n) for n in range(8)], NOW)) == 7

    def test_queues(self) -> None:
        table = LeaseTable(LeaseLimits(queues=2))
        for name, ttl in (("a", 30), ("b", 10), ("c", 20)):
            table.put_queue("t", name, b"", ttl, NOW)
        assert table.forgotten.queues == 1
        assert [table.get_queue("t", name, NOW) for name in "abc"] == [b"", None, b""]


def test_subscriptions_with_nothing_out_take_no_room() -> None:
    leases = ShardLeases()
    for number in range(3):
        assert leases.put(run(1, 5, prefix=f"p{number}", deadline=NOW + number)) == 1
    assert leases.cut("p2", 1, 5) == -1
    assert list(leases.prefixes) == ["p0", "p1"]
    assert leases.cut("p2", 1, 5) == 0
    leases.expire(NOW)
    assert list(leases.prefixes) == ["p1"]


def test_a_grant_costs_the_same_however_long_its_run_is() -> None:
    table = LeaseTable(LeaseLimits(runs=4))
    table.grant("s", 1, [run(1, 1 << 40)])
    table.release("s", 1, [ReceiptRun("p", 2, 1 << 40)])
    [left] = table.claim("s", 1, NOW)
    assert (left.n, left.count) == (1, 1)
