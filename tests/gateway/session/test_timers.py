"""Timers: in order, on time, and a failing one harms no other."""

from __future__ import annotations

import logging

import pytest
import trio

from pushlane_gateway.session.timers import Timers


async def test_they_ring_in_order_and_on_time(nursery: trio.Nursery) -> None:
    timers = Timers()
    nursery.start_soon(timers.run)
    heard: list[tuple[str, float]] = []

    def note(name: str) -> None:
        heard.append((name, trio.current_time()))

    start = trio.current_time()
    timers.at(start + 5, lambda: note("late"))
    timers.at(start + 1, lambda: note("first"))
    timers.at(start + 1, lambda: note("second"))
    await trio.sleep(0.5)
    timers.at(start + 0.7, lambda: note("earlier"))
    timers.at(start, lambda: note("past"))
    await trio.sleep(10)
    assert [(name, round(at - start, 3)) for name, at in heard] == [
        ("past", 0.5),
        ("earlier", 0.7),
        ("first", 1),
        ("second", 1),
        ("late", 5),
    ]
    assert len(timers) == 0


async def test_a_timer_may_set_another(nursery: trio.Nursery) -> None:
    timers = Timers()
    nursery.start_soon(timers.run)
    rings: list[float] = []

    def again() -> None:
        rings.append(round(trio.current_time(), 3))
        if len(rings) < 3:
            timers.at(trio.current_time() + 2, again)

    start = round(trio.current_time(), 3)
    timers.at(trio.current_time(), again)
    await trio.sleep(10)
    assert rings == [start, start + 2, start + 4]


async def test_one_that_fails_is_logged_and_the_others_ring(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    timers = Timers()
    nursery.start_soon(timers.run)
    rang = trio.Event()
    now = trio.current_time()
    timers.at(now + 1, lambda: 1 / 0)  # type: ignore[arg-type]
    timers.at(now + 1, rang.set)
    with caplog.at_level(logging.ERROR), trio.fail_after(60):
        await rang.wait()
    assert "a timer failed" in caplog.text
