"""A part: what one shard of a queue has to do with one feed."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane.wire.errors import Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.part import Part
from pushlane_leases.memory import MemoryLeases
from tests.dispatcher.rig import Rig, blocked, message, rig
from tests.dispatcher.subscriber import Subscriber, subscribe


async def part_of(r: Rig, **options: Any) -> tuple[Subscriber, Part]:
    it = await subscribe(r.dispatcher, **options)
    (part,) = it.feed._parts
    return it, part


async def test_what_was_held_counts_while_its_shard_is_down() -> None:
    async with rig() as r:
        it, part = await part_of(r, credit=3)
        await r.publish(b"1", b"2", b"3", b"4")
        await blocked()
        assert (part.used, part.held, part.up) == (3, 3, True)
        await r.runner.close()
        assert (part.used, part.held, part.up) == (3, 0, False)
        found = await it.ack(*it.receipts)
        assert isinstance(found.error, Unavailable)
        assert found.lost == []


@pytest.mark.parametrize("leases", [None, MemoryLeases])
async def test_it_goes_on_with_the_shards_next_opening(leases: Any) -> None:
    async with rig(leases=leases and leases()) as r:
        it, part = await part_of(r, credit=2)
        await r.publish(b"1", b"2")
        await blocked()
        held = [(it.receipts[0][0], 1, 2)]
        first = part.prefix
        await r.runner.close()
        await r.dispatcher.open("default", "q")
        while not part.up:
            await blocked()
        if leases:
            assert (part.prefix, it.gone) == (first, [])
            assert (await it.ack(*held)).lost == []
        else:
            assert part.prefix != first
            assert it.gone == held
            assert (await it.ack(*held)).lost == held


async def test_it_tells_how_its_messages_and_receipts_begin() -> None:
    async with rig(shards=3) as r:
        it = await subscribe(r.dispatcher, credit=3)
        for number, part in enumerate(it.feed._parts):
            assert part.place.endswith(f"-{number:x}-")
            assert part.prefix.endswith(f"~{number:x}")


async def test_nothing_of_a_part_that_has_ended_counts() -> None:
    async with rig() as r:
        it, part = await part_of(r)
        await r.publish(b"1")
        await blocked()
        part.end()
        part.end()
        part.deliver([], False, 0, 0)
        part.lost([("p", 1, 1)], 0, 0)
        part.hungry(True, 0, 0)
        part.ended("unavailable", "", [])
        part.say_credit(3)
        part.detach(1)
        part.unsubscribe()
        assert (it.gone, it.end, r.runner.stats().subscriptions) == ([], None, 0)


async def test_a_client_that_comes_back_to_a_shard_that_is_down() -> None:
    async with rig() as r:
        it, part = await part_of(r)
        await r.queue.publish([message(b"1")])
        await blocked()
        it.feed.detach(30_000)
        await r.runner.close()
        answers: list[list[ReceiptRun]] = []
        it.feed.resume(it.receipts, (), answers.append)
        assert answers == [[]], "told when the shard is there again"
        while not part.up:
            await blocked()
        assert it.gone == it.receipts[:1]
