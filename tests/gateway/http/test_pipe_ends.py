"""How pipes end, what their sessions do then, and how a session moves to another link."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any
from weakref import ref

import msgspec
import pytest
import trio

from pushlane.wire.errors import NotFound
from pushlane.wire.frames import Hello, Resume
from pushlane_gateway.session.settings import SessionSettings
from tests.gateway.http.rig import Rig, blocked, rig
from tests.gateway.http.test_pipe import HELLO, PIPE, opened, talk
from tests.gateway.pipe.talk import Talk, ack, publish, subscribe
from tests.gateway.session.fake_socket import FakeSocket
from tests.gateway.session.rig import Client as SocketClient

TEXT = "x" * 1_000


def connect(r: Rig) -> SocketClient:
    """A WebSocket to the same sessions."""
    client = SocketClient(r.sessions, FakeSocket())
    r.sessions.context.nursery.start_soon(client.serve)
    return client


async def consuming(r: Rig, *bodies: Any) -> tuple[Talk, str, list[Any]]:
    """A pipe that holds messages; and its session."""
    it = talk(r)
    session: str = (await it.open(subscribe(lease_ms=90_000), publish(*bodies)))["session"]
    held: list[Any] = []
    while len(held) < len(bodies):
        if not it.frames:
            await it.fetch()
        held += it.frames.popleft().get("messages", [])
    it.frames.clear()
    return it, session, held


# The client closes


async def test_a_close_with_1000_ends_the_session() -> None:
    async with rig() as r:
        it, session, (message,) = await consuming(r, 1)
        waits = r.begin("POST", PIPE, it.receiving())
        await blocked()
        await it.leave()
        assert (await r.stats("q"))["leased"] == 0  # at once
        await waits.done.wait()
        assert waits.answer.json["close"] == {"code": 1000, "reason": ""}
        assert (await r.post(PIPE, it.receiving())).fault == (404, "not_found")
        assert (await r.post(PIPE, it.sending(ack(message)))).fault == (404, "not_found")
        assert (await talk(r).open(resume={"session": session}))["resumed"] is False
        assert r.metrics.pipe_closes.counts == {"1000": 1}


@pytest.mark.parametrize(("code", "label"), [(1001, "1001"), (1006, "1006"), (4999, "4000")])
async def test_any_other_close_detaches(code: int, label: str) -> None:
    async with rig() as r:
        it, session, (message,) = await consuming(r, 1)
        await it.leave(code)
        assert (await r.stats("q"))["leased"] == 1
        again = talk(r)
        held = {"1": [message["receipt"]]}
        welcome = await again.open(resume={"session": session, "held": held})
        assert (welcome["resumed"], welcome.get("lost")) == (True, None)
        await again.send(ack(message))
        await again.hear("done")
        assert r.metrics.pipe_closes.counts == {label: 1}


async def test_a_page_that_goes_says_all_in_one_request() -> None:
    async with rig() as r:
        it, _, (message, other) = await consuming(r, 1, 2)
        last = {**it.sending(ack(message)), "close": 1000}
        assert (await r.post(PIPE, last)).json == {}
        await blocked()
        assert await r.state("q", message["id"]) == "acked"
        assert await r.state("q", other["id"]) in ("ready", "retrying")
        assert len(r.sessions) == 0


async def test_a_close_behind_a_send_that_is_not_answered() -> None:
    async with rig(session=SessionSettings(outbox_bytes=5_000)) as r:
        it = talk(r)
        await it.open(publish(*[TEXT] * 20), subscribe(100))
        await trio.sleep(1)  # its outbox is full now, and nobody fetches
        stuck = []
        for n in range(2):
            stuck.append(r.begin("POST", PIPE, it.sending(publish(n))))
            await blocked()
        assert not any(one.answered for one in stuck)
        begun = trio.current_time()
        await it.leave()
        assert trio.current_time() == begun
        assert len(r.sessions) == 0
        for one in stuck:
            await one.done.wait()
            assert one.answer.json == {}


# The client is silent


async def test_a_silent_pipe_is_cut_and_its_session_resumed_on_a_socket() -> None:
    async with rig() as r:
        it, session, (message,) = await consuming(r, 1)
        await trio.sleep(29)
        assert (len(r.context.pipes), r.limit("pipe_ms")) == (1, 0)
        await trio.sleep(2)
        assert (len(r.context.pipes), r.limit("pipe_ms")) == (0, 1)
        assert (await r.post(PIPE, it.receiving())).fault == (404, "not_found")
        socket = connect(r)
        welcome = await socket.resume(session, {"1": [message["receipt"]]})
        assert (welcome.resumed, welcome.lost) == (True, {})
        assert (await socket.ack(1, message["receipt"])).lease_lost == []
        assert await r.state("q", message["id"]) == "acked"
        await socket.leave()


async def test_a_session_of_a_socket_goes_on_over_a_pipe() -> None:
    async with rig() as r:
        socket = connect(r)
        session = (await socket.hello(producer="p")).session
        sub = await socket.subscribe("q")
        await socket.publish("q", b"1", b"2")
        first, second = await socket.deliveries(2)
        it = talk(r)
        held = {str(sub): [first.receipt]}
        welcome = await it.open(resume={"session": session, "held": held})
        assert (welcome["resumed"], welcome["session"]) == (True, session)
        assert await socket.socket.until_closed() == (4001, "taken_over")
        (again,) = (await it.hear("deliver"))["messages"]
        assert (again["receipt"], again["body"]) == (second.receipt, 2)
        await it.send(
            {"op": "ack", "id": 1, "sub": sub, "receipts": [first.receipt, second.receipt]}
        )
        assert await it.hear("done") == {"op": "done", "id": 1}
        await it.send(publish(3, id=2))  # the subscription goes on
        assert {(await it.fetch())["frames"][0]["op"]} <= {"published", "deliver"}


async def test_from_pipe_to_pipe() -> None:
    async with rig() as r:
        old, session, _ = await consuming(r, 1)
        waits = r.begin("POST", PIPE, old.receiving())
        await blocked()
        await talk(r).open(resume={"session": session})
        await waits.done.wait()
        assert waits.answer.json["close"] == {"code": 4001, "reason": "taken_over"}
        assert (await r.post(PIPE, old.sending(publish(2)))).json == {}  # it no longer counts
        assert (await r.stats("q"))["ready"] == 0


async def test_silence_counts_from_the_end_of_a_receive() -> None:
    async with rig() as r:
        it = await opened(r)
        waits = r.begin("POST", PIPE, it.receiving(wait_ms=20_000))
        await trio.sleep(45)
        assert waits.answered
        assert len(r.context.pipes) == 1
        await trio.sleep(6)
        assert len(r.context.pipes) == 0


async def test_a_client_that_goes_during_a_receive_is_silent_from_then_on() -> None:
    async with rig() as r:
        it = await opened(r)
        waits = r.begin("POST", PIPE, it.receiving(wait_ms=60_000))
        await trio.sleep(15)
        waits.leave()
        await waits.done.wait()
        assert not waits.answered
        await trio.sleep(29)
        assert len(r.context.pipes) == 1
        await trio.sleep(2)
        assert len(r.context.pipes) == 0


async def test_a_slow_connection_is_no_silence() -> None:
    async with rig() as r:
        it = await opened(r)
        await it.send(publish(1))
        slow = r.exchange("POST", PIPE, it.receiving())
        slow.writing = trio.Event()
        r._nursery.start_soon(slow.run)
        await trio.sleep(100)
        assert len(r.context.pipes) == 1
        slow.writing.set()
        await slow.done.wait()
        await trio.sleep(31)
        assert len(r.context.pipes) == 0


async def test_an_answer_that_could_not_be_written() -> None:
    async with rig() as r:
        it = await opened(r)
        await it.send(publish(1))
        deaf = r.exchange("POST", PIPE, it.receiving())
        deaf.deaf = True
        await deaf.run()
        await it.hear("published")  # the same again
        await trio.sleep(31)
        assert len(r.context.pipes) == 0


# The server closes


async def test_the_close_is_told_until_it_is_heard() -> None:
    async with rig() as r:
        it = talk(r)
        it.pipe = (await r.post(PIPE, {"frames": [publish(1)]})).json["pipe"]
        await blocked()
        assert len(r.context.pipes) == 0
        lost = await r.post(PIPE, it.receiving())
        assert (await r.post(PIPE, it.receiving())).body == lost.body
        await it.closed()
        assert (await r.post(PIPE, it.receiving())).fault == (404, "not_found")
        await trio.sleep(31)
        assert (await r.post(PIPE, {"pipe": it.pipe, "after": 0})).fault == (404, "not_found")
        assert r.limit("pipe_ms") == 0  # it was no pipe any more


BAD = {"authorization": f"Bearer pl_{'x' * 15_000}"}


async def test_a_refused_pipe_is_kept_for_a_moment_without_its_credential(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys") as r:
        for heard in (True, False):
            it = talk(r)
            it.pipe = (await r.post(PIPE, {"frames": [HELLO]}, **BAD)).json["pipe"]
            await blocked()
            pipe = r.context.pipes.find(it.pipe)
            assert pipe.authorization is None
            if heard:
                assert await it.closed() == (1008, "unauthorized")
            kept = ref(pipe)
            del pipe
            await trio.sleep(4.9)
            assert kept() is not None
            await trio.sleep(0.2)
            with pytest.raises(NotFound):
                r.context.pipes.find(it.pipe)
            gc.collect()
            assert kept() is None  # though the timer of `pipe_ms` has not rung
        assert (r.limit("refused_pipe_ms"), r.limit("pipe_ms")) == (1, 0)


async def test_a_refused_pipe_is_one_failed_login(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys") as r:
        await r.post(PIPE, {"frames": [HELLO]}, **BAD)
        await blocked()
        assert r.metrics.failed_logins == 1
        hello = {"op": "hello", "token": "pl_wrong"}
        await r.post(PIPE, {"frames": [hello]}, **BAD)
        await blocked()
        assert r.metrics.failed_logins == 2


async def test_a_client_that_never_fetches() -> None:
    settings = SessionSettings(outbox_bytes=5_000, slow_ms=3_000)
    async with rig(session=settings) as r:
        it = talk(r)
        session = (await it.open(subscribe(100)))["session"]
        await it.hear("subscribed")
        await r.publish("q", *[TEXT] * 10)
        await trio.sleep(4)
        assert (r.limit("outbox_bytes"), r.limit("slow_ms")) == (1, 1)
        await it.send(publish(1))  # it no longer counts
        assert await it.closed() == (4002, "slow_consumer")
        assert it.frames[-1]["op"] == "goaway"
        assert it.frames[-1]["reason"] == "slow_consumer"
        assert (await talk(r).open(resume={"session": session}))["resumed"] is True


async def test_a_client_that_fetches_late_gets_more_then() -> None:
    settings = SessionSettings(outbox_bytes=5_000, slow_ms=3_000)
    async with rig(session=settings) as r:
        it = await opened(r, subscribe(100))
        await it.hear("subscribed")
        for _ in range(5):
            await r.publish("q", *[TEXT] * 10)
            await trio.sleep(2)
            await it.fetch(wait_ms=0)
        await trio.sleep(1)
        await it.fetch(wait_ms=0)
        got = sum(len(frame["messages"]) for frame in it.frames)
        assert got == 50
        assert r.limit("outbox_bytes") >= 4
        assert r.limit("slow_ms") == 0


async def test_a_pipe_has_a_last_limit() -> None:
    async with rig(most_bytes=20_000) as r:
        it = await opened(r, subscribe(100))
        await it.hear("subscribed")
        await r.publish("q", *[TEXT] * 30)
        await blocked()
        assert (len(r.context.pipes), r.limit("outbox_bytes")) == (0, 1)
        assert (await r.post(PIPE, it.receiving())).fault == (404, "not_found")


async def test_an_answer_has_a_bound() -> None:
    async with rig(answer_bytes=3_000) as r:
        it = await opened(r)
        await it.send(*[{"op": "unsubscribe", "id": n, "sub": 99} for n in range(1, 101)])
        sizes: list[int] = []
        while sum(sizes) < 100:
            sizes.append(len((await it.fetch(wait_ms=0))["frames"]))
        assert max(sizes) < 60
        assert [frame["id"] for frame in it.frames] == list(range(1, 101))


# How many


async def test_there_is_a_most_of_pipes() -> None:
    async with rig(pipes=2) as r:
        one, two = await opened(r), await opened(r)
        full = await r.post(PIPE, {"frames": [HELLO]})
        assert (full.fault, r.limit("pipes")) == ((503, "unavailable"), 1)
        assert full.json["error"]["retry_ms"] == 1_000
        await one.leave()
        three = await opened(r)
        assert len(r.context.pipes) == 2
        await two.leave()
        await three.leave()
        assert len(r.context.pipes) == 0


async def test_a_closed_pipe_gives_way() -> None:
    async with rig(pipes=2) as r:
        await opened(r)
        bad = talk(r)
        bad.pipe = (await r.post(PIPE, {"frames": [publish(1)]})).json["pipe"]
        await blocked()
        await opened(r)
        assert (await r.post(PIPE, bad.receiving())).fault == (404, "not_found")


async def test_metrics() -> None:
    async with rig() as r:
        it = await opened(r)
        text = (await r.get("/metrics")).body.decode()
        assert "\npushlane_pipes 1.0\n" in text
        assert "\npushlane_connections 1.0\n" in text
        await it.leave()
        text = (await r.get("/metrics")).body.decode()
        assert "\npushlane_pipes 0.0\n" in text
        assert "\npushlane_pipes_opened_total 1.0\n" in text
        assert '\npushlane_pipe_closes_total{code="1000"} 1.0\n' in text
        assert '\npushlane_http_requests_total{operation="pipe"} 3.0\n' in text


async def test_a_bug_of_ours_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_: object) -> None:
        raise RuntimeError("a bug")

    async with rig() as r:
        monkeypatch.setattr(r.sessions, "handle", broken)
        it = talk(r)
        it.pipe = (await r.post(PIPE, {"frames": [HELLO]})).json["pipe"]
        assert await it.closed() == (1011, "internal")
        assert r.metrics.faults == 1
        assert "session of 127.0.0.1:1 failed" in caplog.text


# The server stops


async def test_a_server_that_stops_takes_no_new_ones() -> None:
    async with rig() as r:
        it = await opened(r)
        r.context.draining.set()
        assert (await r.post(PIPE, {"frames": [HELLO]})).fault == (503, "unavailable")
        await it.send({"op": "unsubscribe", "id": 1, "sub": 9})
        await it.hear("error")


async def test_sessions_drain() -> None:
    async with rig() as r:
        idle = await opened(r)
        it, _, (message,) = await consuming(r, 1)
        waits = [r.begin("POST", PIPE, one.receiving()) for one in (idle, it)]
        await blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(r.sessions.drain)
            begun = trio.current_time()
            for one in waits:
                await one.done.wait()
                assert one.answer.json["frames"][0]["op"] == "goaway"
            assert trio.current_time() == begun
            if waits[0].answer.json.get("close") is None:
                idle.after += 1
                assert await idle.closed() == (1001, "drain")
            it.after += 1
            await it.send(ack(message))
            await it.hear("done")
            assert await it.closed() == (1001, "drain")
        assert trio.current_time() < begun + 1
        assert await r.state("q", message["id"]) == "acked"


async def test_a_drain_waits_no_longer_than_it_should() -> None:
    async with rig(session=SessionSettings(drain_ms=5_000)) as r:
        it, _, _ = await consuming(r, 1)
        begun = trio.current_time()
        await r.sessions.drain()
        assert trio.current_time() == pytest.approx(begun + 5)
        assert await it.closed() == (1001, "drain")


def test_hello_of_the_helpers() -> None:
    """The plain frames of these tests are the protocol's."""
    assert msgspec.json.decode(msgspec.json.encode(Hello())) == HELLO
    assert msgspec.to_builtins(Resume("s")) == {"session": "s"}
