"""A session through HTTP requests: what is sent and fetched, once each, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from tests.dispatcher.rig import Gate, ScriptedStore
from tests.gateway.http.client import Client
from tests.gateway.http.rig import Rig, blocked, rig, small
from tests.gateway.pipe.talk import Frame, Talk, ack, publish, subscribe

PIPE = "/v1/pipe"
HELLO = {"op": "hello"}


def talk(client: Client) -> Talk:
    async def ask(body: Frame) -> Any:
        answer = await client.post(PIPE, body)
        assert answer.status == 200, answer
        return answer.json

    return Talk(ask)


async def opened(client: Client, *frames: Frame, **hello: Any) -> Talk:
    """Welcomed."""
    it = talk(client)
    await it.open(*frames, **hello)
    return it


async def test_the_whole_way() -> None:
    async with rig() as r:
        it = talk(r)
        welcome = await it.open(publish({"n": 1}))
        assert (welcome["resumed"], welcome["node"]) == (False, "node")
        assert it.pipe.startswith("node.")
        assert len(it.pipe) <= 128
        assert len((await it.hear("published"))["ids"]) == 1
        await it.send(subscribe())
        assert (await it.hear("subscribed"))["sub"] == 1
        (message,) = (await it.hear("deliver"))["messages"]
        assert message["body"] == {"n": 1}
        await it.send(ack(message))
        assert await it.hear("done") == {"op": "done", "id": 3}
        assert await r.state("q", message["id"]) == "acked"


async def test_names_can_not_be_guessed() -> None:
    async with rig() as r:
        names = {(await opened(r)).pipe for _ in range(3)}
        assert len(names) == 3
        assert min(len(name) for name in names) >= len("node.") + 32


async def test_bodies_are_carried_byte_for_byte() -> None:
    async with rig() as r:
        it = await opened(r, subscribe())
        body = b'{"a" : 1e400, "\\u00e9":"\xc3\xa9"}'
        frame = b'{"op":"publish","id":1,"to":"q","messages":[{"body":%b}]}' % body
        text = b'{"pipe":"%b","n":1,"frames":[ %b ]}' % (it.pipe.encode(), frame)
        assert (await r.post(PIPE, text)).json == {}
        await blocked()
        answer = await r.post(PIPE, it.receiving())
        assert body in answer.body


async def test_a_repeated_send_is_taken_once() -> None:
    async with rig() as r:
        it = await opened(r)
        body = it.sending(publish(1))
        for _ in range(3):
            assert (await r.post(PIPE, body)).json == {}
        await it.hear("published")
        await it.send(publish(2))
        await it.hear("published")
        assert (await r.stats("q"))["ready"] == 2


@pytest.mark.parametrize("n", [1, 4, 2**53 - 1])
async def test_a_send_out_of_order_cuts_the_pipe(n: int) -> None:
    async with rig() as r:
        it = talk(r)
        session = (await it.open())["session"]
        await it.send(publish(1))
        await it.send(publish(2))
        waits = r.begin("POST", PIPE, {**it.receiving(), "after": it.after})
        await blocked()
        refused = await r.post(PIPE, {**it.sending(publish(3)), "n": n})
        assert refused.fault == (409, "conflict")
        await waits.done.wait()
        assert (await r.post(PIPE, it.receiving())).fault == (404, "not_found")
        assert (await talk(r).open(resume={"session": session}))["resumed"] is True
        assert r.metrics.pipe_closes.counts == {"1006": 1}


async def test_an_answer_that_was_lost_is_given_again() -> None:
    async with rig() as r:
        it = await opened(r, subscribe())
        await it.hear("subscribed")
        await it.send(publish(1))
        lost = await r.post(PIPE, it.receiving())
        again = await r.post(PIPE, it.receiving())
        assert lost.body == again.body
        await it.hear("published")
        assert [one["body"] for one in (await it.hear("deliver"))["messages"]] == [1]


async def test_an_after_that_makes_no_sense() -> None:
    async with rig() as r:
        it = await opened(r)
        refused = await r.post(PIPE, {"pipe": it.pipe, "after": it.after + 1})
        assert refused.fault == (409, "conflict")
        await it.send(publish(1))  # nothing has happened to the pipe
        await it.hear("published")


async def test_a_receive_waits() -> None:
    async with rig() as r:
        it = await opened(r)
        for fields, seconds in (({}, 20), ({"wait_ms": 3_000}, 3), ({"wait_ms": 0}, 0)):
            begun = trio.current_time()
            assert await it.fetch(**fields) == {"n": 1, "frames": []}
            assert trio.current_time() == pytest.approx(begun + seconds)
        waits = r.begin("POST", PIPE, it.receiving())
        await trio.sleep(0.01)
        await it.send({"op": "unsubscribe", "id": 5, "sub": 9})
        await waits.done.wait()
        (frame,) = waits.answer.json["frames"]
        assert (frame["op"], frame["id"]) == ("error", 5)


async def test_a_receive_waits_no_longer_than_the_limit() -> None:
    async with rig(limits=small(wait_ms=5_000)) as r:
        it = await opened(r)
        begun = trio.current_time()
        await it.fetch()
        assert trio.current_time() == pytest.approx(begun + 5)
        refused = await r.post(PIPE, it.receiving(wait_ms=5_001))
        assert (refused.fault, r.limit("wait_ms")) == ((400, "bad_request"), 1)


async def test_a_newer_receive_ends_the_older() -> None:
    async with rig() as r:
        it = await opened(r)
        old = r.begin("POST", PIPE, it.receiving())
        await blocked()
        new = r.begin("POST", PIPE, it.receiving())
        await old.done.wait()
        assert old.answer.json == {"n": 1, "frames": []}
        await it.send(publish(1))
        await new.done.wait()
        assert new.answer.json["n"] == 2


async def test_beats_come_through() -> None:
    async with rig() as r:
        it = await opened(r)
        begun = trio.current_time()
        await it.hear("beat")
        await it.hear("beat")
        assert trio.current_time() == pytest.approx(begun + 50)


async def test_a_send_is_answered_when_its_frames_are_taken() -> None:
    """So a client that publishes faster than the store takes it is held back."""
    store, gate = ScriptedStore(), Gate()
    async with rig(store, limits=small(unanswered=2)) as r:
        it = await opened(r, publish(0))
        await it.hear("published")
        store.script.always["append"] = gate
        full = r.begin("POST", PIPE, it.sending(publish(1, id=1), publish(2, id=2)))
        await blocked()
        again = r.begin("POST", PIPE, {"pipe": it.pipe, "n": 1, "frames": [publish(1)]})
        await trio.sleep(10)
        assert not full.answered
        assert not again.answered
        assert await it.fetch(wait_ms=0) == {"n": it.after, "frames": []}
        assert r.limit("unanswered") == 1
        gate.released.set()
        for one in (full, again):
            await one.done.wait()
            assert one.answer.json == {}
        assert (await r.stats("q"))["ready"] == 3


async def test_a_bad_frame_harms_nobody_else() -> None:
    async with rig() as r:
        it = await opened(r)
        for id, body in ((1, b'"\\ud83d"'), (2, b"[" * 2_000 + b"]" * 2_000)):
            good = b'{"op":"publish","id":9,"to":"q","messages":[{"body":1}]}'
            bad = b'{"op":"publish","id":%d,"to":"q","messages":[{"body":%b}]}' % (id, body)
            text = b'{"pipe":"%b","n":%d,"frames":[%b,%b]}'
            sent = await r.post(PIPE, text % (it.pipe.encode(), id, bad, good))
            assert (sent.status, sent.json) == (200, {})
            error = await it.hear("error")
            assert (error["id"], error["code"]) == (id, "bad_request")
            await it.hear("published")


async def test_what_is_no_frame() -> None:
    async with rig() as r:
        it = await opened(r)
        await it.send("hello")  # type: ignore[arg-type]
        assert (await it.hear("error"))["code"] == "bad_request"
        await it.send({"op": "nonsense", "id": 7})
        assert (await it.hear("error"))["id"] == 7
        text = b'{"pipe":"%b","n":3,"frames":[%b,nope]}' % (
            it.pipe.encode(),
            b"[" * 2_000 + b"]" * 2_000,
        )
        assert (await r.post(PIPE, text)).json == {}
        assert await it.closed() == (1002, "bad_request")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"frames": []},
        {"frames": {}},
        {"frames": [HELLO], "n": 1},
        {"frames": [HELLO], "after": 0},
        {"frames": [HELLO], "close": 1000},
        {"n": 1},
        {"after": 0},
        {"close": 1000},
        {"pipe": "PIPE"},
        {"pipe": "PIPE", "n": 1},
        {"pipe": "PIPE", "n": 0, "frames": [HELLO]},
        {"pipe": "PIPE", "n": "1", "frames": [HELLO]},
        {"pipe": "PIPE", "n": 1, "frames": []},
        {"pipe": "PIPE", "frames": [HELLO]},
        {"pipe": "PIPE", "after": -1},
        {"pipe": "PIPE", "after": 1, "wait_ms": -1},
        {"pipe": "PIPE", "after": 1, "wait_ms": 60_001},
        {"pipe": "PIPE", "after": 1, "n": 1, "frames": [HELLO]},
        {"pipe": "PIPE", "after": 1, "close": 1000},
        {"pipe": "PIPE", "close": 999},
        {"pipe": "PIPE", "close": 5000},
        {"pipe": "x" * 129, "after": 0},
        {"pipe": 5, "after": 0},
        b"[]",
        b"nonsense",
        b'{"frames":[{"op":]}',
        b'{"frames":["\xff"]}',
        b'{"frames":[' + b"[" * 60_000,
    ],
)
async def test_malformed_requests(body: Any) -> None:
    async with rig() as r:
        it = await opened(r)
        if isinstance(body, dict) and body.get("pipe") == "PIPE":
            body = {**body, "pipe": it.pipe}
        assert (await r.post(PIPE, body)).fault == (400, "bad_request")
        await it.send(publish(1))  # nothing has happened to the pipe
        await it.hear("published")


async def test_the_usual_rules_of_http() -> None:
    async with rig(limits=small(frame_bytes=65_536, message_bytes=1_024)) as r:
        assert (await r.get(PIPE)).status == 405
        form = await r.post(PIPE, b"{}", content_type="text/plain")
        assert form.fault == (400, "bad_request")
        large = await r.post(PIPE, {"frames": [HELLO, "x" * 65_536]})
        assert (large.fault, r.limit("unauthenticated_bytes")) == ((413, "too_large"), 1)
        secret = await r.post(PIPE + "?token=x", {"frames": [HELLO]})
        assert secret.fault == (400, "bad_request")
        for id in ("node.nothing", "x"):
            assert (await r.post(PIPE, {"pipe": id, "after": 0})).fault == (404, "not_found")


async def test_pages_elsewhere(tmp_path: Path) -> None:
    app = "https://app.example.com"
    async with rig(keys=tmp_path / "keys.toml", origins=(app,)) as r:
        good = await r.post(PIPE, {"frames": [HELLO]}, origin=app)
        assert (good.status, good.headers["access-control-allow-origin"]) == (200, app)
        assert good.headers["cache-control"] == "no-store"
        evil = await r.post(PIPE, {"frames": [HELLO]}, origin="https://evil.example")
        assert evil.fault == (403, "forbidden")
        assert r.metrics.pipes_opened == 1


async def tokens(r: Rig) -> tuple[str, str]:
    """Of two tenants."""
    ann, bob = r.caller("admin:*"), r.caller("admin:*", tenant="other")
    return ann._headers["authorization"][7:], bob._headers["authorization"][7:]


async def test_the_token_of_hello_or_of_the_header(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("admin:*")
        token = caller._headers["authorization"].removeprefix("Bearer ")
        assert (await talk(caller).open())["resumed"] is False
        assert (await talk(r).open(token=token))["resumed"] is False
        assert (await talk(r.caller("admin:*")).open(token=token))["resumed"] is False
        for hello in ({}, {"token": "nonsense"}):
            it = talk(r)
            it.pipe = (await r.post(PIPE, {"frames": [{**HELLO, **hello}]})).json["pipe"]
            assert await it.closed() == (1008, "unauthorized")
            assert [frame["op"] for frame in it.frames] == ["error"]
            assert it.frames[0]["code"] == "unauthorized"


async def test_a_token_that_expires(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        made = await r.caller("admin:*").post(
            "/v1/tokens", {"rules": ["admin:*"], "ttl_ms": 60_000}
        )
        it = await opened(r, token=made.json["token"])
        begun = trio.current_time()
        assert (await it.hear("goaway"))["reason"] == "token_expired"
        assert await it.closed() == (1001, "token_expired")
        assert trio.current_time() - begun == pytest.approx(65, abs=1.5)


async def test_the_first_frame_is_hello() -> None:
    async with rig() as r:
        it = talk(r)
        it.pipe = (await r.post(PIPE, {"frames": [publish(1)]})).json["pipe"]
        assert await it.closed() == (1008, "bad_request")


async def test_nobody_takes_up_the_session_of_another(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        ann, bob = await tokens(r)
        session = (await talk(r).open(token=ann))["session"]
        resume = {"session": session}
        assert (await talk(r).open(token=bob, resume=resume))["resumed"] is False
        assert (await talk(r).open(token=ann, resume=resume))["resumed"] is True


async def test_a_large_body_needs_the_name_of_a_pipe_that_was_welcomed() -> None:
    text = "x" * 70_000
    async with rig() as r:
        it = await opened(r)
        large = it.sending({"op": "publish", "id": 1, "to": "q", "messages": [{"body": text}]})
        refused = await r.post(PIPE, large)
        assert (refused.fault, r.limit("unauthenticated_bytes")) == ((413, "too_large"), 1)
        unknown = await r.post(PIPE, large, pushlane_pipe="node.nothing")
        assert unknown.fault == (404, "not_found")
        assert (await r.post(PIPE, large, pushlane_pipe=it.pipe)).status == 200
        assert (await it.hear("published"))["id"] == 1
        other = await opened(r)
        mixed = await r.post(PIPE, it.receiving(), pushlane_pipe=other.pipe)
        assert mixed.fault == (400, "bad_request")
        del large["pipe"]
        large["n"] = it.sends + 1
        assert (await r.post(PIPE, large, pushlane_pipe=it.pipe)).status == 200


async def test_a_pipe_may_be_opened_with_much_by_who_is_known(tmp_path: Path) -> None:
    held = {"1": ["x" * 99 + ".1"] * 1_000}
    hello = {"op": "hello", "resume": {"session": "s", "held": held}}
    async with rig(keys=tmp_path / "keys.toml") as r:
        assert (await r.post(PIPE, {"frames": [hello]})).fault == (413, "too_large")
        known = r.caller("consume:*")
        assert (await known.post(PIPE, {"frames": [hello]})).status == 200


@pytest.mark.parametrize(("padding", "status"), [(10, 200), (9_000, 400)])
async def test_a_large_request_that_names_no_pipe_is_not_taken_apart(
    padding: int, status: int
) -> None:
    bad = b'{"frames":[{"op":"hello","client":"\\ud800"},{"op":"%b"}]}' % (b"x" * padding)
    async with rig() as r:
        assert (await r.post(PIPE, bad)).status == status
