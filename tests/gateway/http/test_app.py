"""Paths, methods, content types and bodies: what is wrong with a request, and how it is told."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.types import Message

from pushlane_gateway.http.table import OPERATIONS
from tests.gateway.http.rig import blocked, rig, small

Q = "/v1/queues/q"
PUBLISH = Q + "/messages"


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "/v1/queues/", "/v1/queues/q/", "/v1/queues/q/nothing", "/V1/queues",
     "//v1/queues", "/v1/queues/q/messages/x/y", "/v2/queues", "/v1/queues/q/r/stats"],
)  # fmt: skip
async def test_unknown_paths(path: str) -> None:
    async with rig() as r:
        answer = await r.get(path)
        assert answer.fault == (404, "not_found")
        assert answer.headers["content-type"] == "application/json"
        assert r.metrics.http_answers.counts["404"] == 1


async def test_wrong_methods() -> None:
    async with rig() as r:
        answer = await r.get(PUBLISH)
        assert answer.fault == (405, "bad_request")
        assert answer.headers["allow"] == "POST, OPTIONS"
        answer = await r.ask("POST", Q, {})
        assert answer.fault == (405, "bad_request")
        allowed = set(answer.headers["allow"].split(", "))
        assert allowed == {"GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"}
        assert (await r.ask("BREW", "/healthz")).fault == (405, "bad_request")
        assert (await r.ask("TRACE", Q)).fault == (405, "bad_request")


async def test_options_and_head() -> None:
    async with rig() as r:
        options = await r.ask("OPTIONS", PUBLISH)
        assert (options.status, options.headers["allow"]) == (204, "POST, OPTIONS")
        await r.queue()
        full, head = await r.get(Q), await r.ask("HEAD", Q)
        assert (head.status, head.body) == (200, b"")
        assert head.headers == full.headers
        assert (await r.ask("HEAD", "/v1/queues/none")).status == 404
        assert (await r.ask("HEAD", PUBLISH)).status == 405


@pytest.mark.parametrize(
    "kind",
    ["-", "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data",
     "application/jsonp", "text/json", "application/msgpack"],
)  # fmt: skip
async def test_a_body_has_to_be_json(kind: str) -> None:
    async with rig() as r:
        answer = await r.post(PUBLISH, {"messages": [{"body": 1}]}, content_type=kind)
        assert answer.fault == (400, "bad_request")
        assert "application/json" in answer.json["error"]["message"]


async def test_json_with_a_charset() -> None:
    async with rig() as r:
        kind = "Application/JSON; charset=utf-8"
        answer = await r.post(PUBLISH, {"messages": [{"body": 1}]}, content_type=kind)
        assert answer.status == 200


async def test_a_post_without_a_body_needs_it_too() -> None:
    """A page elsewhere could send it without asking."""
    async with rig() as r:
        await r.publish("q", 1)
        answer = await r.ask("POST", Q + "/purge")
        assert answer.fault == (400, "bad_request")
        assert (await r.stats("q"))["ready"] == 1


async def test_no_compressed_bodies() -> None:
    async with rig() as r:
        answer = await r.post(PUBLISH, b"\x1f\x8b", content_encoding="gzip")
        assert answer.fault == (400, "bad_request")


async def test_a_header_that_comes_twice() -> None:
    async with rig() as r:
        exchange = r.exchange("POST", PUBLISH, {"messages": [{"body": 1}]})
        headers = exchange._scope["headers"]
        assert isinstance(headers, list)
        headers += [(b"idempotency-key", b"a"), (b"idempotency-key", b"b")]
        await exchange.run()
        assert exchange.answer.fault == (400, "bad_request")


DEEP = b"[" * 10_000 + b"]" * 10_000

BAD = {
    "not JSON": b"{messages: []}",
    "cut off": b'{"messages": [{"body": 1}',
    "two values": b"{} {}",
    "no object": b"1",
    "null": b"null",
    "not UTF-8": b'{"messages": [{"body": "\xff"}]}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"messages": []}'.encode("utf-16"),
    "a lone surrogate": b'{"messages": [{"body": "\\ud83d"}]}',
    "NaN": b'{"messages": [{"body": NaN}]}',
    "Infinity": b'{"messages": [{"body": 1, "delay_ms": Infinity}]}',
    "a deep envelope": b'{"messages": ' + DEEP + b"}",
    "a deep body": b'{"messages": [{"body": ' + b"[" * 501 + b"]" * 501 + b"}]}",
    "a very deep body": b'{"messages": [{"body": ' + DEEP + b"}]}",
    "a long number": b'{"messages": [{"body": 1, "delay_ms": ' + b"9" * 5_000 + b"}]}",
    "a large number": b'{"messages": [{"body": 1, "delay_ms": 9007199254740992}]}',
    "a float": b'{"messages": [{"body": 1, "delay_ms": 1.0}]}',
    "a NUL": b'{"messages": [{"body": 1, "key": "\x00"}]}',
    "bytes that are no base64": b'{"messages": [{"data": "a"}]}',
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_bodies(name: str) -> None:
    async with rig() as r:
        await r.queue()
        answer = await r.post(PUBLISH, BAD[name])
        assert answer.fault == (400, "bad_request")
        assert len(answer.body) < 1_000
        assert (await r.stats("q"))["stored"] == 0


async def test_duplicate_keys_and_long_numbers_in_bodies_are_nobodys_business() -> None:
    async with rig() as r:
        long = b'{"messages": [{"body": {"a": 1, "a": ' + b"9" * 5_000 + b"}}]}"
        assert (await r.post(PUBLISH, long)).status == 200


async def test_the_envelopes_last_key_counts() -> None:
    async with rig() as r:
        text = b'{"messages": [], "messages": [{"body": 1}]}'
        assert (await r.post(PUBLISH, text)).status == 200


async def test_bad_bodies_of_every_other_operation() -> None:
    async with rig() as r:
        await r.queue()
        for operation in OPERATIONS:
            if operation.body is None:
                continue
            path = operation.path.replace("{queue}", "q")
            for text in (b"[]", b"nonsense", b'"x"', b"\xff", DEEP):
                answer = await r.ask(operation.method, path, text)
                assert answer.fault == (400, "bad_request"), operation.name


async def test_a_body_that_is_too_large() -> None:
    async with rig(limits=small(frame_bytes=65_536, message_bytes=1_024)) as r:
        await r.queue(max_message_bytes=100)
        answer = await r.post(PUBLISH, b" " * 65_537)
        assert answer.fault == (413, "too_large")
        assert r.limit("frame_bytes") == 1


async def test_a_body_in_pieces_and_a_client_that_goes_amid_it() -> None:
    async with rig() as r:
        exchange = r.exchange("POST", PUBLISH, {"messages": [{"body": 1}]})
        whole = exchange._body
        assert whole is not None
        pieces = [whole[:5], whole[5:]]

        async def receive() -> Message:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        exchange._receive = receive  # type: ignore[method-assign]
        await exchange.run()
        assert exchange.answer.status == 200

        exchange = r.exchange("POST", PUBLISH, {})

        async def gone() -> Message:
            return {"type": "http.disconnect"}

        exchange._receive = gone  # type: ignore[method-assign]
        await exchange.run()
        assert not exchange.answered
        assert (await r.stats("q"))["stored"] == 1


async def test_a_bug_of_ours_is_logged_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig() as r:

        async def broken(*args: Any) -> Any:
            raise RuntimeError("a secret")

        monkeypatch.setattr(r.dispatcher, "get", broken)
        with caplog.at_level(logging.ERROR):
            answer = await r.get(Q)
        assert answer.fault == (500, "internal")
        assert b"secret" not in answer.body
        assert "GET /v1/queues/{queue} failed" in caplog.text
        assert r.metrics.errors.counts["internal"] == 1


async def test_a_receive_that_runs_into_a_bug_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r:
        (id,) = await r.publish("q", 1)

        def broken(*_: Any) -> None:
            raise RuntimeError

        monkeypatch.setattr(r.context.authenticator, "check", broken)
        assert (await r.post(Q + "/receive")).fault == (500, "internal")
        monkeypatch.undo()
        await blocked()
        assert await r.state("q", id) == "ready"
        assert await r.subscriptions() == 0


async def test_requests_are_counted_by_operation_and_status() -> None:
    async with rig() as r:
        await r.publish("q", 1)
        await r.get(Q + "?x=1")
        assert r.metrics.http_requests.counts == {"publish": 1, "get_queue": 1}
        assert r.metrics.http_answers.counts == {"200": 1, "400": 1}
