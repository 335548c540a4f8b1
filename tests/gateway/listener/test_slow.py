"""Clients that read slowly, vanish or say nothing: they harm nobody, and don't stay for ever."""

from __future__ import annotations

import pytest
import trio

from pushlane_gateway.listener.socket import Socket, SocketClosed
from tests.gateway.listener.rig import PING, PONG, TEXT, Ends, frame, listening, upgrade


async def test_a_slow_reader_gets_all_in_the_end_and_others_are_not_held_up() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        slow, quick = await rig.websocket(), await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        sockets = {socket.peer: socket for socket in ends.sockets}
        assert isinstance(slow.stream, trio.SocketStream)
        stuck = sockets[f"127.0.0.1:{slow.stream.socket.getsockname()[1]}"]
        body = b"x" * 100_000
        for _ in range(300):
            stuck.send(body)
        await quick.send(frame(TEXT, b"0"))
        with trio.fail_after(20):
            for number in range(200):
                assert await quick.frame() == (TEXT, b"%d" % number)
                await quick.send(frame(TEXT, b"%d" % (number + 1)))
        assert stuck.outbox_bytes > 10_000_000
        for _ in range(300):
            assert await slow.frame() == (TEXT, body)
        assert stuck.outbox_bytes == 0


async def test_drain_waits_for_the_client() -> None:
    steps: list[str] = []

    async def session(socket: Socket) -> None:
        for _ in range(300):
            socket.send(b"x" * 100_000)
        await socket.drain(10_000_000)
        steps.append("below")
        assert socket.outbox_bytes < 10_000_000
        await socket.drain(1)
        steps.append("empty")
        await socket.receive()

    async with listening(handle=session) as rig:
        client = await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        assert steps == []
        for _ in range(300):
            await client.frame()
        await trio.testing.wait_all_tasks_blocked()
        assert steps == ["below", "empty"]


async def test_drain_ends_with_the_connection() -> None:
    ended = trio.Event()

    async def session(socket: Socket) -> None:
        socket.send(b"x" * 30_000_000)
        with pytest.raises(SocketClosed):
            await socket.drain(1000)
        ended.set()

    async with listening(handle=session) as rig:
        client = await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        await client.aclose()
        with trio.fail_after(20):
            await ended.wait()
            await rig.settle()


async def test_the_hard_limit_cuts() -> None:
    ends = Ends()
    async with listening(handle=ends.handle, outbox_bytes=1_000_000) as rig:
        await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        ends.sockets[0].send(b"x" * 900_000)
        assert rig.counters.overflows == 0
        ends.sockets[0].send(b"x" * 100_000)
        assert rig.counters.overflows == 1
        await rig.settle()
        assert [end.code for end in ends.ends] == [1006]


async def test_a_client_that_takes_nothing_is_cut() -> None:
    ends = Ends()
    async with listening(handle=ends.handle, write_stall_ms=100) as rig:
        await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        ends.sockets[0].send(b"x" * 30_000_000)
        await rig.settle()
        assert rig.counters.stalled_writes == 1


async def test_a_client_that_takes_a_little_is_not() -> None:
    ends = Ends()
    async with listening(handle=ends.handle, write_stall_ms=1000) as rig:
        client = await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        ends.sockets[0].send(b"x" * 30_000_000)
        for _ in range(12):
            await trio.sleep(0.1)
            await client.exactly(2_000_000)
        assert rig.counters.stalled_writes == 0


async def test_a_silent_client_is_pinged_and_then_cut() -> None:
    ends = Ends()
    async with listening(handle=ends.handle, ping_ms=50, silence_ms=150) as rig:
        began = trio.current_time()
        client = await rig.websocket()
        assert await client.frame() == (PING, b"")
        await rig.settle()
        assert 0.1 < trio.current_time() - began < 5
        assert (rig.counters.pings, rig.counters.silent) == (1, 1)
        assert [(end.code, end.clean) for end in ends.ends] == [(1006, False)]


async def test_a_client_that_answers_pings_stays() -> None:
    async with listening(ping_ms=40, silence_ms=400) as rig:
        client = await rig.websocket()
        for _ in range(4):
            assert await client.frame() == (PING, b"")
            await client.send(frame(PONG, b""))
        assert (len(rig.listener._hub.sockets), rig.counters.silent) == (1, 0)


async def test_a_client_that_talks_is_not_pinged() -> None:
    async with listening(ping_ms=500, silence_ms=1000) as rig:
        client = await rig.websocket()
        for _ in range(25):
            await client.send(frame(TEXT, b"x"))
            assert await client.frame() == (TEXT, b"x")
            await trio.sleep(0.03)
        assert rig.counters.pings == 0


async def test_a_client_is_not_blamed_when_its_session_does_not_read() -> None:
    release = trio.Event()

    async def session(socket: Socket) -> None:
        await socket.receive()
        await release.wait()
        socket.send((await socket.receive())[0])
        await socket.receive()

    async with listening(handle=session, ping_ms=200, silence_ms=400) as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"one"))
        await trio.testing.wait_all_tasks_blocked()
        await client.send(frame(TEXT, b"two"))
        await trio.sleep(0.9)
        release.set()
        assert await client.frame() == (TEXT, b"two")


async def test_half_open_handshakes_end() -> None:
    async with listening(head_ms=300, linger_ms=50) as rig:
        clients = [await rig.connect() for _ in range(20)]
        for number, client in enumerate(clients):
            await client.send(upgrade()[: 5 + number * 5])
        assert rig.listener.connections > 0
        with trio.fail_after(5):
            await rig.settle(0)
        # On a busy machine the first byte of some may come too late as well.
        assert rig.counters.late_heads + rig.counters.idle_ends == 20
        assert rig.counters.late_heads > 0
