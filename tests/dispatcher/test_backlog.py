"""Through all that waits in a queue, page by page."""

from __future__ import annotations

import base64

import msgspec
import pytest
import trio

from pushlane.wire.errors import BadRequest, Unavailable
from pushlane_dispatcher.browsing import reading
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.memory import MemoryStore
from tests.dispatcher.rig import (
    START,
    TENANT,
    Gate,
    Rig,
    ScriptedStore,
    fail,
    memory_store,
    message,
    rig,
)

NARROW = Bounds(window_messages=2, segment_messages=1, bucket_messages=4)


async def publish(r: Rig, *bodies: bytes, lane: int = 4) -> list[str]:
    sent = [message(body) for body in bodies]
    return [id for id in (await r.queue.publish(sent, [lane] * len(sent))).ids if id]


async def pages(r: Rig, limit: int) -> list[list[bytes]]:
    found, after = [], ""
    while True:
        page = await r.dispatcher.peek(TENANT, "q", limit, after)
        found.append([one.message.body for one in page.messages])
        following = page.after(len(page.messages))
        if following is None:
            return found
        after = following


async def bodies(r: Rig, limit: int) -> list[bytes]:
    page = await r.dispatcher.peek(TENANT, "q", limit)
    return [one.message.body for one in page.messages]


async def test_the_next_messages_with_their_ids() -> None:
    async with rig() as r:
        ids = await publish(r, b"1", b"2", b"3")
        page = await r.dispatcher.peek(TENANT, "q", 2)
        assert [page.id(one) for one in page.messages] == ids[:2]
        assert await bodies(r, 10) == [b"1", b"2", b"3"]


async def test_page_by_page_also_behind_the_window() -> None:
    async with rig(bounds=NARROW) as r:
        await publish(r, *(b"%d" % n for n in range(9)))
        await publish(r, b"high", lane=9)
        assert await pages(r, 4) == [
            [b"high", b"0", b"1", b"2"],
            [b"3", b"4", b"5", b"6"],
            [b"7", b"8"],
        ]
        assert await pages(r, 10) == [[b"high", *(b"%d" % n for n in range(9))]]


async def test_a_page_may_be_shown_in_part() -> None:
    async with rig() as r:
        await publish(r, b"1", b"2", b"3")
        page = await r.dispatcher.peek(TENANT, "q", 3)
        assert page.after(3) is None
        after = page.after(1)
        assert after is not None
        rest = await r.dispatcher.peek(TENANT, "q", 3, after)
        assert [one.message.body for one in rest.messages] == [b"2", b"3"]


async def test_by_time_over_shards() -> None:
    async with rig(shards=3) as r:
        for n in range(9):
            await r.queue.publish([message(b"%d" % n, key=f"k{n}")])
            await trio.sleep(1)
        assert await pages(r, 4) == [
            [b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"], [b"8"],
        ]  # fmt: skip


async def test_when_the_bytes_are_used_up_the_other_shards_have_to_wait() -> None:
    async with rig(shards=30) as r:
        for n in range(90):
            await r.queue.publish([message(b"x" * 1_000, key=f"k{n}")])
        seen, after = [], ""
        while True:
            page = await r.dispatcher.peek(TENANT, "q", 100, after, 5_000)
            read = sum(bool(part.messages) for part in page.parts.values())
            assert read <= 10 + 8, "twice the bytes, and those that are read at once"
            seen += [page.id(one) for one in page.messages]
            following = page.after(len(page.messages))
            if following is None:
                break
            after = following
        assert len(seen) == len(set(seen)) == 90


async def test_what_comes_later_is_not_in_the_pages() -> None:
    async with rig() as r:
        await publish(r, b"1", b"2")
        after = (await r.dispatcher.peek(TENANT, "q", 1)).after(1)
        assert after is not None
        await publish(r, b"3")
        page = await r.dispatcher.peek(TENANT, "q", 9, after)
        assert [one.message.body for one in page.messages] == [b"2"]
        assert page.after(1) is None


async def test_what_is_not_in_line_is_passed_over_some_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "PAGE", 1)
    monkeypatch.setattr(reading, "LOOKS", 2)
    async with rig(bounds=NARROW) as r:
        later = START + 3_600_000
        for n in range(5):
            await r.queue.publish([message(b"later%d" % n, not_before=later)])
        await publish(r, b"now")
        assert [found for found in await pages(r, 3) if found] == [[b"now"]]


async def test_a_queue_that_was_just_opened() -> None:
    store = memory_store()
    async with rig(store) as r:
        await publish(r, b"1")
    async with rig(MemoryStore(store.tables)) as r:
        assert await bodies(r, 10) == [b"1"]


async def test_an_empty_queue() -> None:
    async with rig() as r:
        assert await pages(r, 10) == [[]]
        await publish(r, b"1")
        consumer = r.consumer(acking=True)
        await consumer.got(1)
        assert await pages(r, 10) == [[]]


async def test_a_store_that_does_not_answer() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await publish(r, b"1")
        store.script.add("segments", fail(StoreUnknown("?")))
        with pytest.raises(Unavailable):
            await bodies(r, 10)
        assert await bodies(r, 10) == [b"1"]


async def test_a_store_that_takes_too_long() -> None:
    store = ScriptedStore()
    async with rig(store, settings=Settings(peek_ms=10)) as r:
        await publish(r, b"1")
        store.script.add("segments", Gate())
        with pytest.raises(Unavailable, match="too long"):
            await bodies(r, 10)
        assert await bodies(r, 10) == [b"1"]


def cursor(*parts: object) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(parts)).decode().rstrip("=")


@pytest.mark.parametrize(
    "after",
    [
        "?",
        "x",
        "ü",
        "A" * 100_000,
        cursor(),
        cursor("another", [[0, 4, 0, 1]]),
        cursor("another", [[0, 4, 0]]),
        cursor(1, 2),
    ],
)
async def test_a_cursor_that_is_none(after: str) -> None:
    async with rig() as r:
        await publish(r, b"1")
        with pytest.raises(BadRequest, match="after"):
            await r.dispatcher.peek(TENANT, "q", 1, after)


@pytest.mark.parametrize("span", [[9, 4, 0, 1], [-1, 4, 0, 1], [0, 9, 0, 1]])
async def test_a_cursor_that_leads_nowhere(span: list[int]) -> None:
    async with rig() as r:
        await publish(r, b"1")
        with pytest.raises(BadRequest, match="start without it"):
            await r.dispatcher.peek(TENANT, "q", 1, cursor(r.queue.row.id, [span]))


async def test_a_forged_cursor_shows_nothing_more() -> None:
    async with rig() as r:
        await publish(r, b"1", b"2")
        wide = cursor(r.queue.row.id, [[0, 4, -5, 1 << 62]])
        page = await r.dispatcher.peek(TENANT, "q", 9, wide)
        assert [one.message.body for one in page.messages] == [b"1", b"2"]
