"""The listener's speed: WebSocket frames echoed and pushed, and what an idle connection costs.

    python -m bench.listener            everything
    python -m bench.listener --quick    a tenth of the work

The server runs in a process of its own, the client (raw sockets, frames masked beforehand) in this
one. CPU is the server's, in microseconds a frame; frames a second depend on the client, too. On a
machine with two cores or more each has its own. Compare only figures of one run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import trio
from starlette.applications import Starlette

from pushlane_gateway.listener.connection import Service
from pushlane_gateway.listener.listener import open_listener
from pushlane_gateway.listener.socket import Socket

BODY = b'{"text": "' + b"x" * 188 + b'"}'
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
TARGETS = {"echo 1 x 32": 12.0, "echo 16 x 8": 24.0, "push": 6.0}
"""CPU µs a frame, as measured with `ServerProtocol` alone."""
TARGET_IDLE = 9.0
PUSH_BYTES = 256 * 1024


def masked(body: bytes) -> bytes:
    mask = b"\x01\x02\x03\x04"
    turned = bytes(byte ^ mask[place % 4] for place, byte in enumerate(body))
    return struct.pack("!BBH", 0x81, 0x80 | 126, len(body)) + mask + turned


FRAME = masked(BODY)
ANSWER = len(BODY) + 4


async def session(client: Socket) -> None:
    """Echo; a message `push N` is answered with N frames instead."""
    while True:
        for message in await client.receive():
            if message.startswith(b"push "):
                await push(client, int(message[5:]))
            else:
                client.send(message)


async def push(client: Socket, count: int) -> None:
    for number in range(count):
        client.send(BODY)
        if number % 64 == 0:
            await client.drain(PUSH_BYTES)
            await trio.lowlevel.checkpoint()


async def serve() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (_files(), _files()))
    service = Service(Starlette(), session, lambda _origin, _host: True)
    async with open_listener(["127.0.0.1:0"], service) as listener:
        print(listener.addresses[0].port, flush=True)
        await trio.sleep_forever()


def _files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


class Server:
    """The server's process, and what it used."""

    def __init__(self, pid: int, port: int) -> None:
        self._proc = Path(f"/proc/{pid}")
        self.port = port

    def cpu(self) -> float:
        fields = (self._proc / "schedstat").read_text().split()
        return int(fields[0]) / 1e9

    def memory(self) -> int:
        fields = (self._proc / "statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(UPGRADE)
        head = sock.recv(4096)
        assert head.startswith(b"HTTP/1.1 101"), head
        assert head.endswith(b"\r\n\r\n"), head
        return sock


@contextlib.contextmanager
def server() -> Iterator[Server]:
    command = [sys.executable, "-m", "bench.listener", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process.pid, int(process.stdout.readline()))
        finally:
            process.terminate()


def echo(running: Server, connections: int, in_flight: int, frames: int) -> tuple[float, float]:
    """Frames a second, and CPU µs a frame."""
    selector = selectors.DefaultSelector()
    owed = {running.connect(): 0 for _ in range(connections)}
    for sock in owed:
        selector.register(sock, selectors.EVENT_READ)
    left, done = frames, 0
    began, cpu = time.perf_counter(), running.cpu()
    for sock in owed:
        sock.sendall(FRAME * in_flight)
        left -= in_flight
    while done < frames - connections * in_flight:
        for key, _ in selector.select():
            client = key.fileobj
            assert isinstance(client, socket.socket)
            whole, owed[client] = divmod(owed[client] + len(client.recv(1 << 20)), ANSWER)
            done += whole
            if left > 0 and whole:
                client.sendall(FRAME * whole)
                left -= whole
    took, cpu = time.perf_counter() - began, running.cpu() - cpu
    for sock in owed:
        sock.close()
    return done / took, cpu / done * 1e6


def pushed(running: Server, frames: int) -> tuple[float, float]:
    sock = running.connect()
    began, cpu = time.perf_counter(), running.cpu()
    sock.sendall(masked(b"push %d" % frames + b" " * 190))
    left = frames * ANSWER
    while left > 0:
        left -= len(sock.recv(1 << 20))
    took, cpu = time.perf_counter() - began, running.cpu() - cpu
    sock.close()
    return frames / took, cpu / frames * 1e6


def idle(running: Server, connections: int) -> float:
    """KiB that an idle connection adds to the server's resident memory."""
    warm = [running.connect() for _ in range(50)]
    before = running.memory()
    opened = [running.connect() for _ in range(connections)]
    time.sleep(0.5)
    grown = running.memory() - before
    for sock in warm + opened:
        sock.close()
    return grown / connections / 1024


def pin(pid: int, core: int) -> None:
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, {core % (os.cpu_count() or 1)})


def report(name: str, figures: tuple[float, float]) -> None:
    speed, cpu = figures
    print(f"{name:14} {speed:9,.0f} frames/s {cpu:7.2f} µs CPU (to reach: {TARGETS[name]:g})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        pin(0, 0)
        trio.run(serve)
        return
    pin(0, 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_files(), _files()))
    share = 10 if options.quick else 1
    with server() as running:
        connections = 5_000 // share
        figure = idle(running, connections)
        print(f"idle           {figure:9.1f} KiB each of {connections} (to reach: {TARGET_IDLE:g})")
    with server() as running:
        echo(running, 1, 32, 20_000 // share)
        report("echo 1 x 32", echo(running, 1, 32, 300_000 // share))
        report("echo 16 x 8", echo(running, 16, 8, 300_000 // share))
        report("push", pushed(running, 500_000 // share))


if __name__ == "__main__":
    main()
