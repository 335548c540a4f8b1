"""Slow readers get less, then nothing, then go; others never notice. And back-pressure."""

from __future__ import annotations

import pytest
import trio

from pushlane.wire.frames import (
    Ack,
    ClientFrame,
    Deliver,
    Done,
    Goaway,
    Hello,
    Publish,
    Published,
    Subscribe,
)
from pushlane.wire.limits import Limits
from tests.dispatcher.rig import Gate, ScriptedStore
from tests.gateway.session.rig import TENANT, Client, blocked, message, rig

BODY = b'"%s"' % (b"x" * 1_000)


def received(client: Client) -> int:
    frames = [frame for frame in client.socket.unread if isinstance(frame, Deliver)]
    return sum(len(frame.messages) for frame in frames)


async def test_a_stuck_reader_gets_no_more_and_others_do() -> None:
    async with rig(outbox_bytes=5_000) as it:
        stuck, other, producer = await it.client(), await it.client(), await it.client()
        await stuck.subscribe("q", credit=1_000)
        await other.subscribe("q", credit=1_000)
        stuck.socket.stuck = True
        for _ in range(10):
            await producer.publish("q", *[BODY] * 10)
        await blocked()
        assert received(stuck) == 5
        assert received(other) == 95
        assert it.limit("outbox_bytes") == 1
        stuck.socket.read_on()
        await blocked()
        for _ in range(2):
            await producer.publish("q", *[BODY] * 10)
        await blocked()
        assert received(stuck) > 10


async def test_one_that_stays_stuck_has_to_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with rig(outbox_bytes=5_000, slow_ms=3_000) as it:
        stuck, producer = await it.client(client="in\nvoices"), await it.client()
        await stuck.subscribe("q", credit=1_000)
        stuck.socket.stuck = True
        await producer.publish("q", *[BODY] * 10)
        assert await stuck.socket.until_closed() == (4002, "slow_consumer")
        assert trio.current_time() == pytest.approx(3)
        assert stuck.socket.unread[-1] == Goaway("slow_consumer", 750)
        await stuck.gone.wait()
        assert it.limit("slow_ms") == 1
        (line,) = [text for text in caplog.messages if "too slowly" in text]
        assert line.startswith("'in\\nvoices' (")
        other = await it.client()
        await other.subscribe("q")
        assert len(await other.deliveries(10)) == 10


async def test_it_may_resume_and_read_faster() -> None:
    async with rig(outbox_bytes=5_000, slow_ms=3_000) as it:
        stuck, producer = it.connect(), await it.client()
        session = (await stuck.hello()).session
        await stuck.subscribe("q", credit=1_000)
        stuck.socket.stuck = True
        await producer.publish("q", *[BODY] * 10)
        await stuck.gone.wait()
        again = it.connect()
        assert (await again.resume(session)).resumed
        assert len(await again.deliveries(10)) == 10
        await producer.publish("q", *[BODY] * 10)
        assert len(await again.deliveries(10)) == 10


async def test_ack_none_pauses_too() -> None:
    async with rig(outbox_bytes=5_000) as it:
        stuck, producer = await it.client(), await it.client()
        await stuck.subscribe("q", ack="none")
        stuck.socket.stuck = True
        await producer.publish("q", *[BODY] * 10)
        await blocked()
        await producer.publish("q", *[BODY] * 10)
        await blocked()
        assert received(stuck) == 10
        stuck.socket.read_on()
        await blocked()
        assert received(stuck) == 20


async def test_answers_that_are_not_read_stop_the_reading() -> None:
    async with rig(outbox_bytes=1_000) as it:
        client = await it.client()
        await it.dispatcher.open(TENANT, "q", create=True)
        client.socket.stuck = True
        for n in range(100):
            client.say(Publish(n + 1, "q", [message()]))
        await blocked()
        stored = (await it.dispatcher.stats(TENANT, "q")).stored
        assert stored < 30
        client.socket.read_on()
        await blocked()
        assert (await it.dispatcher.stats(TENANT, "q")).stored == 100
        assert [frame.id for frame in client.socket.unread if isinstance(frame, Published)] == [
            *range(1, 101)
        ]


