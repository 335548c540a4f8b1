import pytest
import trio

from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.lease_guard import LeaseGuard, cache_name
from pushlane_leases.interface import (
    Forgotten,
    LeaseCacheError,
    LeaseRun,
    NotNow,
    StaleEpoch,
)
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced, StoreError, StoreRefused, StoreUnknown
from tests.dispatcher.rig import START, ScriptedLeases, fail, fail_after, hang, mock_clock

SETTINGS = Settings(cache_ms=200, cache_failures=2, cache_rest_ms=1_000)
RUN = LeaseRun("P", 1, 2, 4, 7, 9, "s", 0, 0, True, 30_000, START + 30_000, 1)


KEY = ShardKey("q", 0)


class Owner:
    """What the store says to the question whose shard it is."""

    def __init__(self) -> None:
        self.asked: list[ShardKey] = []
        self.fault: StoreError | None = None

    async def confirm(self, shard: ShardKey) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(shard)
        if self.fault is not None:
            raise self.fault


def guarded(leases: ScriptedLeases, owner: Owner | None = None) -> LeaseGuard:
    return LeaseGuard(leases, mock_clock(), SETTINGS, (owner or Owner()).confirm)


async def test_calls_go_through() -> None:
    guard = guarded(ScriptedLeases())
    assert await guard.claim(KEY, 1, START) == []
    assert await guard.grant(KEY, 1, [RUN])
    assert await guard.claim(KEY, 1, START) == [RUN]
    assert await guard.release(KEY, 1, [("P", 1, 2)])
    assert await guard.claim(KEY, 1, START) == []
    assert (guard.failures, guard.skipped, guard.trips, guard.broken) == (0, 0, 0, False)


async def test_a_failure_is_counted_and_no_more() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", fail(LeaseCacheError("gone")))
    guard = guarded(leases)
    assert not await guard.grant(KEY, 1, [RUN])
    assert guard.failures == 1
    assert not guard.broken


async def test_a_slow_cache_is_a_failing_one() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", hang)
    leases.script.add("claim", hang)
    guard = guarded(leases)
    assert not await guard.grant(KEY, 1, [RUN])
    assert trio.current_time() == pytest.approx(0.2)
    assert await guard.claim(KEY, 1, START) is None
    assert trio.current_time() == pytest.approx(2.2)
    assert guard.failures == 2


async def test_it_is_left_alone_after_failures_in_a_row_and_tried_again() -> None:
    leases = ScriptedLeases()
    leases.script.always["grant"] = fail(LeaseCacheError("gone"))
    guard = guarded(leases)
    for _ in range(5):
        assert not await guard.grant(KEY, 1, [RUN])
    assert (guard.failures, guard.skipped, guard.trips, guard.broken) == (2, 3, 1, True)
    leases.script.always.clear()
    await trio.sleep(1)
    generation = guard.generation
    assert await guard.grant(KEY, 1, [RUN])
    assert not guard.broken
    assert guard.generation == generation + 1


async def test_who_lost_its_shard_learns_it_from_the_cache_and_the_store() -> None:
    leases, owner = ScriptedLeases(), Owner()
    guard = guarded(leases, owner)
    await guard.claim(KEY, 2, START)
    assert owner.asked == []
    owner.fault = Fenced("another's")
    with pytest.raises(Fenced):
        await guard.grant(KEY, 1, [RUN])
    with pytest.raises(Fenced):
        await guard.claim(KEY, 1, START)
    assert owner.asked == [KEY, KEY]
    assert (guard.failures, guard.overruled) == (0, 0)
    assert await guard.claim(KEY, 2, START) == []


async def test_a_cache_that_is_ahead_of_the_store_is_overwritten() -> None:
    leases, owner = ScriptedLeases(), Owner()
    guard = guarded(leases, owner)
    leases.table.grant(cache_name(KEY), 9, [RUN])
    assert await guard.claim(KEY, 1, START) is None
    assert await guard.claim(KEY, 1, START) == []
    leases.table.claim(cache_name(KEY), 9, START)
    assert not await guard.grant(KEY, 1, [RUN]), "it must be told everything"
    assert await guard.grant(KEY, 1, [RUN])
    assert owner.asked == [KEY, KEY]
    assert (guard.failures, guard.overruled, guard.broken) == (0, 2, False)


@pytest.mark.parametrize("fault", [StoreUnknown("away"), StoreRefused("busy")])
async def test_a_store_that_can_not_say_decides_nothing(fault: StoreError) -> None:
    leases, owner = ScriptedLeases(), Owner()
    guard = guarded(leases, owner)
    leases.table.claim(cache_name(KEY), 9, START)
    owner.fault = fault
    assert not await guard.grant(KEY, 1, [RUN])
    assert guard.overruled == 0
    leases.table.claim(cache_name(KEY), 9, START)
    owner.fault = None
    await guard.grant(KEY, 1, [RUN])
    assert await guard.grant(KEY, 1, [RUN])


async def test_another_owner_that_comes_meanwhile_is_not_overwritten() -> None:
    leases, owner = ScriptedLeases(), Owner()
    guard = guarded(leases, owner)
    leases.table.claim(cache_name(KEY), 9, START)
    confirm = owner.confirm

    async def slowly(shard: ShardKey) -> None:
        await confirm(shard)
        leases.table.claim(cache_name(KEY), 10, START)

    guard._confirm = slowly
    assert not await guard.grant(KEY, 1, [RUN])
    leases.table.claim(cache_name(KEY), 10, START)
    with pytest.raises(StaleEpoch):
        leases.table.claim(cache_name(KEY), 9, START)


async def test_a_try_that_is_cancelled_leaves_it_to_the_next() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", *[fail(LeaseCacheError("gone"))] * 2, hang)
    guard = guarded(leases)
    for _ in range(2):
        await guard.grant(KEY, 1, [RUN])
    await trio.sleep(1)
    with trio.move_on_after(0.1):
        await guard.grant(KEY, 1, [RUN])
    assert guard.broken
    assert await guard.grant(KEY, 1, [RUN])


async def test_a_shard_that_can_not_be_served_now_is_no_failure_of_the_cache() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", *[fail(NotNow("its keys are being moved"))] * 5)
    guard = guarded(leases)
    assert [await guard.grant(KEY, 1, [RUN]) for _ in range(6)] == [False] * 5 + [True]
    assert (guard.failures, guard.skipped, guard.broken) == (0, 5, False)


async def test_a_cache_that_forgot_is_told_so_and_has_not_failed() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", fail(LeaseCacheError("gone")), fail_after(Forgotten("flushed")))
    guard = guarded(leases)
    assert [await guard.grant(KEY, 1, [RUN]) for _ in range(3)] == [False, False, True]
    assert (guard.failures, guard.forgotten, guard.broken) == (1, 1, False)
    assert guard.generation == 1, "it is one shard's affair"
