"""The speed of a link between two nodes: frames one way, over loopback, each side a process.

    python -m bench.links            everything
    python -m bench.links --quick    a tenth of the work

CPU is in microseconds a frame, of the sender and of the receiver. Beside each figure stands what
the same costs with WebSockets (the sans-I/O protocol of `websockets`, as fast as we know to use
it): links had been planned as such. Compare only figures of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import trio
import trio.testing
from websockets.frames import Frame
from websockets.protocol import OPEN, Side
from websockets.protocol import Protocol as WebSocket

from pushlane_dispatcher.cluster.links.dialling import dial
from pushlane_dispatcher.cluster.links.greeting import Me
from pushlane_dispatcher.cluster.links.link import Link
from pushlane_dispatcher.cluster.links.listening import open_links

KINDS = ("link", "websocket")
ROOM = 256 * 1024
ROUNDS = 3


class Case(NamedTuple):
    name: str
    size: int
    in_tick: int
    """Frames sent before other tasks have their turn; 0: one at a time, each answered."""
    frames: int


CASES = (
    Case("200 B, one a tick", 200, 1, 100_000),
    Case("200 B, 64 a tick", 200, 64, 1_000_000),
    Case("32 x 200 B, one a tick", 6_400, 1, 50_000),
    Case("32 x 200 B, 16 a tick", 6_400, 16, 200_000),
    Case("200 B, there and back", 200, 0, 20_000),
)


class Wire(Protocol):
    """A Link, or a WebSocket like it."""

    def send(self, frame: bytes) -> None: ...
    async def room(self, below: int) -> None: ...
    async def run(self, take: Callable[[bytes], None]) -> None: ...


class Socket:
    """A WebSocket after its handshake, that writes once a tick, like a Link."""

    def __init__(self, stream: trio.SocketStream, side: Side) -> None:
        self._stream = stream
        self._protocol = WebSocket(side, state=OPEN, max_size=None)
        self._moved = trio.Event()
        self._sleeper: trio.lowlevel.Task | None = None
        self._waiting = 0

    def send(self, frame: bytes) -> None:
        self._protocol.send_binary(frame)
        self._waiting += len(frame)
        if self._sleeper is not None:
            trio.lowlevel.reschedule(self._sleeper)
            self._sleeper = None

    async def room(self, below: int) -> None:
        while self._waiting >= below:
            self._moved = trio.Event()
            await self._moved.wait()

    async def run(self, take: Callable[[bytes], None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write)
            with contextlib.suppress(trio.BrokenResourceError):
                while data := await self._stream.receive_some(128 * 1024):
                    self._protocol.receive_data(data)
                    for event in self._protocol.events_received():
                        assert isinstance(event, Frame)
                        take(bytes(event.data))
            nursery.cancel_scope.cancel()

    async def _write(self) -> None:
        while True:
            if not self._waiting:
                self._sleeper = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abandon)
            data, self._waiting = b"".join(self._protocol.data_to_send()), 0
            await self._stream.send_all(data)
            self._moved.set()

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._sleeper = None
        return trio.lowlevel.Abort.SUCCEEDED


def me(name: str) -> Me:
    return Me("bench", name, name, "0", lambda: int(time.time() * 1000))


async def receive(wire: Wire) -> None:
    """Say `done` for each frame that ends with an exclamation mark."""

    def take(frame: bytes) -> None:
        if frame[-1] == 33:
            wire.send(b"done")

    await wire.run(take)


async def serve(kind: str) -> None:
    if kind == "link":
        async with open_links("127.0.0.1:0", receive, me=lambda: me("server")) as links:
            print(links.address, flush=True)
            await trio.sleep_forever()
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(f"127.0.0.1:{listener.socket.getsockname()[1]}", flush=True)
    while True:
        await receive(Socket(await listener.accept(), Side.SERVER))


@contextlib.contextmanager
def server(kind: str) -> Iterator[tuple[str, Callable[[], float]]]:
    """Its address, and what it used of the CPU, in seconds."""
    command = [sys.executable, "-m", "bench.links", "--serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        file = Path(f"/proc/{process.pid}/schedstat")
        try:
            yield process.stdout.readline().strip(), lambda: int(file.read_text().split()[0]) / 1e9
        finally:
            process.terminate()


class Figures(NamedTuple):
    sender: float
    receiver: float
    frames: float
    """A second."""


async def connect(kind: str, address: str) -> Link | Socket:
    if kind == "link":
        return await dial(address, lane="data", me=me("client"))
    host, port = address.split(":")
    return Socket(await trio.open_tcp_stream(host, int(port)), Side.CLIENT)


async def measure(kind: str, address: str, case: Case, used: Callable[[], float]) -> Figures:
    wire = await connect(kind, address)
    done = trio.Event()

    def take(_: bytes) -> None:
        done.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wire.run, take)
        await trio.testing.wait_all_tasks_blocked()
        theirs, ours, began = used(), time.process_time(), time.perf_counter()
        last = b"x" * (case.size - 1) + b"!"
        if case.in_tick:
            await send(wire, case)
            wire.send(last)
            await done.wait()
        else:
            for _ in range(case.frames):
                done = trio.Event()
                wire.send(last)
                await done.wait()
        took, ours, theirs = (
            time.perf_counter() - began, time.process_time() - ours, used() - theirs,
        )  # fmt: skip
        nursery.cancel_scope.cancel()
    return Figures(ours / case.frames * 1e6, theirs / case.frames * 1e6, case.frames / took)


async def send(wire: Wire, case: Case) -> None:
    frame = b"x" * case.size
    for _ in range(case.frames // case.in_tick):
        for _ in range(case.in_tick):
            wire.send(frame)
        await wire.room(ROOM)
        await trio.lowlevel.checkpoint()


def main() -> None:
    parser = argparse.ArgumentParser(description="the speed of a link between two nodes")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", choices=KINDS)
    options = parser.parse_args()
    if options.serve:
        with contextlib.suppress(KeyboardInterrupt):
            trio.run(serve, options.serve)
        return
    print(f"{'':28}{'':12}{'sender µs':>12}{'receiver µs':>14}{'frames/s':>12}")
    for case in CASES:
        case = case._replace(frames=case.frames // (10 if options.quick else 1))
        for kind in KINDS:
            with server(kind) as (address, used):
                rounds = [trio.run(measure, kind, address, case, used) for _ in range(ROUNDS)]
            sender, receiver, frames = (
                statistics.median(column) for column in zip(*rounds, strict=True)
            )
            print(f"{case.name:28}{kind:12}{sender:12.2f}{receiver:14.2f}{frames:12,.0f}")


if __name__ == "__main__":
    main()
