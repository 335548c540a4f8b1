"""Whatever a client sends: the typed error, the session alive where it may be, nothing lost."""

from __future__ import annotations

import logging

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from pushlane.wire.codec import MSGPACK
from pushlane.wire.frames import Ack, Done, Published
from tests.gateway.session.rig import TENANT, Rig, rig

DEEP = b"[" * 10_000 + b"]" * 10_000

BAD_FRAMES = {
    "unknown op": (b'{"op":"dance","id":7}', 7),
    "no op": (b'{"id":7}', 7),
    "op of another type": (b'{"op":5,"id":7}', 7),
    "an answer's op": (b'{"op":"published","id":7,"ids":[]}', 7),
    "no id": (b'{"op":"publish","to":"q","messages":[{"body":1}]}', None),
    "id 0": (b'{"op":"publish","id":0,"to":"q","messages":[{"body":1}]}', None),
    "id too large": (b'{"op":"publish","id":9007199254740992,"to":"q","messages":[]}', None),
    "id a fraction": (b'{"op":"publish","id":1.5,"to":"q","messages":[{"body":1}]}', None),
    "id a string": (b'{"op":"publish","id":"7","to":"q","messages":[{"body":1}]}', None),
    "no messages": (b'{"op":"publish","id":7,"to":"q"}', 7),
    "messages an object": (b'{"op":"publish","id":7,"to":"q","messages":{}}', 7),
    "to a number": (b'{"op":"publish","id":7,"to":5,"messages":[{"body":1}]}', 7),
    "data no base64": (b'{"op":"publish","id":7,"to":"q","messages":[{"data":"!"}]}', 7),
    "priority 10": (b'{"op":"publish","id":7,"to":"q","messages":[{"body":1,"priority":10}]}', 7),
    "ttl 0": (b'{"op":"publish","id":7,"to":"q","messages":[{"body":1,"ttl_ms":0}]}', 7),
    "headers a list": (b'{"op":"publish","id":7,"to":"q","messages":[{"body":1,"headers":[]}]}', 7),
    "half a pair": (
        b'{"op":"publish","id":7,"to":"q","messages":[{"body":1,"key":"\\ud800"}]}',
        7,
    ),
    "credit a string": (b'{"op":"subscribe","id":7,"from":"q","credit":"1"}', 7),
    "credit negative": (b'{"op":"subscribe","id":7,"from":"q","credit":-1}', 7),
    "credit huge": (b'{"op":"subscribe","id":7,"from":"q","credit":99999999999}', 7),
    "ack maybe": (b'{"op":"subscribe","id":7,"from":"q","credit":1,"ack":"maybe"}', 7),
    "sub 0": (b'{"op":"ack","id":7,"sub":0,"receipts":["p.1"]}', 7),
    "receipts a string": (b'{"op":"ack","id":7,"sub":1,"receipts":"p.1"}', 7),
    "a list": (b"[]", None),
    "a number": (b"5", None),
    "null": (b"null", None),
    "a deep unknown field": (b'{"op":"publish","id":7,"x":%s}' % DEEP, 7),
    "a deep body": (b'{"op":"publish","id":7,"to":"q","messages":[{"body":%s}]}' % DEEP, 7),
    "5000 digits": (b'{"op":"publish","id":%s,"to":"q","messages":[]}' % (b"9" * 5_000), None),
}
"""Frames that are JSON, and wrong; and the id that the error can carry."""

NO_FRAMES = {
    "empty": b"",
    "no JSON": b"hello",
    "half": b'{"op":"publish"',
    "two": b'{"op":"hello"}{"op":"hello"}',
    "NaN": b'{"op":"publish","id":7,"to":"q","messages":[{"body":NaN}]}',
    "Infinity": b'{"op":"publish","id":7,"to":"q","messages":[{"body":-Infinity}]}',
    "a control character": b'{"op":"publish","id":7,"to":"q\x01"}',
}


async def still_serves(it: Rig) -> None:
    """Somebody else is served as if nothing had happened."""
    client = await it.client()
    sub = await client.subscribe("fine")
    await client.publish("fine", b"1")
    (found,) = await client.deliver()
    assert (await client.ack(sub, found.receipt or "")).lease_lost == []


@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_a_bad_frame_gets_an_error_and_the_session_lives(name: str) -> None:
    frame, id = BAD_FRAMES[name]
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        await client.publish("q", b"1")
        (found,) = await client.deliver()
        client.say(frame)
        error = await client.error()
        assert (error.code, error.id) == ("bad_request", id)
        assert await client.ack(sub, found.receipt or "") == Done(3)
        assert (await it.dispatcher.stats(TENANT, "q")).stored == 0
        assert it.metrics.errors.counts == {"bad_request": 1}


