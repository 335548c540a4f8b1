"""Answers: numbered, kept until they are acknowledged, given to the newest receive."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pushlane.wire.errors import Conflict
from pushlane_gateway.listener.decoder import End
from pushlane_gateway.pipe.outbox import Outbox

BYE = End(1001, "drain", by_client=False)


class Fetch:
    """A receive in a task of its own."""

    def __init__(self, nursery: trio.Nursery, outbox: Outbox, after: int, wait: float = 20) -> None:
        self.value: Any = None
        self.done_at: float | None = None
        nursery.start_soon(self._run, outbox, after, wait)

    async def _run(self, outbox: Outbox, after: int, wait: float) -> None:
        self.value = await fetch(outbox, after, wait)
        self.done_at = trio.current_time()


async def fetch(outbox: Outbox, after: int, wait: float = 20) -> Any:
    return msgspec.json.decode((await outbox.answer(after, wait, trio.sleep_forever)).body)


async def test_all_that_waits_goes_together() -> None:
    outbox = Outbox(1_000)
    outbox.put(b'{"a":1}')
    outbox.put(b"2")
    assert outbox.waiting == 8
    assert await fetch(outbox, 0) == {"n": 1, "frames": [{"a": 1}, 2]}
    assert outbox.waiting == 0


async def test_an_answer_is_repeated_until_it_is_acknowledged() -> None:
    outbox = Outbox(1_000)
    outbox.put(b"1")
    first = await fetch(outbox, 0)
    outbox.put(b"2")
    assert await fetch(outbox, 0) == first == {"n": 1, "frames": [1]}
    assert await fetch(outbox, 1) == {"n": 2, "frames": [2]}
    with pytest.raises(Conflict, match="after is 0, the last answer was 2"):
        await fetch(outbox, 0)
    assert await fetch(outbox, 1) == {"n": 2, "frames": [2]}
    with pytest.raises(Conflict, match="after is 3, the last answer was 2"):
        await fetch(outbox, 3)


async def test_what_is_acknowledged_is_not_kept() -> None:
    outbox = Outbox(1_000)
    outbox.put(b"1")
    await fetch(outbox, 0)
    assert await fetch(outbox, 1, wait=0) == {"n": 1, "frames": []}
    with pytest.raises(Conflict):
        await fetch(outbox, 0)


async def test_a_receive_waits_for_a_frame_and_not_longer_than_its_time() -> None:
    outbox = Outbox(1_000)
    async with trio.open_nursery() as nursery:
        begun = trio.current_time()
        waits = Fetch(nursery, outbox, 0)
        await trio.sleep(7)
        outbox.put(b"1")
        outbox.put(b"2")
        await wait_all_tasks_blocked()
        assert (waits.value, waits.done_at) == ({"n": 1, "frames": [1, 2]}, begun + 7)
        late = Fetch(nursery, outbox, 1, wait=9)
    assert (late.value, late.done_at) == ({"n": 1, "frames": []}, begun + 16)


async def test_a_newer_receive_ends_the_older() -> None:
    outbox = Outbox(1_000)
    async with trio.open_nursery() as nursery:
        old = Fetch(nursery, outbox, 0)
        await wait_all_tasks_blocked()
        new = Fetch(nursery, outbox, 0)
        await wait_all_tasks_blocked()
        assert old.value == {"n": 0, "frames": []}
        outbox.put(b"1")
    assert new.value == {"n": 1, "frames": [1]}


async def test_of_a_frame_and_a_newer_receive_in_one_tick() -> None:
    outbox = Outbox(1_000)
    async with trio.open_nursery() as nursery:
        old = Fetch(nursery, outbox, 0)
        await wait_all_tasks_blocked()
        outbox.put(b"1")
        assert await fetch(outbox, 0) == {"n": 1, "frames": [1]}
    assert old.value == {"n": 0, "frames": []}


async def test_a_client_that_goes_takes_nothing_along() -> None:
    outbox = Outbox(1_000)
    with trio.move_on_after(1):
        await fetch(outbox, 0)
    outbox.put(b"1")
    assert await fetch(outbox, 0) == {"n": 1, "frames": [1]}


async def test_an_answer_has_a_bound() -> None:
    outbox = Outbox(10)
    for n in range(7):
        outbox.put(b'"%d___"' % n)
    assert len((await fetch(outbox, 0))["frames"]) == 2
    assert outbox.waiting == 30
    assert await fetch(outbox, 1) == {"n": 2, "frames": ["2___", "3___"]}
    outbox.end(BYE)
    assert await fetch(outbox, 2) == {"n": 3, "frames": ["4___", "5___"]}
    close = {"code": 1001, "reason": "drain"}
    assert await fetch(outbox, 3) == {"n": 4, "frames": ["6___"], "close": close}
    assert outbox.waiting == 0


async def test_the_close_comes_last_and_is_repeated_too() -> None:
    outbox = Outbox(1_000)
    async with trio.open_nursery() as nursery:
        waits = Fetch(nursery, outbox, 0)
        await wait_all_tasks_blocked()
        outbox.end(BYE)
    told = {"n": 1, "frames": [], "close": {"code": 1001, "reason": "drain"}}
    assert waits.value == await fetch(outbox, 0) == told
    assert not outbox.is_done(0)
    assert outbox.is_done(1)


async def test_a_drain_waits_for_receives() -> None:
    outbox = Outbox(10)
    for _ in range(4):
        outbox.put(b"_" * 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.drain, 15)
        for after in range(3):
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            await outbox.answer(after, 0, trio.sleep_forever)
    assert outbox.waiting == 10


async def test_at_the_end_no_drain_waits() -> None:
    outbox = Outbox(10)
    outbox.put(b"_" * 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.drain, 1)
        await wait_all_tasks_blocked()
        outbox.end(BYE)


async def test_the_time_of_the_last_frames() -> None:
    outbox = Outbox(10)
    begun = outbox.sent_at
    await fetch(outbox, 0, wait=5)
    assert outbox.sent_at == begun  # an empty answer is no sign of life for a session
    outbox.put(b"1")
    await fetch(outbox, 0)
    assert outbox.sent_at == begun + 5
