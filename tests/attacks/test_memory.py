"""Attacks on memory: what a server keeps for those it doesn't know is bounded, and given back.

Most attacks need no hello. They run against two servers: one that asks nobody for a key, so that
everything counts as unknown, and one that asks everybody.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from tests.attacks import raw
from tests.attacks.victim import MIB, Memory, Neighbour, make_key, wait_until_idle
from tests.gateway.process import Process, serving

GROWS = 100.0
"""MiB, the most that a server may grow by in an attack."""
KEPT = 30.0
"""MiB that may be left of it, for the allocator's own reasons …"""
GIVEN_BACK_S = 10.0
"""… so soon after its end."""

LARGE = 4 * MIB - 1024
PART = b"x" * (LARGE - 1024)
HELLO = raw.frame(raw.TEXT, raw.HELLO)


on_both = pytest.mark.parametrize("keyed", [False, True], ids=["open", "keyed"])


@contextmanager
def attacked(folder: Path, keyed: bool = False) -> Iterator[Process]:
    """A server that serves others afterwards, has not grown much, and has given it back."""
    key = make_key(folder) if keyed else ""
    with serving(folder) as process:
        neighbour = Neighbour(process.url, key)
        neighbour.publish()
        memory = Memory(process)
        yield process
        neighbour.publish()
        neighbour.close()
        assert memory.peak() < GROWS
        assert memory.falls_below(KEPT, GIVEN_BACK_S), memory.grown()


@on_both
def test_partial_frames_of_clients_that_leave(tmp_path: Path, keyed: bool) -> None:
    with attacked(tmp_path, keyed) as process:
        for _ in range(100):
            head = raw.frame_head(raw.TEXT, LARGE)
            raw.websocket(process.url, head, PART[: 256 * 1024]).close()


def test_partial_frames_after_a_hello_of_clients_that_leave(tmp_path: Path) -> None:
    with attacked(tmp_path) as process:
        for _ in range(100):
            sock = raw.websocket(process.url, HELLO, raw.frame_head(raw.TEXT, LARGE), PART)
            sock.close()


@pytest.mark.parametrize(("welcomed", "keyed"), [(False, False), (False, True), (True, False)])
def test_partial_frames_that_stay(tmp_path: Path, welcomed: bool, keyed: bool) -> None:
    first = [HELLO] if welcomed else []
    with attacked(tmp_path, keyed) as process:
        held = [
            raw.websocket(process.url, *first, raw.frame_head(raw.TEXT, LARGE), PART)
            for _ in range(100)
        ]
        close_all(process, held)


@on_both
def test_frames_just_below_the_limit_before_a_hello(tmp_path: Path, keyed: bool) -> None:
    with attacked(tmp_path, keyed) as process:
        head, part = raw.frame_head(raw.TEXT, 65_000), b"x" * 64_000
        close_all(process, [raw.websocket(process.url, head, part) for _ in range(900)])


@pytest.mark.parametrize("path", ["/v1/pipe", "/v1/queues/q/messages"])
@on_both
def test_bodies_that_never_end(tmp_path: Path, path: str, keyed: bool) -> None:
    with attacked(tmp_path, keyed) as process:
        close_all(process, [raw.post(process.url, path, LARGE, PART) for _ in range(100)])


@on_both
def test_heads_that_never_end(tmp_path: Path, keyed: bool) -> None:
    with attacked(tmp_path, keyed) as process:
        held = [raw.connect(process.url) for _ in range(900)]
        for sock in held:
            raw.send(sock, b"GET / HTTP/1.1\r\nX: " + b"x" * 16_000)
        close_all(process, held)


@on_both
def test_heads_whose_bodies_do_not_come(tmp_path: Path, keyed: bool) -> None:
    with attacked(tmp_path, keyed) as process:
        header = b"X: " + b"x" * 15_000
        held = [raw.post(process.url, "/v1/pipe", 100, b"", header) for _ in range(900)]
        close_all(process, held)


def test_readers_that_take_nothing(tmp_path: Path) -> None:
    """Of a page of 100 KB each, again and again: more than the kernel takes for them."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with attacked(tmp_path) as process:
        memory = Memory(process)
        held = [raw.connect(process.url) for _ in range(100)]
        for sock in held:
            raw.send(sock, request * 60)
        close_all(process, held)
        assert memory.peak() < KEPT  # there is one page, not one for each


def test_a_pipe_before_its_hello(tmp_path: Path) -> None:
    """Its name alone opens no door: nobody was welcomed there."""
    with attacked(tmp_path) as process:
        opened = raw.post(process.url, "/v1/pipe", 15, b'{"frames":[{}]}')
        answer = opened.recv(65_536)
        name = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["pipe"].encode()
        header = b"Pushlane-Pipe: " + name
        sock = raw.post(process.url, "/v1/pipe", LARGE, b"", header)
        assert sock.recv(12) == b"HTTP/1.1 413"
        close_all(process, [opened, sock])


def test_empty_maps(tmp_path: Path) -> None:
    """They would take a hundred times their size."""
    encode = msgspec.msgpack.encode
    count = 4 * MIB - 200
    maps = b"\xdd" + count.to_bytes(4, "big") + b"\x80" * count
    head = {"op": "publish", "id": 1, "to": "q", "messages": None}
    publish = encode(head).removesuffix(encode(None)) + maps
    with attacked(tmp_path) as process:
        memory = Memory(process)
        hello = raw.frame(raw.BINARY, encode({"op": "hello"}))
        sock = raw.websocket(process.url, hello, encoding="msgpack")
        assert b"welcome" in raw.hear(sock)
        assert raw.send(sock, raw.frame(raw.BINARY, publish))
        assert b"bad_request" in raw.hear(sock)
        assert memory.peak() < 8 * len(publish) / MIB
        sock.close()


def close_all(process: Process, socks: list[socket.socket]) -> None:
    """When the server has read what it reads."""
    wait_until_idle(process)
    for sock in socks:
        sock.close()
