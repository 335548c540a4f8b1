"""The demo's load balancer: in turn to those that run, and cut off with them."""

from __future__ import annotations

from pathlib import Path

import trio

from tools.demo.balancer import Balancer
from tools.demo.gateway import HOST, Gateway
from tools.services.ports import free_port


class Echo:
    """A server that says its name before what it hears."""

    def __init__(self, name: str, folder: Path, nursery: trio.Nursery) -> None:
        self.gateway = Gateway(free_port(), [], folder / "log", name=name)
        self._nursery = nursery
        self._scope = trio.CancelScope()

    async def start(self) -> None:
        async def serve(task_status: trio.TaskStatus[object]) -> None:
            with self._scope:
                port = self.gateway.port
                await trio.serve_tcp(self._answer, port, host=HOST, task_status=task_status)

        await self._nursery.start(serve)
        self.gateway.is_running = True

    async def _answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            async for heard in stream:
                await stream.send_all(self.gateway.name.encode() + b":" + heard)

    def stop(self) -> None:
        self._scope.cancel()


async def ask(port: int) -> bytes:
    async with await trio.open_tcp_stream(HOST, port) as stream:
        await stream.send_all(b"?")
        return bytes(await stream.receive_some())


async def test_in_turn_to_those_that_run_and_to_nobody_when_none_does(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            a, b = (Echo(name, tmp_path, nursery) for name in "ab")
            port = free_port()
            await nursery.start(Balancer([a.gateway, b.gateway], port).run)
            assert await ask(port) == b""
            await a.start()
            await b.start()
            assert sorted([await ask(port), await ask(port)]) == [b"a:?", b"b:?"]
            open_at_both = [await trio.open_tcp_stream(HOST, port) for _ in "ab"]
            for stream in open_at_both:
                await stream.send_all(b"!")
            found = {bytes(await stream.receive_some()): stream for stream in open_at_both}
            a.stop()  # before anybody has noticed
            assert await found[b"a:!"].receive_some() == b""
            assert [await ask(port) for _ in range(3)] == [b"b:?"] * 3
            await found[b"b:!"].send_all(b"still")
            assert await found[b"b:!"].receive_some() == b"b:still"
            for stream in open_at_both:
                await stream.aclose()
            nursery.cancel_scope.cancel()
