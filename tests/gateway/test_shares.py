"""Low rights, high cost: what one caller takes leaves enough for all others.

A real server over real sockets. The attacker has a short-lived token with one right, or a key.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from pushlane.wire.frames import (
    ErrorFrame,
    Goaway,
    Hello,
    Publish,
    Published,
    PublishMessage,
    Resume,
    Subscribe,
    Subscribed,
    Welcome,
)
from pushlane_dispatcher.browsing.view import read_view
from pushlane_gateway.auth.rule import parse_rules
from pushlane_gateway.configuration.load import load
from pushlane_gateway.server import Server, open_server
from tests.gateway.auth.tools import make_token
from tests.gateway.http.whole.test_server import connected, request, until, value
from tests.gateway.listener.rig import Answer
from tests.gateway.listener.rig import Client as Raw
from tests.gateway.test_server import Client, client

RECEIVE = "/v1/queues/q/receive"
MESSAGES = "/v1/queues/q/messages"


class Rig:
    def __init__(self, server: Server, keys: Path) -> None:
        self.server = server
        self._keys = keys

    def key(self, *rules: str, tenant: str = "default") -> str:
        _, text = make_token(self._keys, *rules, tenant=tenant)
        self.server.authenticator.reload()
        return text

    def token(self, *rules: str) -> str:
        """A short-lived one with these rights, made from a key of its own."""
        authenticator = self.server.authenticator
        by = authenticator.authenticate(self.key())
        return authenticator.issue(by, parse_rules(rules))[0]

    def reached(self, limit: str) -> int:
        return self.server.metrics.limits.counts[limit]

    def in_use(self, name: str) -> int:
        return self.server.sessions.context.admission.taken()[name]

    async def ask(self, token: str, method: str, target: str, body: Any = None) -> Answer:
        async with connected(self.server) as it:
            await it.send(request(method, target, body, f"Authorization: Bearer {token}"))
            return await it.answer()

    @asynccontextmanager
    async def session(self, token: str, **hello: Any) -> AsyncIterator[Client]:
        async with client(self.server, token=token) as it:
            await it.say(Hello(**hello))
            yield it


@asynccontextmanager
async def rig(tmp_path: Path, *settings: str) -> AsyncIterator[Rig]:
    keys = tmp_path / "keys.json"
    make_token(keys)
    flags = {"listen": ["127.0.0.1:0"], "store": f"sqlite:{tmp_path / 'data'}"}
    settings = (f"auth.keys_file={keys}", "session.close_ms=100", *settings)
    configuration = load(flags=flags, settings=settings, environment={})
    with trio.fail_after(60):
        async with open_server(configuration) as server:
            yield Rig(server, keys)


def resident() -> int:
    """This process's memory, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


