"""Redrive through the dispatcher: which, where, how fast, and where to go on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from pushlane.wire.errors import BadRequest, NotFound, Throttled
from pushlane_dispatcher.browsing.redrive import Redrive, Redriven
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_storage.message import Dead, Message
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import START, TENANT, Rig, blocked, message, rig

DEAD = "q.dead"
NARROW = Bounds(window_messages=3, segment_messages=2, bucket_messages=5, leaving=4)


def letter(body: bytes, cause: str = "rejected", queue: str = "q", at: int = START) -> Message:
    dead = Dead(cause, queue, f"id-{body.decode()}", 1, None, at)
    return msgspec.structs.replace(message(body), dead=dead)


async def bury(r: Rig, *letters: Message, shards: int = 1) -> None:
    await r.dispatcher.ensure(TENANT, DEAD, QueueConfig(dead_letter="", shards=shards))
    await r.dispatcher.publish(TENANT, DEAD, list(letters))


async def redrive(r: Rig, after: str = "", **wanted: Any) -> Redriven:
    found = Redrive(**{"max": 1_000, "budget_ms": 10_000, **wanted})
    return await r.dispatcher.redrive(TENANT, DEAD, found, after)


async def stored(r: Rig, name: str) -> int:
    await trio.sleep(1)
    await blocked()
    return (await r.dispatcher.stats(TENANT, name)).stored


async def test_all_go_back() -> None:
    async with rig() as r:
        await bury(r, letter(b"1"), letter(b"2"), letter(b"3"))
        assert await redrive(r) == Redriven(3, None)
        consumer = r.consumer()
        assert await consumer.got(3) == [b"1", b"2", b"3"]
        assert all(run.messages[0].dead is None for run in consumer.runs)
        assert await stored(r, DEAD) == 0


async def test_through_the_whole_backlog_and_not_what_dies_again() -> None:
    async with rig(bounds=NARROW) as r:
        await bury(r, *(letter(b"%d" % n) for n in range(40)))
        first = await redrive(r, max=7)
        assert first.count == 7
        assert first.next is not None
        await bury(r, letter(b"later"))
        assert await redrive(r, first.next) == Redriven(33, None)
        assert (await stored(r, DEAD), await stored(r, "q")) == (1, 40)


async def test_of_all_shards_together() -> None:
    async with rig() as r:
        await r.dispatcher.create(TENANT, DEAD, QueueConfig(shards=3, dead_letter=""))
        await bury(r, *(letter(b"%d" % n) for n in range(30)))
        first = await redrive(r, max=7)
        assert first.count == 7
        assert first.next is not None
        assert await redrive(r, first.next) == Redriven(23, None)
        assert await stored(r, "q") == 30


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, b"abcd"),
        ({"cause": "expired"}, b"b"),
        ({"queue": "other"}, b"c"),
        ({"key": "k"}, b"d"),
        ({"from_at": START + 5}, b"d"),
        ({"until_at": START + 5}, b"abc"),
        ({"from_at": START, "until_at": START}, b""),
        ({"cause": "rejected", "queue": "q", "key": "nobody"}, b""),
        ({"to": "other"}, b"abcde"),
        ({"to": "other", "cause": "rejected"}, b"acd"),
        ({"to": "other", "queue": "q"}, b"abd"),
        ({"to": "other", "until_at": START + 5}, b"abce"),
    ],
)
async def test_which(wanted: dict[str, Any], found: bytes) -> None:
    async with rig() as r:
        await r.dispatcher.create(TENANT, "other")
        await bury(
            r,
            letter(b"a"),
            letter(b"b", cause="expired"),
            letter(b"c", queue="other"),
            msgspec.structs.replace(letter(b"d", at=START + 5), key="k"),
            message(b"e"),
        )
        assert await redrive(r, dry_run=True, **wanted) == Redriven(len(found), None)
        assert await stored(r, DEAD) == 5
        assert await redrive(r, **wanted) == Redriven(len(found), None)
        assert await stored(r, DEAD) == 5 - len(found)


def keyed(count: int) -> list[Message]:
    """Letters for all shards."""
    return [msgspec.structs.replace(letter(b"%d" % n), dedup=str(n)) for n in range(count)]


@pytest.mark.parametrize("shards", [1, 5])
async def test_as_fast_as_was_asked_for(shards: int) -> None:
    async with rig() as r:
        await bury(r, *keyed(30), shards=shards)
        before = trio.current_time()
        assert (await redrive(r, rate=10)).count == 30
        assert trio.current_time() - before == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize("shards", [1, 5])
async def test_a_call_ends_when_its_time_is_over_and_the_next_goes_on(shards: int) -> None:
    async with rig() as r:
        await bury(r, *keyed(30), shards=shards)
        count, after, calls = 0, "", 0
        while True:
            done = await redrive(r, after, rate=10, budget_ms=1_000)
            count, calls = count + done.count, calls + 1
            if done.next is None:
                break
            after = done.next
        assert count == 30
        assert calls == pytest.approx(3, abs=1)
        assert await stored(r, "q") == 30


async def test_a_queue_that_takes_nothing_stops_it_with_a_word() -> None:
    async with rig(bounds=NARROW) as r:
        await r.dispatcher.create(TENANT, "full", QueueConfig(max_messages=1))
        await bury(r, *(letter(b"%d" % n) for n in range(9)))
        first = await redrive(r, to="full")
        assert first.next is not None
        assert 4 <= first.count < 9
        with pytest.raises(Throttled) as caught:
            await redrive(r, first.next, to="full")
        assert caught.value.limit == "leaving"
        assert await stored(r, "full") == 1


async def test_repeating_a_call_does_no_harm() -> None:
    async with rig() as r:
        await bury(r, *(letter(b"%d" % n) for n in range(6)))
        first = await redrive(r, max=3)
        assert first.next is not None
        assert (await redrive(r, first.next)).count == 3
        assert (await redrive(r, first.next)).count == 0
        assert await stored(r, "q") == 6


async def test_to_another_queue() -> None:
    async with rig() as r:
        await bury(r, letter(b"1"))
        with pytest.raises(NotFound):
            await redrive(r, to="other")
        await r.dispatcher.create(TENANT, "other")
        assert (await redrive(r, to="other")).count == 1
        assert await stored(r, "other") == 1


@pytest.mark.parametrize("wanted", [{"max": 0}, {"max": -1}, {"to": DEAD}])
async def test_a_senseless_redrive_is_a_bad_request(wanted: dict[str, Any]) -> None:
    async with rig() as r:
        await bury(r, letter(b"1"))
        with pytest.raises(BadRequest):
            await redrive(r, **wanted)


async def test_what_was_never_dead_has_nowhere_to_go_back_to() -> None:
    async with rig() as r:
        await bury(r, message(b"1"))
        assert (await redrive(r)).count == 0


async def test_what_its_queue_refuses_comes_back_with_the_reason() -> None:
    async with rig() as r:
        await bury(r, letter(b"1", queue="gone"), letter(b"2"))
        assert await redrive(r) == Redriven(2, None)
        await trio.sleep(1)
        stats = await r.dispatcher.stats(TENANT, DEAD)
        assert (stats.ready, stats.leaving) == (1, 0)
        page = await r.dispatcher.peek(TENANT, DEAD, 10)
        (found,) = page.messages
        assert found.message.body == b"1"
        explained = await r.dispatcher.explain(TENANT, DEAD, page.id(found))
        assert explained.error == "gone refused it: there is no queue gone"
        await r.dispatcher.create(TENANT, "gone")
        assert await redrive(r) == Redriven(1, None)
        assert await stored(r, "gone") == 1


async def test_redriven_messages_of_a_key_stay_in_order_when_their_queue_is_full() -> None:
    async with rig(max_messages=100) as r:
        await bury(r, *[msgspec.structs.replace(letter(b"%d" % n), key="k") for n in range(1_000)])
        assert await redrive(r) == Redriven(1_000, None)
        got: list[bytes] = []
        consumer = r.consumer(1)
        with trio.fail_after(3_600):
            while len(got) < 1_000:
                await consumer.got(len(got) + 1)
                got = [message.body for run in consumer.runs for message in run.messages]
                await consumer.ack(consumer.runs[-1])
        assert got == [b"%d" % n for n in range(1_000)]
