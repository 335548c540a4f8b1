"""Sends: each is taken once, in its order."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pushlane.wire.errors import Conflict
from pushlane_gateway.pipe.inbox import AHEAD, Inbox


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