async def test_one_token_takes_its_polls_and_no_more(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, AsyncExitStack() as stack:
        page, service = r.token("consume:q"), r.key("consume:q")
        head = f"Authorization: Bearer {page}"
        for _ in range(20):
            it = await stack.enter_async_context(connected(r.server))
            await it.send(request("POST", RECEIVE, {}, head))
        await until(lambda: r.in_use("polls") == 20)
        refused = await r.ask(page, "POST", RECEIVE, {})
        assert (refused.status, refused.error["code"]) == (429, "throttled")
        minted: Any = await r.ask(page, "POST", "/v1/tokens", {"rules": ["consume:q"]})
        minted = value(minted)["token"]
        assert (await r.ask(minted, "POST", RECEIVE, {})).status == 429, "it is of one family"
        assert r.reached("polls_share") == 2
        assert (await r.ask(service, "POST", RECEIVE, {"wait_ms": 0})).status == 200


async def test_peeks_stay_within_their_bytes(tmp_path: Path) -> None:
    """Sixteen peeks by a consume-only token: a few at a time, and each reads no more than it
    answers, or little more."""
    size, count = 250_000, 400
    async with rig(tmp_path) as r:
        publisher = r.key("publish:q")
        body = {"messages": [{"body": "x" * size} for _ in range(10)]}
        for _ in range(count // 10):
            assert (await r.ask(publisher, "POST", MESSAGES, body)).status == 200
        gc.collect()
        before, highest, statuses = resident(), 0, []
        page, service = r.token("consume:q"), r.key("consume:q")

        async def peek() -> None:
            nonlocal highest
            answer = await r.ask(page, "GET", "/v1/queues/q/peek?limit=1000")
            statuses.append(answer.status)
            if answer.status == 200:
                assert 15 <= len(value(answer)["messages"]) <= 17
                assert value(answer)["next"]
            highest = max(highest, resident())

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(peek)
            other = await r.ask(service, "GET", "/v1/queues/q/peek?limit=1")
            assert other.status == 200
        assert set(statuses) == {200, 429}
        refused = r.reached("peeks_share") + r.reached("answers_bytes_share")
        assert refused == statuses.count(429)
        assert highest - before < 100 << 20, f"{(highest - before) >> 20} MiB"
        assert (r.in_use("peeks"), r.in_use("answers_bytes")) == (0, 0)


async def test_a_peek_goes_on_where_it_ended(tmp_path: Path) -> None:
    async with rig(tmp_path, "http.answer_bytes=10000") as r:
        service = r.key("publish:q", "consume:q")
        body = {"messages": [{"body": f"{n:04}" + "x" * 1_000} for n in range(50)]}
        await r.ask(service, "POST", MESSAGES, body)
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            target = f"/v1/queues/q/peek?limit=1000&after={after}"
            answer = value(await r.ask(service, "GET", target))
            assert 1 <= len(answer["messages"]) <= 10
            seen += [message["body"][:4] for message in answer["messages"]]
            after = answer.get("next")
        assert seen == [f"{n:04}" for n in range(50)]


async def test_looks_at_closed_queues_leave_places_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty by a publish-only token, of a queue that takes its time: four at once."""
    async with rig(tmp_path) as r:
        page, service = r.token("publish:big"), r.key("consume:q", "publish:q", "manage:*")
        for name in ("big", "q"):
            assert (await r.ask(service, "POST", "/v1/queues", {"name": name})).status == 201
        gate, looks = trio.Event(), []

        async def slow(context: Any, row: Any, number: int) -> Any:
            looks.append(row.name)
            if row.name == "big":
                await gate.wait()
            return await read_view(context, row, number)

        monkeypatch.setattr("pushlane_dispatcher.browsing.view.read_view", slow)
        statuses: list[int] = []
        row = await r.server.dispatcher.get("default", "big")
        targets = "/stats", f"/messages/{row.id}-0-4-0/explain"

        async def look(target: str) -> None:
            statuses.append((await r.ask(page, "GET", "/v1/queues/big" + target)).status)

        async with trio.open_nursery() as nursery:
            for n in range(40):
                nursery.start_soon(look, targets[n % 2])
            await until(lambda: len(statuses) == 36)
            assert set(statuses) == {429}
            assert r.in_use("peeks") == 4
            assert (await r.ask(page, "GET", "/v1/queues?stats=true")).status == 429
            nursery.start_soon(r.ask, service, "GET", "/v1/queues/q/peek")
            await until(lambda: r.in_use("peeks") == 5)
            assert looks == ["big"] * 4
            gate.set()
        assert (looks.count("q"), r.in_use("peeks")) == (1, 0)
        assert r.reached("peeks_share") == 37


async def test_dry_runs_of_a_redrive_take_a_place(tmp_path: Path) -> None:
    async with rig(tmp_path, "http.peeks=1") as r:
        key = r.key()
        assert (await r.ask(key, "POST", "/v1/queues", {"name": "q.dead"})).status == 201
        admission = r.server.sessions.context.admission
        target, body = "/v1/queues/q.dead/redrive", {"max": 1, "to": "q"}
        assert (await r.ask(key, "POST", "/v1/queues", {"name": "q"})).status == 201
        with admission.admit(r.server.authenticator.authenticate(r.key()), "peeks"):
            assert (await r.ask(key, "POST", target, {**body, "dry_run": True})).status == 429
            assert (await r.ask(key, "POST", target, body)).status == 200
        assert (await r.ask(key, "POST", target, {**body, "dry_run": True})).status == 200


async def never_reads(r: Rig, stack: AsyncExitStack, token: str, target: str) -> None:
    """Ask for something, and read nothing of the answer."""
    it = await stack.enter_async_context(connected(r.server))
    await it.send(request("GET", target, None, f"Authorization: Bearer {token}"))


async def test_answers_that_nobody_reads(tmp_path: Path) -> None:
    settings = "http.peeks=100", "http.answers_bytes=40000000"
    async with rig(tmp_path, *settings) as r, AsyncExitStack() as stack:
        attacker, other = r.key("consume:q"), r.key("publish:q", "consume:q")
        body = {"messages": [{"body": "x" * 250_000} for _ in range(10)]}
        for _ in range(4):
            await r.ask(other, "POST", MESSAGES, body)
        for _ in range(12):
            await never_reads(r, stack, attacker, "/v1/queues/q/peek?limit=1000")
        await until(lambda: r.reached("answers_bytes_share") > 0)
        assert r.in_use("answers_bytes") <= 20_000_000
        assert (await r.ask(other, "GET", "/v1/queues/q/peek?limit=1000")).status == 200
        assert (await r.ask(other, "POST", RECEIVE, {"max": 10})).status == 200


async def subscribe(it: Client, queue: str, id: int) -> Any:
    await it.say(Subscribe(id, queue, 1))
    return await it.hear()


async def test_queues_of_one_key_lock_nobody_out(tmp_path: Path) -> None:
    async with rig(tmp_path, "dispatcher.open_shards=20") as r:
        attacker = r.key("consume:*", tenant="evil")
        victim = r.key("publish:*", "consume:*", tenant="good")
        async with r.session(attacker) as it, r.session(victim) as other:
            await it.hear_a(Welcome)
            await other.hear_a(Welcome)
            answers = [await subscribe(it, f"q{n}", n + 1) for n in range(15)]
            assert [isinstance(one, Subscribed) for one in answers] == [True] * 10 + [False] * 5
            assert r.reached("open_shards_share") == 5
            for n in range(10):
                message = PublishMessage(data=b"1")
                await other.say(Publish(n + 1, f"mine{n}", [message]))
                assert (await other.hear_a(Published)).failed == []


async def test_idle_queues_make_room_for_their_own_key(tmp_path: Path) -> None:
    async with rig(tmp_path, "dispatcher.open_shards=20") as r:
        key, other = r.key("publish:*"), r.key("publish:*", tenant="other")
        body = {"messages": [{"body": 1}]}
        for name in ("a", "b"):
            assert (await r.ask(other, "POST", f"/v1/queues/{name}/messages", body)).status == 200
        for n in range(25):
            target = f"/v1/queues/q{n}/messages"
            assert (await r.ask(key, "POST", target, body)).status == 200
        assert r.server.dispatcher.open_shards == 12, "ten of its own, and the other's"


async def test_what_was_opened_for_nobody_counts_for_who_uses_it(tmp_path: Path) -> None:
    """Dead letters open queues on the server's own account."""
    async with rig(tmp_path, "dispatcher.open_shards=20") as r:
        key = r.key()
        dispatcher = r.server.dispatcher
        for n in range(12):
            await dispatcher.open("default", f"q{n}", create=True)
        async with r.session(key) as it:
            await it.hear_a(Welcome)
            answers = [await subscribe(it, f"q{n}", n + 1) for n in range(12)]
            assert [isinstance(one, Subscribed) for one in answers] == [True] * 10 + [False] * 2


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/v1/queues/q/purge", {}),
        ("POST", "/v1/queues/q/redrive", {"max": 1, "to": "busy"}),
        ("POST", "/v1/queues/q/retention", {"queue_id": "x", "drop": []}),
        ("DELETE", "/v1/queues/q/messages/x", None),
        ("GET", "/v1/usage?queue=q", None),
        ("POST", "/v1/queues/new/messages", {"messages": [{"body": 1}]}),
        ("POST", "/v1/queues/new/receive", {"wait_ms": 0}),
    ],
)
async def test_whatever_opens_a_queue_does_so_on_the_callers_account(
    tmp_path: Path, method: str, target: str, body: Any
) -> None:
    async with rig(tmp_path, "dispatcher.open_shards=2") as r:
        key = r.key()
        for name in ("q", "busy"):
            assert (await r.ask(key, "POST", "/v1/queues", {"name": name})).status == 201
        async with r.session(key) as it:
            await it.hear_a(Welcome)
            assert isinstance(await subscribe(it, "busy", 1), Subscribed)
            assert (await r.ask(key, method, target, body)).status == 429
            await it.say(Publish(2, "new", [PublishMessage(data=b"1")]))
            assert (await it.hear_a(ErrorFrame)).code == "throttled"
            assert r.reached("open_shards_share") == 2
            refused = await r.ask(key, "GET", "/v1/queues/new")
            assert refused.status == 404, "nothing was made for who was refused"
        await until(lambda: r.in_use("sessions") == 0)
        assert (await r.ask(key, method, target, body)).status in (200, 400, 404, 409)


