"""The WebSocket handshake: what is agreed on, what is refused, and what never reaches a log."""

from __future__ import annotations

import logging

import pytest
import trio

from pushlane.wire.codec import JSON, MSGPACK, Codec
from tests.gateway.listener.rig import BINARY, TEXT, UPGRADE_LINES, Ends, frame, head, listening
from tests.gateway.listener.rig import upgrade as request

ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

OFFERS: dict[str, tuple[list[str], Codec, str | None]] = {
    "none": ([], JSON, None),
    "json": (["pushlane.v1.json"], JSON, "pushlane.v1.json"),
    "msgpack": (["pushlane.v1.msgpack"], MSGPACK, "pushlane.v1.msgpack"),
    "both": (["pushlane.v1.msgpack, pushlane.v1.json"], MSGPACK, "pushlane.v1.msgpack"),
    "in two headers": (["other", "pushlane.v1.json"], JSON, "pushlane.v1.json"),
}


@pytest.mark.parametrize(("offered", "codec", "chosen"), OFFERS.values(), ids=OFFERS)
async def test_what_is_agreed_on(offered: list[str], codec: Codec, chosen: str | None) -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.connect()
        await client.send(request(*[f"Sec-WebSocket-Protocol: {name}" for name in offered]))
        answer = await client.answer()
        assert (answer.status, answer.headers["sec-websocket-accept"]) == (101, ACCEPT)
        assert answer.headers.get("sec-websocket-protocol") == chosen
        kind = TEXT if codec.is_text else BINARY
        await client.send(frame(kind, b"hi"))
        assert await client.frame() == (kind, b"hi")
        assert ends.sockets[0].codec is codec


async def test_compression_is_not_agreed_on() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(request("Sec-WebSocket-Extensions: permessage-deflate"))
        assert "sec-websocket-extensions" not in (await client.answer()).headers


async def test_what_the_session_gets_to_know() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        await rig.websocket("Authorization: Bearer abc", "Origin: http://localhost")
        await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        first, second = ends.sockets
        assert (first.authorization, first.origin) == ("Bearer abc", "http://localhost")
        assert (second.authorization, second.origin) == (None, None)
        assert first.peer.startswith("127.0.0.1:")


async def test_frames_right_behind_the_handshake() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(request() + frame(TEXT, b"a") + frame(TEXT, b"b")[:3])
        assert (await client.answer()).status == 101
        assert await client.frame() == (TEXT, b"a")
        await client.send(frame(TEXT, b"b")[3:])
        assert await client.frame() == (TEXT, b"b")


def without(name: str) -> bytes:
    return head(*[line for line in UPGRADE_LINES if not line.startswith(name)])


REFUSED = {
    "an unknown subprotocol": (request("Sec-WebSocket-Protocol: mqtt"), 400),
    "a malformed subprotocol": (request("Sec-WebSocket-Protocol: a b"), 400),
    "no key": (without("Sec-WebSocket-Key"), 400),
    "two keys": (request("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), 400),
    "no version": (without("Sec-WebSocket-Version"), 400),
    "two versions": (request("Sec-WebSocket-Version: 8"), 400),
    "no upgrade": (without("Upgrade"), 426),
    "no connection": (without("Connection"), 426),
    "POST": (request(first="POST /v1/ws HTTP/1.1"), 405),
    "HTTP/1.0": (request(first="GET /v1/ws HTTP/1.0"), 505),
    "two origins": (request("Origin: http://a", "Origin: http://b"), 400),
    "two authorizations": (request("Authorization: a", "Authorization: b"), 400),
    "a body": (request("Content-Length: 3") + b"abc", 400),
    "a chunked body": (request("Transfer-Encoding: chunked") + b"0\r\n\r\n", 400),
}


@pytest.mark.parametrize(("raw", "status"), REFUSED.values(), ids=REFUSED)
async def test_refusals(raw: bytes, status: int) -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(raw)
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (status, "bad_request")
        assert answer.headers["content-type"] == "application/json"
        await client.eof()
        assert rig.counters.refusals == {status: 1}
        assert rig.counters.upgrades == 0


async def test_the_answer_to_unknown_subprotocols_names_the_known_ones() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(request("Sec-WebSocket-Protocol: mqtt"))
        message = (await client.answer()).error["message"]
        assert "pushlane.v1.json or pushlane.v1.msgpack" in message


@pytest.mark.parametrize(
    "query",
    [
        "token=s3cret",
        "access_token=s3cret",
        "a=b&Token=s3cret",
        "%74oken=s3cret",
        "api_key=s3cret",
        "token",
        "a=b;token=s3cret&token=s3cret",
    ],
)
async def test_a_token_in_the_url_is_refused_and_never_logged(
    query: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening() as rig:
        client = await rig.connect()
        await client.send(request(first=f"GET /v1/ws?{query} HTTP/1.1"))
        answer = await client.answer()
        assert answer.status == 400
        assert "URL" in answer.error["message"]
        assert b"s3cret" not in answer.body
    assert "s3cret" not in caplog.text


async def test_frames_are_not_logged_either(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening() as rig:
        client = await rig.websocket("Authorization: Bearer s3cret")
        await client.send(frame(TEXT, b"s3cret", fin=False) + frame(0, b"s3cret"))
        assert await client.frame() == (TEXT, b"s3crets3cret")
    assert "s3cret" not in caplog.text


async def test_other_queries_are_fine() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(request(first="GET /v1/ws?client=tokens HTTP/1.1"))
        assert (await client.answer()).status == 101


async def test_a_policy_that_fails_costs_one_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def allow(origin: str | None, host: str | None) -> bool:
        if origin is None:
            raise ValueError("boom")
        return True

    async with listening(allow=allow) as rig:
        client = await rig.connect()
        await client.send(request())
        await client.eof()
        assert rig.counters.failures == 1
        await rig.websocket("Origin: http://localhost")
    assert "boom" in caplog.text


async def test_the_policy_decides_before_the_upgrade() -> None:
    asked: list[tuple[str | None, str | None]] = []

    def allow(origin: str | None, host: str | None) -> bool:
        asked.append((origin, host))
        return origin is None

    async with listening(allow=allow) as rig:
        await rig.websocket()
        client = await rig.connect()
        await client.send(request("Origin: null"))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (403, "forbidden")
        await client.eof()
        assert asked == [(None, "localhost"), ("null", "localhost")]
        assert rig.counters.upgrades == 1


@pytest.mark.parametrize("control", [1, 7, 8, 11, 12, 14, 27, 31, 127])
async def test_a_control_character_is_refused_and_nothing_of_it_is_logged(
    caplog: pytest.LogCaptureFixture, control: int
) -> None:
    caplog.set_level(logging.DEBUG)
    async with listening() as rig:
        for name in ("Authorization", "Origin", "X-Anything", "Cookie"):
            client = await rig.connect()
            await client.send(request(f"{name}: Bearer plk_s3cret{chr(control)}x"))
            answer = await client.answer()
            assert (answer.status, b"s3cret" in answer.body) == (400, False)
        assert rig.counters.failures == 0
    assert "s3cret" not in caplog.text
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
