"""Bad input over real sockets: the answer is typed, nothing is lost, nothing is left behind.

Every case talks to a whole server beside a consumer that holds a message. Afterwards that consumer
still acks it, another client is served, and the server has as many tasks and connections as before.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import trio
import trio.testing

from pushlane.wire.frames import (
    Ack,
    Deliver,
    Done,
    Hello,
    Publish,
    Published,
    PublishMessage,
    Subscribe,
    Subscribed,
    Welcome,
)
from pushlane_gateway.server import Server
from tests.gateway.listener.rig import BINARY, TEXT, frame
from tests.gateway.test_server import Client, client, serving

HELLO = frame(TEXT, b'{"op":"hello"}')
BOMB = zlib.compress(b"\0" * 64 * 1024 * 1024)[2:-4]
DEEP = b'{"op":"publish","id":7,"to":"q","messages":[{"body":%s}]}' % (b"[" * 9_999 + b"]" * 9_999)
POST = b"POST /v1/queues/q/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4\r\n"
INSIDE = b"GET /v1/queues HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LARGE_HEADERS = b'{"op":"publish","id":7,"to":"q","messages":[{"body":1,"headers":{"a":"%s"}}]}' % (
    b"x" * 9_000
)

FOREIGN = b"GET /v1/queues HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
CREDENTIALS = (
    b"GET /v1/queues?access_token=plk_secret HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    b"Connection: close\r\n\r\n"
)


def upgrade(*lines: str, path: str = "/v1/ws", host: str = "127.0.0.1") -> bytes:
    head = [
        f"GET {path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13", *lines,
    ]  # fmt: skip
    return "\r\n".join([*head, "", ""]).encode()


def compressed(payload: bytes) -> bytes:
    """A text frame that says it is compressed (RSV1)."""
    plain = frame(TEXT, payload)
    return bytes([plain[0] | 0x40]) + plain[1:]


REFUSED: dict[str, tuple[bytes, int]] = {
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", 505),
    "two lengths": (POST + b"Content-Length: 44\r\n\r\n" + INSIDE, 400),
    "a length and chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + INSIDE, 400),
    "a space before the colon": (
        b"GET /v1/queues HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n", 400),
    "Origin null": (upgrade("Origin: null"), 403),
    "a foreign Origin": (upgrade("Origin: https://evil.example"), 403),
    "an Origin with ours as its beginning": (upgrade("Origin: http://localhost.evil.example"), 403),
    "an Origin with ours as its end": (upgrade("Origin: http://evil-localhost"), 403),
    "an Origin in another case": (upgrade("Origin: http://LOCALHOST"), 403),
    "a foreign Host": (upgrade(host="evil.example"), 403),
    "a foreign Host over HTTP": (FOREIGN, 403),
    "a token in the URL": (upgrade(path="/v1/ws?token=plk_secret"), 400),
    "a token in a URL of the API": (CREDENTIALS, 400),
    "an unknown subprotocol": (upgrade("Sec-WebSocket-Protocol: mqtt"), 400),
    "no version of WebSocket": (upgrade().replace(b"Version: 13", b"Version: 8"), 400),
    "a head that is too large": (upgrade("X: " + "y" * 20_000), 431),
    "TLS to a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 64, 400),
    "rubbish": (b"\0\xff\r\n\r\n", 400),
}  # fmt: skip

CLOSED: dict[str, tuple[bytes, int, str]] = {
    "not JSON": (HELLO + frame(TEXT, b"hello"), 1002, "bad_request"),
    "NaN": (HELLO + frame(TEXT, b'{"op":"publish","id":1,"x":NaN}'), 1002, "bad_request"),
    "not UTF-8": (HELLO + frame(TEXT, b'{"op":"\xff"}'), 1007, "bad_request"),
    "a binary frame": (HELLO + frame(BINARY, b"\x80"), 1003, "bad_request"),
    "a frame that is too large": (
        HELLO + frame(TEXT, b" " * (4 * 1024 * 1024 + 1)), 1009, "too_large"),
    "a compression bomb": (HELLO + compressed(BOMB), 1002, "bad_request"),
    "another frame than hello": (
        frame(TEXT, b'{"op":"subscribe","id":1,"from":"q","credit":1}'), 1008, "bad_request"),
    "a forged token": (
        frame(TEXT, b'{"op":"hello","token":"plk_0123456789abcdef_forged"}'), 1008, "unauthorized"),
    "no hello": (b"", 1008, "unavailable"),
}  # fmt: skip

ANSWERED: dict[str, bytes] = {
    "two hellos": b'{"op":"hello"}',
    "an unknown op": b'{"op":"dance","id":7}',
    "missing fields": b'{"op":"publish","id":7}',
    "wrong types": b'{"op":"publish","id":7,"to":5,"messages":"x"}',
    "too many messages": b'{"op":"publish","id":7,"to":"q","messages":[%s]}'
    % b",".join([b'{"body":1}'] * 1_001),
    "large headers": LARGE_HEADERS,
    "9,999 levels": DEEP,
    "501 levels": DEEP.replace(b"[" * 9_999, b"[" * 501).replace(b"]" * 9_999, b"]" * 501),
    "5,000 digits": b'{"op":"publish","id":%s,"to":"q","messages":[]}' % (b"9" * 5_000),
    "half a surrogate pair": b'{"op":"publish","id":7,"to":"q","messages":[{"body":"\\ud800"}]}',
    "an illegal name": b'{"op":"publish","id":7,"to":"../q","messages":[{"body":1}]}',
    "credit 0": b'{"op":"subscribe","id":7,"from":"q","credit":0}',
    "a huge credit": b'{"op":"subscribe","id":7,"from":"q","credit":10001}',
    "a huge run": b'{"op":"ack","id":7,"sub":1,"receipts":["p.1-99999999"]}',
    "no receipt": b'{"op":"ack","id":7,"sub":1,"receipts":["p"]}',
    "a sub that never was": b'{"op":"ack","id":7,"sub":9,"receipts":["p.1"]}',
    "a topic": b'{"op":"publish","id":7,"to":"topic:news","messages":[{"body":1}]}',
}


SHORT_MS = 3_000


async def say(it: Client, data: bytes) -> None:
    await it.ws.send(data.decode())


@asynccontextmanager
async def attacked(patience_ms: int = 30_000) -> AsyncIterator[tuple[Server, str]]:
    """A server; afterwards it is judged. And the receipt that somebody holds.

    `patience_ms` is what the server has with clients that say nothing: for the attacks that it
    ends, and still enough for the honest clients of a busy machine.
    """
    settings = (
        f"limits.hello_ms={patience_ms}",
        f"gateway.head_ms={patience_ms}",
        "gateway.linger_ms=500",
        "gateway.close_ms=500",
    )
    async with serving(*settings) as server, client(server) as it:
        body = PublishMessage(body=msgspec.Raw(b"1"))
        await it.say(Hello(), Publish(1, "q", [body]))
        await it.hear_a(Welcome)
        await it.hear_a(Published)
        await it.say(Subscribe(2, "q", 1))
        await it.hear_a(Subscribed)
        (held,) = (await it.hear_a(Deliver)).messages
        await still_serves(server)  # its queue has tasks, too
        await trio.testing.wait_all_tasks_blocked(0.05)
        tasks = trio.lowlevel.current_statistics().tasks_living
        yield server, held.receipt or ""
        await it.say(Ack(1, [held.receipt or ""], 3))
        assert await it.hear_a(Done) == Done(3)
        await still_serves(server)
        with trio.fail_after(60):
            while trio.lowlevel.current_statistics().tasks_living > tasks:  # noqa: ASYNC110
                await trio.sleep(0.02)
        assert len(server.sessions._connections) == 1
        assert server.metrics.faults == 0
        assert server.listener.counters.failures == 0


async def still_serves(server: Server) -> None:
    async with client(server) as it:
        await it.say(Hello(), Publish(1, "other", [PublishMessage(data=b"x")]))
        await it.hear_a(Welcome)
        assert (await it.hear_a(Published)).failed == []


async def connected(server: Server) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", server.addresses[0].port)


async def read_all(stream: trio.SocketStream) -> bytes:
    data = b""
    with trio.fail_after(30):
        try:
            async for chunk in stream:
                data += chunk
        except trio.BrokenResourceError:  # it was cut
            pass
    return data


@pytest.mark.parametrize("name", REFUSED)
async def test_a_request_that_is_refused(name: str) -> None:
    data, status = REFUSED[name]
    async with attacked() as (server, _), await connected(server) as stream:
        await stream.send_all(data)
        answer = await read_all(stream)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert len(re.findall(rb"HTTP/1\.1 [0-9]", answer)) == 1, (
            "nothing behind it was taken for a request"
        )
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] in (
            "bad_request", "forbidden", "too_large",
        )  # fmt: skip
        assert b"secret" not in answer


@pytest.mark.parametrize("name", CLOSED)
async def test_a_session_that_is_closed(name: str) -> None:
    data, code, reason = CLOSED[name]
    async with (
        attacked(30_000 if data else SHORT_MS) as (server, _),
        await connected(server) as stream,
    ):
        offer = "Sec-WebSocket-Extensions: permessage-deflate"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, stream, upgrade(offer) + data)
            answer = await read_all(stream)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"permessage-deflate" not in answer
        close = code.to_bytes(2, "big") + reason.encode()
        assert answer.endswith(bytes([0x88, len(close)]) + close), answer[-200:]


async def send(stream: trio.SocketStream, data: bytes) -> None:
    with suppress(trio.BrokenResourceError):  # it may be cut before all of it was read
        await stream.send_all(data)


@pytest.mark.parametrize("name", ANSWERED)
async def test_a_frame_that_is_refused(name: str) -> None:
    async with attacked() as (server, _), client(server) as it:
        await it.say(Hello())
        await it.hear_a(Welcome)
        await say(it, ANSWERED[name])
        error = json.loads(await it.ws.recv())
        assert (error["op"], error["code"]) == ("error", "bad_request"), error
        await it.say(Publish(8, "other", [PublishMessage(data=b"x")]))
        assert (await it.hear_a(Published)).failed == [], "the session lives"


async def test_receipts_of_others_settle_nothing() -> None:
    async with attacked() as (server, receipt), client(server) as it:
        await it.say(Hello(), Subscribe(1, "q", 1))
        await it.hear_a(Welcome)
        await it.hear_a(Subscribed)
        prefix, _, number = receipt.rpartition(".")
        forged = [receipt, f"{prefix}.{int(number) + 1}", "forged.1", f"{prefix}.1-5"]
        await it.say(Ack(1, forged, 2))
        done = await it.hear_a(Done)
        assert (len(done.lease_lost) > 0, done.duplicate) == (True, [])


@pytest.mark.parametrize(
    "data", [b"", b"G", upgrade()[:60], upgrade(), upgrade() + HELLO[:3]],
    ids=["nothing", "a byte", "half a head", "no frame", "half a frame"],
)  # fmt: skip
async def test_clients_that_stop_half_way_and_clients_that_go(data: bytes) -> None:
    async with attacked(SHORT_MS) as (server, _):
        streams = [await connected(server) for _ in range(5)]
        for stream in streams:
            if data:
                await stream.send_all(data)
        await streams[0].aclose()
        for stream in streams[1:]:
            await read_all(stream)  # ends, because the server ends it
            await stream.aclose()