async def turned_away(r: Rig, token: str) -> None:
    async with r.session(token) as it:
        assert (await it.hear_a(Goaway)).reason == "overload"
        assert await it.closed() == (1013, "overload")


@pytest.mark.parametrize("limit", ["session.sessions", "gateway.connections"])
async def test_sessions_of_one_key(tmp_path: Path, limit: str) -> None:
    async with rig(tmp_path, f"{limit}=8") as r, AsyncExitStack() as stack:
        attacker, other = r.key("consume:q"), r.key("consume:q")
        for _ in range(4):
            it = await stack.enter_async_context(r.session(attacker))
            await it.hear_a(Welcome)
        await turned_away(r, attacker)
        assert r.reached(limit.partition(".")[2] + "_share") == 1
        async with r.session(other) as it:
            await it.hear_a(Welcome)


async def test_who_resumes_takes_the_place_of_its_own_old_connection(tmp_path: Path) -> None:
    async with rig(tmp_path, "gateway.connections=8") as r, AsyncExitStack() as stack:
        key = r.key("consume:q")
        sessions = []
        for _ in range(4):
            it = await stack.enter_async_context(r.session(key))
            sessions.append((await it.hear_a(Welcome)).session)
        async with r.session(key, resume=Resume(sessions[0])) as again:
            assert (await again.hear_a(Welcome)).resumed
        await until(lambda: r.in_use("connections") == 3)


