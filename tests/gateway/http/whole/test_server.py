"""The HTTP API over real sockets: the listener, the app, the dispatcher and the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from pushlane_gateway.configuration.load import load
from pushlane_gateway.server import Server, open_server
from tests.gateway.listener.rig import Answer, Client
from tests.running import stats_now

TENANT = "default"
PATIENCE = 30


@asynccontextmanager
async def serving(data: Path | None = None, *settings: str) -> AsyncIterator[Server]:
    flags = {"listen": ["127.0.0.1:0"], "store": "memory:" if data is None else f"sqlite:{data}"}
    configuration = load(flags=flags, settings=settings, environment={})
    with trio.fail_after(PATIENCE):
        async with open_server(configuration) as server:
            yield server
            assert server.http.admission.taken()["polls"] == 0


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Client]:
    async with await trio.open_tcp_stream("127.0.0.1", server.addresses[0].port) as stream:
        yield Client(stream)


def request(method: str, target: str, body: Any = None, *headers: str) -> bytes:
    data = b"" if body is None else msgspec.json.encode(body)
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1", *headers]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def ask(client: Client, method: str, target: str, body: Any = None) -> Answer:
    await client.send(request(method, target, body))
    return await client.answer(head_only=method == "HEAD")


def value(answer: Answer) -> Any:
    return msgspec.json.decode(answer.body)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if true():
            return
        await trio.sleep(0.005)
    raise AssertionError("it never came true")


async def until_subscriptions(server: Server, count: int) -> None:
    queue = await server.dispatcher.open(TENANT, "q")
    await until(lambda: stats_now(queue).subscriptions == count)


PUBLISH = "/v1/queues/q/messages", {"messages": [{"body": {"n": 1}}]}
RECEIVE = "/v1/queues/q/receive"


async def test_the_whole_way_on_one_connection(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, connected(server) as client:
        published = await ask(client, "POST", *PUBLISH)
        assert published.status == 200
        (message,) = value(await ask(client, "POST", RECEIVE, {}))["messages"]
        assert (message["body"], message["id"]) == ({"n": 1}, value(published)["ids"][0])
        acked = await ask(client, "POST", "/v1/queues/q/ack", {"receipts": [message["receipt"]]})
        assert value(acked) == {}
        head = await ask(client, "HEAD", "/v1/queues/q")
        assert (head.status, head.headers["etag"]) == (200, '"1"')
        explained = await ask(client, "GET", f"/v1/queues/q/messages/{message['id']}/explain")
        assert value(explained)["state"] == "acked"
        deleted = await ask(client, "DELETE", "/v1/queues/q?confirm=q")
        assert deleted.status == 200
        assert (await ask(client, "GET", "/v1/queues/q")).error["code"] == "not_found"
        assert (await ask(client, "GET", "/readyz")).body == b"ready\n"


async def test_a_long_poll_is_woken() -> None:
    async with serving() as server, connected(server) as waiting, connected(server) as other:
        await waiting.send(request("POST", RECEIVE, {"wait_ms": 60_000}))
        await trio.sleep(0.05)
        await ask(other, "POST", *PUBLISH)
        (message,) = value(await waiting.answer())["messages"]
        assert message["attempt"] == 1


async def test_a_client_that_closes_its_connection_during_a_long_poll() -> None:
    async with serving() as server, connected(server) as other:
        async with connected(server) as waiting:
            await ask(other, "PUT", "/v1/queues/q", {})
            await waiting.send(request("POST", RECEIVE, {"wait_ms": 60_000}))
            await until_subscriptions(server, 1)
        await until_subscriptions(server, 0)
        (id,) = value(await ask(other, "POST", *PUBLISH))["ids"]
        explained = value(await ask(other, "GET", f"/v1/queues/q/messages/{id}/explain"))
        assert (explained["state"], explained.get("deliveries", 0)) == ("ready", 0)


async def test_a_request_sent_ahead_waits_for_the_poll() -> None:
    async with serving() as server, connected(server) as client, connected(server) as other:
        await client.send(
            request("POST", RECEIVE, {"wait_ms": 60_000}) + request("GET", "/healthz")
        )
        await trio.sleep(0.05)
        await ask(other, "POST", *PUBLISH)
        assert len(value(await client.answer())["messages"]) == 1
        assert (await client.answer()).body == b"ok\n"


async def test_a_server_that_stops_answers_what_waits() -> None:
    async with serving() as server, trio.open_nursery() as nursery:
        async with connected(server) as client:
            await ask(client, "PUT", "/v1/queues/q", {})
            await client.send(request("POST", RECEIVE, {"wait_ms": 60_000}))
            await until_subscriptions(server, 1)
            nursery.start_soon(server.drain)
            answer = await client.answer()
        assert (value(answer), answer.headers["connection"]) == ({"messages": []}, "close")


async def test_many_polls_at_once() -> None:
    polls = 50
    async with serving() as server, connected(server) as other:
        await ask(other, "PUT", "/v1/queues/q", {})
        bodies: list[int] = []

        async def poll() -> None:
            async with connected(server) as client:
                answer = await ask(client, "POST", RECEIVE, {"wait_ms": 60_000})
                (message,) = value(answer)["messages"]
                bodies.append(message["body"])
                receipts = {"receipts": [message["receipt"]]}
                assert value(await ask(client, "POST", "/v1/queues/q/ack", receipts)) == {}

        async with trio.open_nursery() as nursery:
            for _ in range(polls):
                nursery.start_soon(poll)
            await until_subscriptions(server, polls)
            messages = {"messages": [{"body": n} for n in range(polls)]}
            await ask(other, "POST", "/v1/queues/q/messages", messages)
        assert sorted(bodies) == list(range(polls))
        await until_subscriptions(server, 0)


async def test_a_foreign_origin_over_the_socket() -> None:
    async with serving() as server, connected(server) as client:
        await client.send(request("GET", "/v1/queues", None, "Origin: https://evil.example"))
        answer = await client.answer()
        assert (answer.status, answer.error["code"]) == (403, "forbidden")


async def test_settings_reach_the_api() -> None:
    async with serving(None, "http.polls=1") as server, connected(server) as client:
        async with connected(server) as other:
            await other.send(request("POST", RECEIVE, {}))
            await until(lambda: server.http.admission.taken()["polls"] == 1)
            answer = await ask(client, "POST", RECEIVE, {})
            assert (answer.status, answer.error["code"]) == (429, "throttled")
        await until(lambda: not server.http.admission.taken()["polls"])
