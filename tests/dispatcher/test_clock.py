"""Time: monotonic, wall time without steps, and when it is doubted."""

import logging
import time
from collections import deque

import pytest
import trio
from trio.testing import MockClock

from pushlane_dispatcher.clock import (
    ANSWERS,
    FOLLOW,
    Clock,
    adopt_time,
    compare_clocks,
    since_boot,
)
from pushlane_dispatcher.core.bounds import CLOCK_TOLERANCE_MS
from pushlane_storage.memory import MemoryStore
from tests.dispatcher.rig import START, mock_clock

HOUR = 3_600_000


class System:
    """A system's clock that goes with the mock clock, and can be set."""

    def __init__(self) -> None:
        self.skew = 0

    def __call__(self) -> float:
        return (START + self.skew) / 1000 + trio.current_time()


async def test_monotonic_milliseconds_are_trios(mock_clock: MockClock) -> None:
    clock = Clock()
    before = clock.now()
    mock_clock.jump(1.5)
    assert clock.now() == before + 1500


async def test_a_timer_for_a_whole_millisecond_finds_it_reached(mock_clock: MockClock) -> None:
    clock = Clock()
    for target in (1, 3, 1_001, 12_345_679, 10**12 + 7):
        mock_clock.jump(target / 1000 - trio.current_time())
        assert clock.now() == target


async def test_wall_time_begins_with_the_systems() -> None:
    assert abs(Clock().wall() - time.time() * 1000) < 60_000
    assert Clock(lambda: 5.0).system() == 5000


async def test_time_since_the_machine_was_started_passes() -> None:
    assert since_boot() <= since_boot()
    assert abs(Clock(elapsed=since_boot).wall() - time.time() * 1000) < 60_000


async def test_the_offset_leads_from_one_to_the_other(mock_clock: MockClock) -> None:
    mock_clock.jump(2)
    assert Clock(lambda: 100.0).offset() == 98_000


async def test_the_tests_wall_clock_goes_with_the_mock_clock(autojump_clock: MockClock) -> None:
    clock = mock_clock()
    await trio.sleep(10)
    assert clock.offset() == START


@pytest.mark.parametrize("step", [HOUR, -HOUR, CLOCK_TOLERANCE_MS, -400])
async def test_wall_time_does_not_step(mock_clock: MockClock, step: int) -> None:
    system = System()
    clock = Clock(system)
    system.skew = step
    mock_clock.jump(1)
    clock.look()
    assert abs(clock.wall() - (START + 1_000)) <= 1_000 // FOLLOW
    assert clock.system() == START + step + 1_000


@pytest.mark.parametrize("step", [CLOCK_TOLERANCE_MS, 5_000, -5_000, -CLOCK_TOLERANCE_MS])
async def test_small_steps_are_followed_slowly(mock_clock: MockClock, step: int) -> None:
    system = System()
    clock = Clock(system)
    system.skew = step
    looks = 0
    while clock.wall() != clock.system():
        before = clock.wall()
        mock_clock.jump(10)
        clock.look()
        looks += 1
        assert 9_900 <= clock.wall() - before <= 10_100
    assert looks == abs(step) / 100
    assert not clock.doubted


async def test_time_that_the_machine_slept_has_passed(mock_clock: MockClock) -> None:
    slept = 0.0
    clock = Clock(lambda: START / 1000 + slept, lambda: slept)
    slept = 8 * 3600.0
    clock.look()
    assert clock.wall() == START + 8 * HOUR
    assert clock.offset() == START + 8 * HOUR
    assert not clock.doubted


@pytest.mark.parametrize("step", [HOUR, -HOUR, CLOCK_TOLERANCE_MS + 1])
async def test_a_greater_step_is_told_once_and_so_is_its_end(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture, step: int
) -> None:
    caplog.set_level(logging.WARNING)
    system = System()
    clock = Clock(system)
    system.skew = step
    for _ in range(3):
        clock.look()
        assert (clock.doubted, clock.system_ahead) == (True, step)
    system.skew = 0
    for _ in range(3):
        clock.look()
        assert (clock.doubted, clock.system_ahead) == (False, 0)
    alarm, end = caplog.messages
    assert "the clocks disagree" in alarm
    assert "agree again" in end


class TimedStore(MemoryStore):
    """Its nodes are asked in turn. Each is so far ahead of the mock clock."""

    def __init__(self, clock: MockClock, *ahead: int) -> None:
        super().__init__()
        self.ahead = deque(ahead)
        self._clock = clock

    async def time(self) -> int:
        self._clock.jump(1)
        at = START + int(trio.current_time() * 1000)
        self._clock.jump(1)
        self.ahead.rotate(-1)
        return at + self.ahead[-1]


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_a_store_with_another_time_is_a_reason_for_doubt(
    mock_clock: MockClock, ahead: int
) -> None:
    clock = Clock(System())
    store = TimedStore(mock_clock, ahead)
    await compare_clocks(clock, store)
    assert clock.doubted
    assert abs(clock.store_ahead - ahead) == 1_000, "at least so far: the answer took a while"
    store.ahead[0] = 500
    for _ in range(ANSWERS):
        await compare_clocks(clock, store)
    assert (clock.doubted, clock.store_ahead) == (False, 0)


async def test_one_node_of_several_proves_nothing(mock_clock: MockClock) -> None:
    clock = Clock(System())
    store = TimedStore(mock_clock, 0, HOUR, 0)
    await adopt_time(clock, store)
    for _ in range(20):
        await compare_clocks(clock, store)
        assert not clock.doubted


async def test_a_store_without_a_clock_is_none() -> None:
    clock = Clock(System())
    await compare_clocks(clock, MemoryStore())
    await adopt_time(clock, MemoryStore())
    assert (clock.doubted, clock.store_ahead, clock.offset()) == (False, 0, START)


@pytest.mark.parametrize("skew", [HOUR, -HOUR, 0, 59_000])
async def test_wall_time_begins_with_the_stores_if_the_systems_is_another(
    mock_clock: MockClock, skew: int
) -> None:
    system = System()
    system.skew = skew
    clock = Clock(system)
    await adopt_time(clock, TimedStore(mock_clock, 0, 30 * HOUR, 0))
    far = abs(skew) > CLOCK_TOLERANCE_MS
    assert abs(clock.offset() - START - (0 if far else skew)) <= 1_000
    assert clock.doubted == far
    system.skew = 0
    await compare_clocks(clock, TimedStore(mock_clock, 0))
    assert not clock.doubted, "it was set right, and there is no need for a restart"
