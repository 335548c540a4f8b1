"""The in-memory lease cache: what the conformance suite doesn't ask of every back end."""

import inspect
from collections.abc import Callable

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from pushlane_leases.interface import LeaseCache, LeaseCacheError, StaleEpoch
from pushlane_leases.memory import (
    Expiring,
    LeaseLimits,
    LeaseTable,
    MemoryLeases,
    ShardLeases,
)
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
        table.grant("s", 1, [run(1, deadline=NOW + 2_000)])
        assert {n // 10 for n in out(table)} == {0, 1, 3, 5, 7, 9, 11, 13}
        assert {n // 10 for n in out(table, "t")} == {2, 4, 6, 8, 10, 12}

    def test_holes_count(self) -> None:
        table = LeaseTable(LeaseLimits(runs=4))
        table.grant("s", 1, [run(1, 99)])
        for n in range(10, 50, 10):
            table.release("s", 1, [("p", n, n)])
        assert len(table.claim("s", 1, NOW)) == 4

    def test_what_is_released_or_expired_makes_room(self) -> None:
        table = LeaseTable(LeaseLimits(runs=2))
        for n in range(0, 100, 2):
            table.grant("s", 1, [run(n)])
            table.release("s", 1, [("p", n, n)])
        for time in range(NOW, NOW + 100, 10):
            table.grant("s", 1, [run(1, deadline=time + 10), run(3, deadline=time + 10)])
            assert table.claim("s", 1, time + 10) == []
        table.grant("s", 1, [run(1), run(3)])
        assert out(table) == [1, 3]

    def test_the_shard_claimed_longest_ago_goes(self) -> None:
        table = LeaseTable(LeaseLimits(shards=2, runs=2))
        table.grant("a", 5, [run(1)])
        table.grant("b", 5, [run(1)])
        table.claim("a", 5, NOW)
        table.grant("c", 5, [run(1)])
        assert len(table.claim("a", 5, NOW)) == 1
        assert len(table.claim("c", 5, NOW)) == 1
        assert table.claim("b", 1, NOW) == []  # its epoch is forgotten, too

    def test_marks(self) -> None:
        table = LeaseTable(LeaseLimits(marks=8))
        table.remember("s", 1, [(str(n), b"id") for n in range(8)], 1_000, NOW)
        table.remember("t", 1, [("0", b"id")], 500, NOW)
        assert table.recall("t", ["0"], NOW) == {}
        assert len(table.recall("s", [str(n) for n in range(8)], NOW)) == 7


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
    table.release("s", 1, [("p", 2, 1 << 40)])
    [left] = table.claim("s", 1, NOW)
    assert (left.n, left.count) == (1, 1)


keys = st.integers(0, 20)


def test_entries_are_good_until_their_time() -> None:
    kept: Expiring[str, int] = Expiring(10)
    kept.put(["a", "b"], [1, 2], until=100)
    assert (kept.get("a", 99), kept.get("b", 99), kept.get("c", 99)) == (1, 2, None)
    assert kept.get("a", 100) is None
    kept.put(["a"], [3], until=200)
    assert (kept.get("a", 150), kept.get("b", 150)) == (3, None)


def test_dropping() -> None:
    kept: Expiring[str, int] = Expiring(10)
    kept.put(["a"], [1], until=100)
    for _ in range(2):
        kept.drop("a")
    assert kept.get("a", 0) is None
    assert len(kept) == 0


def test_the_soonest_to_expire_go_first() -> None:
    kept: Expiring[int, int] = Expiring(16)
    for key in (3, 0, 1, 2, *range(4, 16)):
        kept.put([key], [key], until=1_000 + key)
    assert len(kept) == 16
    kept.put([16], [16], until=5_000)
    assert [key for key in range(17) if kept.get(key, 0) is None] == [0, 1, 2]
    assert len(kept) == 14


def test_a_batch_larger_than_the_limit() -> None:
    kept: Expiring[int, int] = Expiring(8)
    kept.put(range(100), range(100), until=10)
    assert len(kept) == 7


@given(st.integers(1, 9), st.lists(st.tuples(keys, st.integers(0, 50)), max_size=40))
def test_it_never_holds_more_than_its_limit(limit: int, puts: list[tuple[int, int]]) -> None:
    kept: Expiring[int, int] = Expiring(limit)
    known: dict[int, tuple[int, int]] = {}
    for number, (key, until) in enumerate(puts):
        kept.put([key], [number], until)
        known[key] = (number, until)
        assert len(kept) <= limit
        for one, (value, end) in known.items():
            assert kept.get(one, 25) in ((value, None) if end > 25 else (None,))


def test_a_limit_is_needed() -> None:
    with pytest.raises(AssertionError):
        Expiring(0)
