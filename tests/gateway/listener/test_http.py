"""HTTP over h11 and ASGI, with raw bytes: bodies, streaming, keep-alive, clients that go away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from pushlane_gateway.listener.decoder import TINY_BYTES
from pushlane_gateway.listener.exchange import CHUNKS, KNOWN
from tests.gateway.listener.rig import APP, get, head, listening, until

POST = ["POST /upload HTTP/1.1", "Host: localhost"]


def post(body: bytes, *more: str, path: str = "/upload") -> bytes:
    length = f"Content-Length: {len(body)}"
    return head(f"POST {path} HTTP/1.1", "Host: localhost", length, *more) + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head(*POST, "Transfer-Encoding: chunked") + body + end


async def test_requests_one_after_the_other_on_one_connection() -> None:
    async with listening() as rig:
        client = await rig.connect()
        for name in ("ann", "bob"):
            await client.send(get(f"/hello?name={name}"))
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, f"hello {name}".encode())
            assert answer.headers["date"].endswith("GMT")
            assert "connection" not in answer.headers
        assert rig.counters.requests == 2
        assert rig.counters.accepted == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(get("/hello?name=a") + post(b"12345") + get("/hello?name=b"))
        bodies = [(await client.answer()).body for _ in range(3)]
        assert bodies == [b"hello a", b"5", b"hello b"]


async def test_a_request_in_single_bytes() -> None:
    async with listening() as rig:
        client = await rig.connect()
        for byte in post(b"abc"):
            await client.send(bytes((byte,)))
        assert (await client.answer()).body == b"3"


async def test_head_has_the_headers_only() -> None:
    async with listening() as rig:
        client = await rig.connect()
        for _ in range(2):
            await client.send(head("HEAD /hello HTTP/1.1", "Host: localhost"))
            answer = await client.answer(head_only=True)
            assert (answer.status, answer.headers["content-length"]) == (200, "9")
        assert client.buffer == b""


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_that_have_no_body(status: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"not allowed"})

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/") + get("/"))
        assert [(await client.answer()).status for _ in range(2)] == [status, status]
        assert client.buffer == b""


@pytest.mark.parametrize("line", ["GET /hello HTTP/1.0", "GET /hello HTTP/1.1"])
async def test_the_connection_closes_when_asked_to(line: str) -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(head(line, "Host: localhost", "Connection: close"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await client.eof()


async def test_the_scope() -> None:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope)
        await Response()(scope, receive, send)

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/caf%C3%A9/%2F?q=%20a", "X-A: 1", "x-a: 2"))
        assert (await client.answer()).status == 200
        scope = seen[0]
        assert scope["path"] == "/café//"
        assert scope["raw_path"] == b"/caf%C3%A9/%2F"
        assert scope["query_string"] == b"q=%20a"
        assert scope["headers"][1:] == [(b"x-a", b"1"), (b"x-a", b"2")]
        assert scope["client"][0] == "127.0.0.1"
        assert scope["scheme"] == "http"


async def test_a_chunked_body() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(chunked(b"abc", b"x" * 5000))
        answer = await client.answer()
        assert (answer.body, answer.headers["connection"]) == (b"5003", "close")
        await client.eof()


async def test_tiny_chunks_leave_others_their_turns() -> None:
    turns, seen, came = 0, [], bytearray()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"][KNOWN]["tell"]()
        more = True
        while more:
            message = await receive()
            more = message["more_body"]
            came.extend(message["body"])
            seen.append((len(message["body"]), turns))
        await Response()(scope, receive, send)

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with listening(app=app, tiny_frames=CHUNKS) as rig, trio.open_nursery() as nursery:
        nursery.start_soon(neighbour)
        client = await rig.connect()
        text = bytes(range(32, 127)) * 20
        await client.send(chunked(*(text[at : at + 1] for at in range(len(text)))))
        assert (await client.answer()).status == 200
        nursery.cancel_scope.cancel()
    assert came == text
    assert max(size for size, _ in seen) <= CHUNKS
    for (_, before), (_, after) in zip(seen, seen[2:], strict=False):
        assert before < after  # trio takes those that are ready in any order, hence the second next


@pytest.mark.parametrize("pieces", [1, 3])
async def test_tiny_chunks_of_strangers_have_a_rate(pieces: int) -> None:
    async with listening(tiny_frames=5, tiny_frames_rate=1) as rig:
        for count in (5, 50):
            client = await rig.connect()
            chunk = b"x" * (TINY_BYTES - 1)
            data = chunked(*[chunk] * count, b"x" * TINY_BYTES, end=b"")
            step = -(-len(data) // pieces)
            for at in range(0, len(data), step):
                await client.send(data[at : at + step])
            if count == 5:
                await client.send(b"0\r\n\r\n")
                assert (await client.answer()).status == 200
                assert rig.counters.floods == 0
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (429, "throttled")
        assert rig.counters.floods == 1
        assert rig.counters.refusals == {429: 1}


async def test_tiny_chunks_that_come_slowly_are_fine() -> None:
    async with listening(tiny_frames=5, tiny_frames_rate=1_000_000) as rig:
        client = await rig.connect()
        await client.send(chunked(end=b""))
        for _ in range(10):
            await client.send(b"1\r\nx\r\n" * 3)
            await trio.sleep(0.001)
        await client.send(b"0\r\n\r\n")
        assert (await client.answer()).body == b"30"


BAD_CHUNKS = {
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "no number": b"xyz\r\nabc\r\n0\r\n\r\n",
    "a sign": b"-3\r\nabc\r\n0\r\n\r\n",
    "a prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a blank first": b" 3\r\nabc\r\n0\r\n\r\n",
    "21 digits": b"000000000000000000003\r\nabc\r\n0\r\n\r\n",
    "LF alone": b"3\nabc\r\n0\r\n\r\n",
    "longer than said": b"3\r\nabcd\r\n0\r\n\r\n",
    "no end": b"3\r\nabc0\r\n\r\n",
}


@pytest.mark.parametrize("body", BAD_CHUNKS.values(), ids=BAD_CHUNKS)
async def test_bad_chunks_are_400_and_the_end(body: bytes) -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(head(*POST, "Transfer-Encoding: chunked") + body + get("/hello"))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (400, "bad_request")
        await client.eof()
        assert rig.counters.refusals == {400: 1}


async def test_nothing_behind_a_chunked_body_is_taken_for_a_request() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(chunked(b"abc", end=b"0\r\n\n" + get("/hello?name=smuggled")))
        assert (await client.answer()).body == b"3"
        await client.eof()
        assert rig.counters.requests == 1


async def test_smuggling_is_refused_and_the_connection_closed() -> None:
    async with listening() as rig:
        client = await rig.connect()
        lines = [*POST, "Content-Length: 4", "Transfer-Encoding: chunked"]
        await client.send(head(*lines) + b"0\r\n\r\n" + get("/hello?name=smuggled"))
        assert (await client.answer()).status == 400
        await client.eof()
        assert rig.counters.requests == 0


async def test_an_http_2_preface_is_told_what_is_spoken_here() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        answer = await client.answer()
        assert (answer.status, answer.error["message"]) == (505, "HTTP/1.1 only")
        await client.eof()


async def test_a_large_head_is_431() -> None:
    async with listening(head_bytes=1000) as rig:
        client = await rig.connect()
        await client.send(get("/hello", "X: " + "y" * 100_000))
        assert (await client.answer()).status == 431
        await client.eof()


async def test_a_large_body_is_413_before_it_comes() -> None:
    async with listening(body_bytes=1000) as rig:
        client = await rig.connect()
        await client.send(post(b"x" * 300_000))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (413, "too_large")
        await client.eof()
        assert rig.counters.requests == 0


async def test_a_body_that_turns_out_large_is_413_too() -> None:
    async with listening(body_bytes=1000) as rig:
        client = await rig.connect()
        head, _, body = chunked(b"x" * 900, b"x" * 300_000).partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")
        await trio.testing.wait_all_tasks_blocked()
        await client.send(body)
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (413, "too_large")
        await client.eof()
        assert rig.counters.requests == 1


async def test_the_largest_body_is_fine() -> None:
    async with listening(body_bytes=1000) as rig:
        client = await rig.connect()
        await client.send(post(b"x" * 1000))
        assert (await client.answer()).body == b"1000"


async def test_a_body_that_nobody_reads() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(post(b"small", path="/ignore") + get("/hello"))
        assert (await client.answer()).status == 401
        assert (await client.answer()).status == 200
        with trio.move_on_after(1):
            await client.send(post(b"x" * 4_000_000, path="/ignore"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        await client.eof()


async def test_continue_is_said_when_the_app_wants_the_body() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(head(*POST, "Content-Length: 3", "Expect: 100-continue"))
        assert (await client.answer()).status == 100
        await client.send(b"abc")
        assert (await client.answer()).body == b"3"


async def test_continue_is_not_said_when_it_does_not() -> None:
    async with listening() as rig:
        client = await rig.connect()
        lines = ["POST /ignore HTTP/1.1", "Host: localhost", "Content-Length: 3"]
        await client.send(head(*lines, "Expect: 100-continue"))
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        await client.eof()


async def test_a_stalled_body_is_408() -> None:
    async with listening(body_stall_ms=50) as rig:
        client = await rig.connect()
        await client.send(head(*POST, "Content-Length: 10") + b"abc")
        assert (await client.answer()).status == 408
        await client.eof()
        assert rig.counters.stalled_bodies == 1


async def test_a_stalled_head_is_408_and_silence_just_ends() -> None:
    async with listening(head_ms=400) as rig:
        client, silent = await rig.connect(), await rig.connect()
        await client.send(b"GET /hello HTTP/1.1\r\nHost:")
        assert (await client.answer()).status == 408
        await client.eof()
        await silent.eof()
        assert (rig.counters.late_heads, rig.counters.idle_ends) == (1, 1)


async def test_a_trickled_head_gets_no_more_time_than_a_stalled_one() -> None:
    async with listening(head_ms=300) as rig:
        client = await rig.connect()

        async def trickle() -> None:
            for byte in get("/hello", "X: " + "y" * 1000):
                await client.send(bytes((byte,)))
                await trio.sleep(0.005)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trickle)
            assert (await client.answer()).status == 408
            nursery.cancel_scope.cancel()


async def test_keep_alive_ends() -> None:
    async with listening(keep_alive_ms=50) as rig:
        client = await rig.connect()
        await client.send(get("/hello"))
        assert (await client.answer()).status == 200
        with trio.fail_after(20):
            await client.eof()
        assert rig.counters.idle_ends == 1


async def numbers() -> AsyncIterator[bytes]:
    for number in range(3):
        yield b"%d " % number
        await trio.sleep(0.01)


async def test_a_streamed_answer_comes_piece_by_piece() -> None:
    async def stream(request: Request) -> Response:
        return StreamingResponse(numbers())

    async with listening(app=Starlette(routes=[Route("/", stream)])) as rig:
        client = await rig.connect()
        await client.send(get("/") + get("/"))
        for _ in range(2):
            answer = await client.answer()
            assert (answer.body, answer.headers["transfer-encoding"]) == (b"0 1 2 ", "chunked")


async def test_an_app_that_fails_is_500_and_logged_without_the_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(get("/fail?token=secret"))
        assert (await client.answer()).status == 500
        await until(lambda: rig.counters.failures == 1)
    assert "GET /fail" in caplog.text
    assert "boom" in caplog.text
    assert "secret" not in caplog.text


async def test_an_app_that_fails_in_the_middle_cuts_the_connection() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("boom")

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        await client.until(b"4\r\nhalf\r\n")
        await client.eof()


@pytest.mark.parametrize("sent", [[], ["http.response.start"], ["http.response.push"]])
async def test_an_app_that_does_not_answer_is_500(sent: list[str]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for kind in sent:
            await send({"type": kind, "status": 200, "headers": []})

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        assert (await client.answer()).error["code"] == "internal"


class LongPoll:
    """Waits for a message, or for the client to go."""

    def __init__(self) -> None:
        self.waiting = trio.Event()
        self.given_back = trio.Event()
        self.message = trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_gone, receive, nursery.cancel_scope)
            self.waiting.set()
            try:
                await self.message.wait()
                await Response(b"message")(scope, receive, send)
                nursery.cancel_scope.cancel()
            except trio.Cancelled:
                self.given_back.set()
                raise

    async def _until_gone(self, receive: Any, scope: trio.CancelScope) -> None:
        assert (await receive())["type"] == "http.disconnect"
        scope.cancel()


@pytest.mark.parametrize("ahead", [b"", get("/")])
async def test_a_long_poll_whose_client_goes_is_cancelled_at_once(ahead: bytes) -> None:
    app = LongPoll()
    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(post(b"{}") + ahead)
        await app.waiting.wait()
        await client.aclose()
        with trio.fail_after(20):
            await app.given_back.wait()
            await rig.settle()
        assert rig.counters.failures == 0


async def test_requests_sent_ahead_of_a_long_poll_are_bounded() -> None:
    app = LongPoll()
    async with listening(app=app, pipeline_bytes=1000) as rig:
        client = await rig.connect()
        await client.send(post(b"{}"))
        await app.waiting.wait()
        with trio.move_on_after(0.3) as scope:
            await client.send(get("/") * 1_000_000)
        assert scope.cancelled_caught, "the rest stays in the kernel's buffers"
        app.message.set()
        assert (await client.answer()).body == b"message"
        assert (await client.answer()).body == b"message"


async def test_two_tasks_of_an_app_may_wait_for_the_disconnect() -> None:
    seen: list[str] = []
    waiting = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["more_body"] is False

        async def wait() -> None:
            seen.append((await receive())["type"])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            waiting.set()

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        await waiting.wait()
        await client.aclose()
        await rig.settle()
        assert seen == ["http.disconnect"] * 2


async def test_is_disconnected_sees_it() -> None:
    seen: list[bool] = []
    asked, gone = trio.Event(), trio.Event()

    async def app(request: Request) -> Response:
        seen.append(await request.is_disconnected())
        asked.set()
        await gone.wait()
        await trio.sleep(0.02)
        seen.append(await request.is_disconnected())
        return Response()

    async with listening(app=Starlette(routes=[Route("/", app)])) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        await asked.wait()
        await client.aclose()
        gone.set()
        await rig.settle()
        assert seen == [False, True]


async def test_sending_to_a_client_that_has_gone_raises() -> None:
    ended = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            while True:
                await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": True})
        finally:
            ended.set()

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        await client.exactly(10_000)
        await client.aclose()
        with trio.fail_after(20):
            await ended.wait()
        await rig.settle()
        assert rig.counters.failures == 0


async def test_a_client_that_does_not_read_is_cut() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response(b"x" * 50_000_000)(scope, receive, send)

    async with listening(app=app, write_stall_ms=100) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        await rig.settle()
        assert rig.counters.stalled_writes == 1


async def test_a_client_that_goes_in_the_middle_of_its_body() -> None:
    async with listening() as rig:
        client = await rig.connect()
        await client.send(head(*POST, "Content-Length: 10") + b"abc")
        await trio.sleep(0.02)
        await client.aclose()
        await rig.settle()
        assert rig.counters.failures == 0


async def test_a_header_with_a_line_break_does_not_get_out() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"x", b"a\r\nset-cookie: b")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        answer = await client.answer()
        assert answer.status == 500
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(("stall_ms", "whole_ms"), [(200, 300_000), (20_000, 200)])
async def test_a_body_that_drips_ends(stall_ms: int, whole_ms: int) -> None:
    async with listening(body_stall_ms=stall_ms, body_ms=whole_ms, body_rate=1_000_000) as rig:
        client = await rig.connect()

        async def drip() -> None:
            while True:
                await client.send(b"x")
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            await client.send(head(*POST, "Content-Length: 100000"))
            nursery.start_soon(drip)
            assert (await client.answer()).status == 408
            nursery.cancel_scope.cancel()
        assert (rig.counters.slow_bodies, rig.counters.stalled_bodies) == (1, 0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (head(*POST, "Content-Length: 90000") + b"x" * 60_000, b"GET / HTTP/1.1\r\n" + b"x" * 50),
        (head("GET / HTTP/1.1")[:-2] + b"X: " + b"x" * 9_000, head(*POST, "Content-Length: 9")),
    ],
)
async def test_what_strangers_leave_half_sent_has_a_budget(first: bytes, second: bytes) -> None:
    most = len(first) - 100
    async with listening(unauthenticated_total_bytes=most) as rig:
        other, client = await rig.connect(), await rig.connect()
        await other.send(second)
        await client.send(first)
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert rig.counters.overloads == 1
        assert rig.counters.refusals == {503: 1}
        other.cut()
        await until(lambda: rig.listener.budget.held == 0)


async def test_the_head_counts_while_its_body_is_waited_for() -> None:
    async with listening(unauthenticated_total_bytes=20_000) as rig:
        clients = [await rig.connect() for _ in range(3)]
        for number, client in enumerate(clients):
            line = "X: " + "x" * (8_000 + number)
            await client.send(head(*POST, "Content-Length: 9", line) + b"12345678")
        answer = await clients[2].answer()
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert rig.listener.budget.held > 16_000
        for client in clients[:2]:
            await client.send(b"9")
            assert (await client.answer()).body == b"9"
        assert rig.listener.budget.held == 0


LARGE = b"x" * 30_000_000


@pytest.mark.parametrize("known", [False, True])
async def test_an_answer_that_a_stranger_does_not_take_counts(known: bool) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if known:
            scope["extensions"][KNOWN]["tell"]()
        await Response(LARGE if scope["path"] == "/large" else b"small")(scope, receive, send)

    async with listening(app=app, unauthenticated_total_bytes=10_000_000) as rig:
        slow, other = await rig.connect(), await rig.connect()
        await slow.send(get("/large"))
        await slow.until(b"\r\n\r\n")
        await other.send(get("/small"))
        assert (await other.answer()).body == b"small"
        if known:
            assert await slow.exactly(len(LARGE)) == LARGE
            assert (rig.counters.overloads, rig.counters.refusals) == (0, {})
            return
        await until(lambda: rig.counters.overloads == 1)
        with pytest.raises((AssertionError, trio.BrokenResourceError)):
            await slow.exactly(len(LARGE))
        assert rig.counters.refusals == {}  # nothing was said in the middle of the answer
        assert rig.listener.budget.held == 0


async def test_an_answer_that_is_taken_gives_back_what_it_held() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Response(LARGE)(scope, receive, send)

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        await until(lambda: rig.listener.budget.held > 1_000_000)
        assert (await client.answer()).body == LARGE
        await until(lambda: rig.listener.budget.held == 0)


async def test_a_body_of_somebody_known_has_no_part_in_it() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope["extensions"][KNOWN]["tell"]()
        await APP(scope, receive, send)

    async with listening(app=app, unauthenticated_total_bytes=1_000) as rig:
        client = await rig.connect()
        await client.send(head(*POST, "Content-Length: 50000"))
        for _ in range(5):
            await client.send(b"x" * 10_000)
        assert (await client.answer()).body == b"50000"
        assert rig.listener.budget.held == 0
