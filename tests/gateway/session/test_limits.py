"""Every limit of the wire: reaching it is answered as promised, and counted under its name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from pushlane.wire.frames import (
    Ack,
    ClientFrame,
    Credit,
    Extend,
    Hello,
    Nack,
    Publish,
    Published,
    Resume,
    Subscribe,
)
from pushlane.wire.limits import DEFAULTS, LIMITS, MAX_INT
from pushlane_dispatcher.core.bounds import Bounds
from tests.gateway.session.rig import Rig, message, rig

DEEP = b"[" * 600 + b"]" * 600


def one(**fields: Any) -> Publish:
    return Publish(7, "q", [message(**fields)])


REFUSED: dict[str, ClientFrame | bytes] = {
    "header_bytes": one(headers={"n": "v" * 9_000}),
    "body_depth": one(body=DEEP),
    "key_bytes": one(key="k" * 513),
    "dedup_bytes": one(dedup="d" * 257),
    "delay_ms_max": one(delay_ms=DEFAULTS.delay_ms_max + 1),
    "ttl_ms_max": one(ttl_ms=DEFAULTS.ttl_ms_max + 1),
    "priority_max": one(priority=10),
    "batch": Publish(7, "q", [message()] * 1_001),
    "settle": Ack(1, ["p.1-10000", "p.10001"], 7),
    "credit": Subscribe(7, "q", 10_001),
    "lease_ms_min": Subscribe(7, "q", 1, lease_ms=999),
    "lease_ms_max": Extend(1, ["p.1"], DEFAULTS.lease_ms_max + 1, 7),
    "error_bytes": Nack(1, ["p.1"], error="e" * 1_025, id=7),
    "run": Ack(1, ["p.1-10001"], 7),
    "name": Publish(7, "q" * 121, [message()]),
    "id": Ack(1, ["p" * 129 + ".1"], 7),
}
"""A frame that reaches it is a bad request, and the session lives."""

ELSEWHERE = {
    "frame_bytes": "listener/test_socket.py (1009), http/test_app.py (413)",
    "message_bytes": "below",
    "priority_default": "a default, nobody can reach it",
    "held": "below",
    "subs": "below",
    "unanswered": "test_publish.py: the server stops reading",
    "inflight_bytes": "test_publish.py: the server stops reading",
    "wait_ms": "http/test_receive.py",
    "token_bytes": "below",
    "hello_ms": "test_hello.py",
    "heartbeat_ms": "test_hello.py: beats",
    "resume_ms": "below",
}


def test_all_are_here_or_elsewhere() -> None:
    assert {*REFUSED, *ELSEWHERE} == {*LIMITS}
    assert not {*REFUSED} & {*ELSEWHERE}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_and_counted_and_the_session_lives(name: str) -> None:
    async with rig() as it:
        client = await it.client(producer="p")
        await client.subscribe("other")
        client.say(REFUSED[name])
        error = await client.error()
        assert (error.code, error.id) == ("bad_request", 7)
        assert it.metrics.limits.counts == {name: 1}
        assert (await client.publish("q", b"1")).failed == []


async def test_a_value_that_is_too_small_reaches_no_limit() -> None:
    async with rig() as it:
        client = await it.client()
        for frame in (one(key=""), one(ttl_ms=0), Publish(7, "q", []), Subscribe(7, "q", 0)):
            client.say(frame)
            assert (await client.error()).code == "bad_request"
        assert it.metrics.limits.counts == {}


async def test_a_frame_without_an_id_counts_too() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        client.say(Credit(sub, 10_001))
        error = await client.error()
        assert (error.code, error.sub) == ("bad_request", sub)
        assert it.limit("credit") == 1


async def test_ids_that_their_type_bounds() -> None:
    async with rig() as it:
        client = it.connect()
        client.say(Hello(producer="p" * 129))
        assert (await client.error()).code == "bad_request"
        assert await client.socket.until_closed() == (1008, "bad_request")
        assert it.limit("id") == 1


async def test_a_token_and_what_a_hello_holds() -> None:
    async with rig() as it:
        for hello, name in (
            (Hello("t" * 9_000), "token_bytes"),
            (Hello(resume=Resume("s", {str(n): [] for n in range(1, 102)})), "subs"),
            (Hello(resume=Resume("s", {"1": ["p.1"] * 1_000, "2": ["p.2"] * 1_001})), "held"),
        ):
            client = it.connect()
            client.say(hello)
            assert (await client.error()).code == "bad_request"
            assert it.limit(name) == 1


async def test_messages_that_are_too_large_stand_alone() -> None:
    async with rig(template={"max_message_bytes": 10}) as it:
        client = await it.client()
        big = msgspec.json.encode("x" * (DEFAULTS.message_bytes + 1))
        client.say(Publish(1, "q", [message(big), message(b"1"), message(b'"01234567890"')]))
        answer = await client.socket.hear_a(Published)
        assert [fault.index for fault in answer.failed] == [0, 2]
        assert (it.limit("message_bytes"), it.limit("max_message_bytes")) == (1, 1)


async def test_subscriptions_of_a_session() -> None:
    async with rig(limits=msgspec.structs.replace(DEFAULTS, subs=2)) as it:
        client = await it.client()
        await client.subscribe("a")
        await client.subscribe("b")
        client.say(Subscribe(9, "c", 1))
        assert (await client.error()).code == "bad_request"
        assert it.limit("subs") == 1


async def test_a_session_that_nobody_resumes() -> None:
    async with rig() as it:
        client = await it.client()
        await client.drop()
        await trio.sleep(31)
        assert (it.limit("resume_ms"), len(it.sessions)) == (1, 0)


# What a shard bounds


async def throttled(it: Rig, frame: ClientFrame) -> str:
    client = await it.client(producer="p2")
    client.say(frame)
    answer = await client.socket.hear()
    if isinstance(answer, Published):
        return answer.failed[0].code
    return str(getattr(answer, "code", answer))


async def test_dedup_ids_producers_and_subscriptions_of_a_shard() -> None:
    async with rig(bounds=Bounds(dedup_ids=1, producers=1, subscriptions=1)) as it:
        client = await it.client(producer="p1")
        assert (await client.publish("q", b"1", dedup="a", seq=1)).failed == []
        assert await throttled(it, one(dedup="b")) == "throttled"
        assert await throttled(it, one(seq=MAX_INT)) == "throttled"
        await client.subscribe("q")
        await throttled(it, Subscribe(1, "q", 1))
        await trio.sleep(1)
        counts = it.metrics.limits.counts
        assert counts["dedup_ids"] == 1
        assert counts["producers"] == 1


async def test_a_full_queue() -> None:
    async with rig(template={"max_messages": 1}) as it:
        client = await it.client()
        assert (await client.publish("q", b"1")).failed == []
        (fault,) = (await client.publish("q", b"2")).failed
        assert fault.code == "queue_full"
        assert it.limit("max_messages") == 1
