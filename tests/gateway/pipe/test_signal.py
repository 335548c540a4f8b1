"""Requests wait for a signal, their time, or their client's going."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pushlane_gateway.pipe.signal import Signal


class GoneError(Exception):
    pass


async def gone_after_a_second() -> None:
    await trio.sleep(1)
    raise GoneError


async def test_it_ends_all_waits() -> None:
    signal = Signal()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(signal.wait, trio.sleep_forever)
        await wait_all_tasks_blocked()
        assert len(nursery.child_tasks) == 3
        signal.set()
    await signal.wait(trio.sleep_forever)  # also later ones


async def test_the_time_is_over() -> None:
    begun = trio.current_time()
    signal = Signal()
    await signal.wait(trio.sleep_forever, 5)
    assert trio.current_time() == begun + 5
    assert not signal.is_set


async def test_the_client_goes() -> None:
    with pytest.raises(GoneError):
        await Signal().wait(gone_after_a_second)
