import time

import trio
from trio.testing import MockClock

from pushlane_dispatcher.clock import Clock
from tests.dispatcher.rig import START, mock_clock


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


async def test_the_wall_clock_is_the_systems_unless_told_otherwise() -> None:
    assert abs(Clock().wall() - time.time() * 1000) < 60_000
    assert Clock(lambda: 5.0).wall() == 5000


async def test_the_offset_leads_from_one_to_the_other(mock_clock: MockClock) -> None:
    mock_clock.jump(2)
    assert Clock(lambda: 100.0).offset() == 98_000


async def test_the_tests_wall_clock_goes_with_the_mock_clock(autojump_clock: MockClock) -> None:
    clock = mock_clock()
    await trio.sleep(10)
    assert clock.offset() == START