async def test_a_stuck_socket_that_drops_is_no_matter() -> None:
    async with rig(outbox_bytes=1_000) as it:
        client, producer = await it.client(), await it.client()
        await client.subscribe("q")
        client.socket.stuck = True
        await producer.publish("q", *[BODY] * 3)
        await blocked()
        await client.drop()
        await trio.sleep(20)
        assert it.limit("slow_ms") == 0


async def test_a_large_delivery_comes_in_several_frames() -> None:
    async with rig(deliver_bytes=10_000) as it:
        client = await it.client()
        await client.publish("q", *[BODY] * 20)
        await client.subscribe("q")
        await blocked()
        sizes = [len(frame) for frame in client.socket.sent if b"deliver" in frame]
        assert len(sizes) == 3
        assert max(sizes) < 10_000
        assert received(client) == 20


# Back-pressure on requests


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        (Limits(unanswered=3), "unanswered"),
        (Limits(inflight_bytes=65_536), "inflight_bytes"),
    ],
)
async def test_too_much_unanswered_stops_the_reading(limits: Limits, limit: str) -> None:
    store, gate = ScriptedStore(), Gate()
    body = b'"%s"' % (b"x" * 21_845)
    async with rig(store, limits=limits) as it:
        client = await it.client()
        await client.publish("q", b"0")
        store.script.add("append", gate)
        for n in range(5):
            client.say(Publish(n + 10, "q", [message(body)]))
        await blocked()
        assert client.socket.reads == 5
        assert it.limit(limit) == 1
        gate.released.set()
        answers = [(await client.socket.hear_a(Published)).id for _ in range(5)]
        assert answers == [10, 11, 12, 13, 14]


async def test_settles_count_as_unanswered_too() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store, limits=Limits(unanswered=2)) as it:
        client = await it.client()
        sub = await client.subscribe("q")
        await client.publish("q", *[b"1"] * 3)
        receipts = [found.receipt or "" for found in await client.deliveries(3)]
        store.script.add("settle", gate)
        client.say(*[Ack(sub, [receipt], n + 10) for n, receipt in enumerate(receipts)])
        await blocked()
        assert (await it.dispatcher.stats(TENANT, "q")).leased == 3
        gate.released.set()
        assert [(await client.socket.hear_a(Done)).id for _ in range(3)] == [10, 11, 12]


# Ids


@pytest.mark.parametrize(
    "frame", [Publish(7, "q", [message()]), Subscribe(7, "q", 1), Ack(1, ["p.1"], 7)]
)
async def test_an_id_that_is_not_answered_yet(frame: ClientFrame) -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store) as it:
        client = await it.client()
        await client.subscribe("other")
        await client.publish("q", b"0")
        store.script.add("append", gate)
        client.say(Publish(7, "q", [message()]), frame, b'{"op":"publish","id":7}')
        for _ in range(2):
            error = await client.error()
            assert (error.code, error.id) == ("bad_request", None)
        gate.released.set()
        assert (await client.socket.hear_a(Published)).id == 7
        client.say(Publish(7, "q", [message()]))
        assert (await client.socket.hear_a(Published)).id == 7
        await client.silence()


async def test_a_failed_publish_does_not_stop_those_behind_it() -> None:
    async with rig() as it:
        client = it.connect()
        client.say(
            Hello(),
            Publish(1, "q", []),
            Publish(2, "q", [message()]),
            Publish(3, "no name", [message()]),
            Publish(4, "q", [message()]),
        )
        await blocked()
        answers = {
            getattr(frame, "id", None): type(frame).__name__ for frame in client.socket.unread
        }
        assert answers == {
            None: "Welcome",
            1: "ErrorFrame",
            2: "Published",
            3: "ErrorFrame",
            4: "Published",
        }
