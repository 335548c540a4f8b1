"""Sends: each is taken once, in its order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from pushlane.wire.errors import Conflict
from pushlane_gateway.listener.decoder import End
from pushlane_gateway.pipe.boxes import AHEAD, Inbox, Outbox, Signal


def test_batches_are_taken_in_order() -> None:
    inbox = Inbox([b"hello"])
    assert inbox.next() == [b"hello"]
    one = inbox.put(1, [b"a", b"b"])
    assert inbox.next() == [b"a", b"b"]
    assert not one.taken.is_set  # only when the session asks for more
    assert inbox.next() is None
    assert one.taken.is_set


def test_a_repeat_is_not_taken_twice() -> None:
    inbox = Inbox([b"hello"])
    inbox.next()
    one = inbox.put(1, [b"a"])
    assert inbox.put(1, [b"a"]) is one
    assert inbox.next() == [b"a"]
    assert inbox.put(1, [b"a"]) is one
    assert inbox.next() is None
    assert inbox.put(1, [b"a"]) is one
    assert inbox.next() is None


@pytest.mark.parametrize("n", [1, 4, 100])
def test_any_other_number_is_a_conflict(n: int) -> None:
    inbox = Inbox([b"hello"])
    for number in (1, 2):
        inbox.next()
        inbox.put(number, [b"x"])
    with pytest.raises(Conflict, match=f"n is {n}, the last was 2"):
        inbox.put(n, [b"x"])


def test_few_batches_wait() -> None:
    inbox = Inbox([b"hello"])
    inbox.next()
    for number in range(1, AHEAD + 1):
        inbox.put(number, [b"x"])
    with pytest.raises(Conflict, match=f"send {AHEAD} is not answered yet"):
        inbox.put(AHEAD + 1, [b"x"])


def test_at_the_end_nobody_waits() -> None:
    inbox = Inbox([b"hello"])
    inbox.next()
    one, two = inbox.put(1, [b"a"]), inbox.put(2, [b"b"])
    inbox.clear()
    assert one.taken.is_set
    assert two.taken.is_set


async def test_a_put_wakes_who_waits() -> None:
    inbox = Inbox([b"hello"])
    inbox.next()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inbox.wait)
        await trio.testing.wait_all_tasks_blocked()
        inbox.put(1, [b"a"])
    assert inbox.next() == [b"a"]


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