@pytest.mark.parametrize("name", NO_FRAMES)
async def test_what_is_no_frame_ends_the_connection_and_loses_nothing(name: str) -> None:
    async with rig() as it:
        client = it.connect()
        session = (await client.hello()).session
        await client.subscribe("q")
        await client.publish("q", b"1")
        (found,) = await client.deliver()
        client.say(NO_FRAMES[name])
        assert (await client.error()).code == "bad_request"
        assert await client.socket.until_closed() == (1002, "bad_request")
        await client.gone.wait()
        again = it.connect()
        assert (await again.resume(session, {"1": [found.receipt or ""]})).resumed
        assert await again.ack(1, found.receipt or "") == Done(1)
        await still_serves(it)


async def test_unknown_fields_and_repeated_keys_are_no_fault() -> None:
    async with rig() as it:
        client = await it.client()
        client.say(
            b'{"x":[1,{}],"id":1,"messages":[{"body":{"a":1,"a":2},"y":0}],"to":"z","to":"q",'
            b'"op":"publish"}'
        )
        assert (await client.socket.hear_a(Published)).failed == []
        await client.subscribe("q")
        (found,) = await client.deliver()
        assert found.body == msgspec.Raw(b'{"a":1,"a":2}')


async def test_messagepack_bodies_must_be_json_in_a_bin() -> None:
    async with rig() as it:
        client = await it.client(MSGPACK)
        for body in (5, "text", b"{no json", b"\xff", b'"\\ud800"'):
            frame = {"op": "publish", "id": 7, "to": "q", "messages": [{"body": body}]}
            client.say(msgspec.msgpack.encode(frame))
            error = await client.error()
            assert (error.code, error.id) == ("bad_request", 7)
        await still_serves(it)


async def test_a_bug_of_ours_ends_one_session_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")

        def broken(*_: object) -> None:
            raise RuntimeError("a bug")

        it.dispatcher.opened = broken  # type: ignore[assignment,method-assign]
        with caplog.at_level(logging.CRITICAL):
            client.say(b'{"op":"publish","id":1,"to":"q","messages":[{"body":1}]}')
            error = await client.error()
        assert error.code == "internal"
        assert error.message == "a bug of the server ended this session"
        assert await client.socket.until_closed() == (1011, "internal")
        await client.gone.wait()
        assert it.metrics.faults == 1
        del it.dispatcher.opened
        other = await it.client()
        assert await other.subscribe("q") == sub


RECEIPTS = st.lists(
    st.text(max_size=20) | st.from_regex(r"[a-f0-9]{1,16}\.[0-9]{1,5}(-[0-9]{1,5})?")
)
FRAMES = st.fixed_dictionaries(
    {"op": st.sampled_from(["publish", "subscribe", "ack", "nack", "start", "extend", "credit",
                            "unsubscribe", "hello", "beat"])},
    optional={
        "id": st.integers(0, 5),
        "sub": st.integers(0, 3),
        "to": st.sampled_from(["q", "", "topic:x", "p"]),
        "from": st.sampled_from(["q", "", "topic:x", "p"]),
        "credit": st.integers(-1, 11_000),
        "receipts": RECEIPTS,
        "lease_ms": st.integers(0, 10**6),
        "messages": st.lists(
            st.fixed_dictionaries(
                {}, optional={"body": st.integers() | st.none(), "key": st.text(max_size=3),
                              "priority": st.integers(0, 10), "dedup": st.text(max_size=2)}
            ),
            max_size=3,
        ),
        "resume": st.just({"session": "x"}),
    },
)  # fmt: skip


@given(st.lists(FRAMES | st.binary(max_size=30), max_size=30))
def test_nothing_that_clients_send_harms_the_server(
    frames: list[dict[str, object] | bytes],
) -> None:
    async def main() -> None:
        async with rig() as it:
            client = await it.client()
            for frame in frames:
                client.say(frame if isinstance(frame, bytes) else msgspec.json.encode(frame))
            await trio.sleep(1)
            assert it.metrics.faults == 0
            await still_serves(it)
            client.socket.leave()
            await client.gone.wait()
            client.say(Ack(1, ["p.1"]))

    trio.run(main, clock=MockClock(autojump_threshold=0))
