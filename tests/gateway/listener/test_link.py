"""A connection as non-blocking reads and writes: its ends, its waits, and its manners."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import trio

from pushlane_gateway.listener import link as module
from pushlane_gateway.listener.link import Link, LinkLost, Stalled

Pair = tuple[Link, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A link, and the other end of it, in TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)  # else it may grow
        ours, _ = server.accept()
    ours.setblocking(False)
    client.settimeout(20)
    with ours, client:
        yield Link(ours, "test"), client


async def test_what_is_there_is_read_at_once(pair: Pair) -> None:
    link, client = pair
    assert link.receive_now() is None
    client.sendall(b"hi")
    assert await link.receive() == b"hi"
    client.shutdown(socket.SHUT_WR)
    assert await link.receive() == b""


async def test_a_reset_is_an_end_like_any_other(pair: Pair) -> None:
    link, client = pair
    Link(client, "other end").abort()
    assert await link.receive() == b""
    with pytest.raises(LinkLost):
        link.write_now(b"x")


async def test_a_flood_lets_others_have_their_turn(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_BYTES", 10)
    link, client = pair
    client.sendall(b"x" * 1000)
    await link.wait_readable()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        for _ in range(100):
            assert await link.receive() == b"x" * 10
        assert turns >= 50
        nursery.cancel_scope.cancel()


async def test_wake_and_close_end_the_wait(pair: Pair) -> None:
    link, _ = pair
    seen: list[bytes | None] = []

    async def read() -> None:
        seen.append(await link.receive())

    for end in (link.wake, link.close):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked()
            end()
    assert seen == [None, b""]
    link.wake()
    link.close()
    link.abort()
    assert await link.receive() == b""
    assert not await link.wait_readable()
    await link.wait_writable()


async def test_a_cancelled_read_loses_nothing(pair: Pair) -> None:
    link, client = pair
    with trio.move_on_after(0.01):
        await link.receive()
    client.sendall(b"still here")
    assert await link.receive() == b"still here"


async def test_send_all_waits_for_a_slow_reader_but_not_for_ever(pair: Pair) -> None:
    link, client = pair
    got = 0

    def read() -> None:
        nonlocal got
        while got < 20_000_000:
            got += len(client.recv(1 << 20))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, read)
        await link.send_all(b"x" * 20_000_000, 2000)
    assert got == 20_000_000
    with pytest.raises(Stalled):
        await link.send_all(b"x" * 20_000_000, 30)


async def test_close_delivers_what_was_written(pair: Pair) -> None:
    link, client = pair
    link.write_now(b"last words")
    link.close()
    assert client.recv(100) == b"last words"
    assert client.recv(100) == b""


async def test_abort_resets(pair: Pair) -> None:
    link, client = pair
    link.abort()
    with pytest.raises(ConnectionResetError):
        client.recv(100)
