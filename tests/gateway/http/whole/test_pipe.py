"""Pipes over real sockets: the listener, its connections, and a server that stops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio
from websockets.trio.client import connect

from pushlane_gateway.server import Server
from tests.gateway.http.whole.test_server import connected, request, serving, until, value
from tests.gateway.listener.rig import Client
from tests.gateway.pipe.talk import Frame, Talk, ack, publish, subscribe
from tests.running import stats_now

PIPE = "/v1/pipe"


async def ask(client: Client, body: Frame) -> Any:
    await client.send(request("POST", PIPE, body))
    answer = await client.answer()
    assert answer.status == 200, answer.body
    return value(answer)


@asynccontextmanager
async def talking(server: Server) -> AsyncIterator[Talk]:
    """One connection for sends, one for receives, as browsers have them."""
    async with connected(server) as sends, connected(server) as receives:

        async def either(body: Frame) -> Any:
            return await ask(receives if "after" in body else sends, body)

        yield Talk(either)


async def once(server: Server, body: Frame) -> Any:
    """On a connection of its own."""
    async with connected(server) as client:
        return await ask(client, body)


@asynccontextmanager
async def websocket(server: Server) -> AsyncIterator[Any]:
    async with connect(f"ws://127.0.0.1:{server.addresses[0].port}/v1/ws") as ws:
        yield ws


async def hear(ws: Any, op: str) -> Frame:
    while True:
        frame: Frame = msgspec.json.decode(await ws.recv())
        if frame["op"] == op:
            return frame


async def say(ws: Any, *frames: Frame) -> None:
    for frame in frames:
        await ws.send(msgspec.json.encode(frame).decode())


async def test_the_whole_way(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, talking(server) as it:
        welcome = await it.open(subscribe(100))
        assert it.pipe.startswith(welcome["node"] + ".")
        await it.hear("subscribed")
        got: list[Frame] = []

        async def consume() -> None:
            while len(got) < 500:
                await it.fetch()
                while it.frames:
                    got.extend(it.frames.popleft().get("messages", []))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            acked = 0
            for n in range(10):
                await it.send(publish(*range(50 * n, 50 * n + 50), id=10 + n))
                await until(lambda n=n: len(got) == 50 * n + 50)  # type: ignore[misc]
                await it.send(ack(*got[acked:], id=100 + n))
                acked = len(got)
        assert [message["body"] for message in got] == list(range(500))
        await it.leave()
        queue = await server.dispatcher.open("default", "q")
        await until(lambda: stats_now(queue).leased == 0)
        explained = await server.dispatcher.explain("default", "q", got[-1]["id"])
        assert explained.state == "acked"


async def test_a_receive_whose_connection_broke() -> None:
    async with serving() as server, talking(server) as it:
        await it.open(subscribe())
        await it.hear("subscribed")
        pipe = server.http.pipes.find(it.pipe)
        async with connected(server) as breaks:
            await breaks.send(request("POST", PIPE, it.receiving()))
            await until(lambda: pipe.quiet_since is None)
        await until(lambda: pipe.quiet_since is not None)
        await it.send(publish(1))
        lost = await once(server, it.receiving())
        assert await once(server, it.receiving()) == lost
        await it.fetch()
        assert {frame["op"] for frame in it.frames} <= {"published", "deliver"}


async def test_from_a_socket_to_a_pipe_and_back() -> None:
    async with serving() as server, websocket(server) as ws:
        await say(ws, {"op": "hello"}, subscribe(), publish(1, 2))
        session = (await hear(ws, "welcome"))["session"]
        got: list[Frame] = []
        while len(got) < 2:
            got += (await hear(ws, "deliver"))["messages"]
        async with talking(server) as it:
            held = {"1": [one["receipt"] for one in got]}
            welcome = await it.open(resume={"session": session, "held": held})
            assert (welcome["resumed"], welcome.get("lost")) == (True, None)
            await it.send(ack(got[0]))
            assert await it.hear("done") == {"op": "done", "id": 3}
            async with websocket(server) as back:
                held = {"1": [got[1]["receipt"]]}
                resume = {"session": session, "held": held}
                await say(back, {"op": "hello", "resume": resume}, ack(got[1]))
                assert (await hear(back, "welcome"))["resumed"] is True
                assert await hear(back, "done") == {"op": "done", "id": 3}
                assert await it.closed() == (4001, "taken_over")


async def test_a_silent_pipe_is_cut() -> None:
    async with serving(None, "http.pipe_ms=300") as server, talking(server) as it:
        session = (await it.open())["session"]
        await it.fetch(wait_ms=1_000)
        await until(lambda: len(server.http.pipes) == 0)
        async with connected(server) as client:
            await client.send(request("POST", PIPE, it.receiving()))
            answer = await client.answer()
            assert (answer.status, answer.error["code"]) == (404, "not_found")
        async with talking(server) as again:
            assert (await again.open(resume={"session": session}))["resumed"] is True


async def test_a_server_that_stops() -> None:
    """Clients hear of it at once, settle what they hold with new requests, and are closed."""
    async with serving() as server, talking(server) as it, talking(server) as idle:
        await it.open(subscribe(), publish(1))
        message: Frame | None = None
        while message is None:
            if not it.frames:
                await it.fetch()
            message = next(iter(it.frames.popleft().get("messages", [])), None)
        it.frames.clear()
        await idle.open()
        gone: list[tuple[int, str]] = []
        over = trio.Event()

        async def wait() -> None:
            assert (await idle.hear("goaway"))["reason"] == "drain"
            gone.append(await idle.closed())

        async def drain() -> None:
            await server.drain()
            over.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await until(lambda: server.http.pipes.find(idle.pipe).quiet_since is None)
            nursery.start_soon(drain)
            assert (await it.hear("goaway"))["reason"] == "drain"
            assert not over.is_set()
            assert (await once(server, it.sending(ack(message)))) == {}
            await it.hear("done")
            assert await it.closed() == (1001, "drain")
            await over.wait()
        assert gone == [(1001, "drain")]


async def test_a_server_that_stops_waits_for_nobody_who_has_gone() -> None:
    async with serving(None, "session.close_ms=1000") as server, talking(server) as it:
        await it.open()
        with trio.fail_after(20):
            await server.drain()
        assert server.listener.connections == 0


async def test_a_server_that_stops_with_pipes_of_before() -> None:
    """Nobody asks any more for the close of a pipe that was taken over."""
    async with serving(None, "session.close_ms=20000") as server, talking(server) as it:
        session = (await it.open())["session"]
        async with websocket(server) as ws:
            await say(ws, {"op": "hello", "resume": {"session": session}})
            await hear(ws, "welcome")
            await until(lambda: len(server.http.pipes) == 0)
            with trio.fail_after(10):
                await server.drain()
