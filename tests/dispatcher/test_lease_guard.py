import pytest
import trio

from pushlane_dispatcher.lease_guard import LeaseGuard
from pushlane_dispatcher.settings import Settings
from pushlane_leases.interface import Forgotten, LeaseCacheError, LeaseRun, ReceiptRun, StaleEpoch
from tests.dispatcher.rig import START, ScriptedLeases, fail, fail_after, hang, mock_clock

SETTINGS = Settings(cache_ms=200, cache_failures=2, cache_rest_ms=1_000)
RUN = LeaseRun("P", 1, 2, 4, 7, 9, "s", 0, 0, True, 30_000, START + 30_000, 1)


def guarded(leases: ScriptedLeases) -> LeaseGuard:
    return LeaseGuard(leases, mock_clock(), SETTINGS)


async def test_calls_go_through() -> None:
    guard = guarded(ScriptedLeases())
    assert await guard.claim("q/0", 1, START) == []
    assert await guard.grant("q/0", 1, [RUN])
    assert await guard.claim("q/0", 1, START) == [RUN]
    assert await guard.release("q/0", 1, [ReceiptRun("P", 1, 2)])
    assert await guard.claim("q/0", 1, START) == []
    assert (guard.failures, guard.skipped, guard.trips, guard.broken) == (0, 0, 0, False)


async def test_a_failure_is_counted_and_no_more() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", fail(LeaseCacheError("gone")))
    guard = guarded(leases)
    assert not await guard.grant("q/0", 1, [RUN])
    assert guard.failures == 1
    assert not guard.broken


async def test_a_slow_cache_is_a_failing_one() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", hang)
    leases.script.add("claim", hang)
    guard = guarded(leases)
    assert not await guard.grant("q/0", 1, [RUN])
    assert trio.current_time() == pytest.approx(0.2)
    assert await guard.claim("q/0", 1, START) is None
    assert trio.current_time() == pytest.approx(2.2)
    assert guard.failures == 2


async def test_it_is_left_alone_after_failures_in_a_row_and_tried_again() -> None:
    leases = ScriptedLeases()
    leases.script.always["grant"] = fail(LeaseCacheError("gone"))
    guard = guarded(leases)
    for _ in range(5):
        assert not await guard.grant("q/0", 1, [RUN])
    assert (guard.failures, guard.skipped, guard.trips, guard.broken) == (2, 3, 1, True)
    leases.script.always.clear()
    await trio.sleep(1)
    generation = guard.generation
    assert await guard.grant("q/0", 1, [RUN])
    assert not guard.broken
    assert guard.generation == generation + 1


async def test_a_stale_epoch_comes_through_and_is_no_failure() -> None:
    leases = ScriptedLeases()
    guard = guarded(leases)
    await guard.claim("q/0", 2, START)
    with pytest.raises(StaleEpoch):
        await guard.grant("q/0", 1, [RUN])
    assert guard.failures == 0


async def test_a_try_that_is_cancelled_leaves_it_to_the_next() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", *[fail(LeaseCacheError("gone"))] * 2, hang)
    guard = guarded(leases)
    for _ in range(2):
        await guard.grant("q/0", 1, [RUN])
    await trio.sleep(1)
    with trio.move_on_after(0.1):
        await guard.grant("q/0", 1, [RUN])
    assert guard.broken
    assert await guard.grant("q/0", 1, [RUN])


async def test_a_cache_that_forgot_is_told_so_and_has_not_failed() -> None:
    leases = ScriptedLeases()
    leases.script.add("grant", fail(LeaseCacheError("gone")), fail_after(Forgotten("flushed")))
    guard = guarded(leases)
    assert [await guard.grant("q/0", 1, [RUN]) for _ in range(3)] == [False, False, True]
    assert (guard.failures, guard.forgotten, guard.broken) == (1, 1, False)
    assert guard.generation == 1, "it is one shard's affair"