async def test_who_is_refused_a_resume_keeps_its_old_place(tmp_path: Path) -> None:
    async with (
        rig(tmp_path, "gateway.connections=8", "http.pipes=2") as r,
        AsyncExitStack() as stack,
    ):
        key = r.key("consume:q")
        sessions = []
        for _ in range(4):
            it = await stack.enter_async_context(r.session(key))
            sessions.append((await it.hear_a(Welcome)).session)
        await r.ask(key, "POST", "/v1/pipe", {"frames": [{"op": "hello"}]})
        await until(lambda: r.in_use("pipes") == 1)
        for count, session in enumerate(sessions):  # its only pipe is taken
            hello = {"op": "hello", "resume": {"session": session}}
            assert (await r.ask(key, "POST", "/v1/pipe", {"frames": [hello]})).status == 200
            await until(partial(was_refused, r, "pipes_share", count + 1))
        assert r.in_use("connections") == 4
        await turned_away(r, key)
        async with r.session(key, resume=Resume(sessions[0])) as again:
            assert (await again.hear_a(Welcome)).resumed
            assert r.in_use("connections") == 4


def was_refused(r: Rig, limit: str, count: int) -> bool:
    return r.reached(limit) == count


async def test_pipes_of_one_key(tmp_path: Path) -> None:
    async with rig(tmp_path, "http.pipes=8") as r:
        attacker, other = r.key("consume:q"), r.key("consume:q")
        hello = {"frames": [{"op": "hello"}]}
        for _ in range(4):
            assert (await r.ask(attacker, "POST", "/v1/pipe", hello)).status == 200
        await until(lambda: r.in_use("pipes") == 4)
        pipe = value(await r.ask(attacker, "POST", "/v1/pipe", hello))["pipe"]
        got = await r.ask(attacker, "POST", "/v1/pipe", {"pipe": pipe, "after": 0})
        assert [frame["op"] for frame in value(got)["frames"]] == ["goaway"]
        assert r.reached("pipes_share") == 1
        await r.ask(other, "POST", "/v1/pipe", hello)
        await until(lambda: r.in_use("pipes") == 5)


def detached(r: Rig, count: int) -> bool:
    return r.in_use("detached") == count


async def drop(r: Rig, token: str) -> str:
    """A session whose connection breaks."""
    async with client(r.server, token=token) as it:
        await it.say(Hello())
        session = (await it.hear_a(Welcome)).session
        await it.ws.aclose(4000)
    return session


async def test_dropped_sessions_of_one_key_push_out_their_own(tmp_path: Path) -> None:
    async with rig(tmp_path, "session.detached=8") as r:
        attacker, other = r.key("consume:q"), r.key("consume:q")
        mine = await drop(r, other)
        for n in range(10):
            await drop(r, attacker)
            await until(partial(detached, r, min(n + 1, 4) + 1))
        assert r.reached("detached_share") == 6
        async with r.session(other, resume=Resume(mine)) as it:
            assert (await it.hear_a(Welcome)).resumed


async def half_send(r: Rig, stack: AsyncExitStack, token: str, target: str, size: int) -> Raw:
    """A request, and all of its body but the end."""
    it = await stack.enter_async_context(connected(r.server))
    body = {"messages": [{"body": "x" * size}]}
    await it.send(request("POST", target, body, f"Authorization: Bearer {token}")[:-3])
    return it


async def test_what_one_token_leaves_half_sent(tmp_path: Path) -> None:
    """Of all that waits it has its share: what is more is cut, and others are not."""
    async with rig(tmp_path, "gateway.waiting_bytes=1000000") as r, AsyncExitStack() as stack:
        page, service = r.token("consume:q"), r.key("publish:q")
        waiting = r.server.listener.waiting
        other = await half_send(r, stack, service, MESSAGES, 100_000)
        await until(lambda: waiting.held > 100_000)
        held = waiting.held
        many = [await half_send(r, stack, page, RECEIVE, 12_000) for _ in range(10)]
        await until(lambda: r.server.listener.counters.overloads == 9)
        assert held + 12_000 < waiting.held < held + 20_000
        assert r.server.listener.budget.held == 0
        answers: list[tuple[int, str]] = []

        async def hear(it: Raw) -> None:
            answer = await it.answer()
            answers.append((answer.status, answer.error["code"]))

        async with trio.open_nursery() as nursery:
            for it in many:
                nursery.start_soon(hear, it)
            await until(lambda: len(answers) == 9)
            assert set(answers) == {(429, "throttled")}
            nursery.cancel_scope.cancel()
        await other.send(b"}]}")
        assert (await other.answer()).status == 200
        assert waiting.held < 20_000


async def test_frames_that_one_token_leaves_half_sent(tmp_path: Path) -> None:
    async with rig(tmp_path, "gateway.waiting_bytes=1000000") as r, AsyncExitStack() as stack:
        page = r.token("consume:q")
        waiting = r.server.listener.waiting
        many = [await stack.enter_async_context(r.session(page)) for _ in range(2)]
        for it, size in zip(many, (15_000, 12_000), strict=True):
            await it.hear_a(Welcome)
            frame = b"\x81\xff" + struct.pack("!Q", 50_000) + bytes(4 + size)
            await it.ws.stream.send_all(frame)
            await until(lambda: waiting.held > 0)
        assert (await many[0].hear_a(Goaway)).reason == "overload"
        assert await many[0].closed() == (1013, "overload")
        assert 12_000 < waiting.held < 13_000
        assert r.server.listener.counters.overloads == 1
        await trio.aclose_forcefully(many[1].ws.stream)  # it can't close in the middle of a frame


async def test_subscriptions_of_one_token(tmp_path: Path) -> None:
    """They are few on each queue, however many sessions share them."""
    settings = "shard.subscriptions=20", "shares.token_least=2", "shares.token_percent=10"
    async with rig(tmp_path, *settings) as r, AsyncExitStack() as stack:
        page, key, other = r.token("consume:q"), r.key("consume:q"), r.key("consume:q")
        it = [await stack.enter_async_context(r.session(page)) for _ in range(2)]
        for one in it:
            await one.hear_a(Welcome)
        answers = [await subscribe(it[n % 2], "q", n + 1) for n in range(4)]
        assert [isinstance(one, Subscribed) for one in answers] == [True] * 2 + [False] * 2
        assert (await r.ask(page, "POST", RECEIVE, {"wait_ms": 0})).status == 429
        async with r.session(key) as mine:
            await mine.hear_a(Welcome)
            answers = [await subscribe(mine, "q", n + 1) for n in range(12)]
            assert [isinstance(one, Subscribed) for one in answers] == [True] * 10 + [False] * 2
            assert r.reached("subscriptions_share") == 5
            assert (await r.ask(other, "POST", RECEIVE, {"wait_ms": 0})).status == 200


async def publish_as(r: Rig, token: str, producer: str) -> Any:
    """A new producer's first message: how it went."""
    async with r.session(token, producer=producer) as it:
        await it.hear_a(Welcome)
        await it.say(Publish(1, "q", [PublishMessage(data=b"1", seq=1)]))
        return await it.hear_a(Published)


async def test_producer_names_of_one_key(tmp_path: Path) -> None:
    async with rig(tmp_path, "shard.producers=20") as r:
        attacker, other = r.key("publish:q"), r.key("publish:q")
        answers = [await publish_as(r, attacker, f"p{n}") for n in range(12)]
        assert [len(answer.failed) for answer in answers] == [0] * 10 + [1] * 2
        assert answers[-1].failed[0].code == "throttled"
        assert r.reached("producers_share") == 2
        for n in range(10):
            answer = await publish_as(r, other, f"p{n}")
            assert (answer.failed, answer.duplicates) == ([], []), "and it is its own p0 to p9"
        assert (await publish_as(r, other, "p0")).duplicates == [0]
