"""One WebSocket: messages, closes of either side, faults, and the end of the task behind it."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable

import msgspec
import pytest
import trio

from pushlane.wire.limits import Limits
from pushlane_gateway.listener.link import Link
from pushlane_gateway.listener.socket import Socket, SocketClosed
from tests.gateway.listener.rig import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Client,
    Ends,
    close,
    frame,
    listening,
    until,
    upgrade,
)

LIMITS = Limits(frame_bytes=65536, message_bytes=1024)


async def test_all_messages_of_one_read_come_together() -> None:
    batches: list[list[bytes]] = []

    async def handle(socket: Socket) -> None:
        socket.admit(())
        while True:
            batches.append(await socket.receive())
            socket.send(b"got it")

    async with listening(handle=handle) as rig:
        client = await rig.websocket()
        await client.send(b"".join(frame(TEXT, b"%d" % number) for number in range(5)))
        assert await client.frame() == (TEXT, b"got it")
        assert batches == [[b"0", b"1", b"2", b"3", b"4"]]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 3_000_000])
async def test_frames_of_every_size_there_and_back(size: int) -> None:
    async with listening() as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"x" * size))
        assert await client.frame() == (TEXT, b"x" * size)


async def test_fragments_with_a_ping_between_them() -> None:
    async with listening() as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"a", fin=False) + frame(PING, b"are you there?"))
        assert await client.frame() == (PONG, b"are you there?")
        await client.send(frame(0, b"b", fin=False) + frame(0, b"c"))
        assert await client.frame() == (TEXT, b"abc")


async def test_a_client_that_closes_with_1000_ended_cleanly() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"last") + close(1000, "bye"))
        assert await client.frame() == (TEXT, b"last")
        assert await client.closed_with() == (1000, "bye")
        await client.aclose()
        await rig.settle()
        assert [(end.code, end.reason, end.clean) for end in ends.ends] == [(1000, "bye", True)]
        assert rig.counters.closes == {1000: 1}


@pytest.mark.parametrize(
    ("sent", "code"), [(close(1001), 1001), (close(4999), 4999), (frame(CLOSE, b""), 1005)]
)
async def test_other_closes_of_a_client_are_not_clean(sent: bytes, code: int) -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket()
        await client.send(sent)
        opcode, _ = await client.frame()
        assert opcode == CLOSE
        await client.eof()
        await client.aclose()
        await rig.settle()
        assert [(end.code, end.clean) for end in ends.ends] == [(code, False)]


@pytest.mark.parametrize("cut", [b"", frame(TEXT, b"half")[:4]])
async def test_a_client_that_just_goes(cut: bytes) -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket()
        await client.send(cut or frame(PING, b""))
        await client.aclose()
        await rig.settle()
        assert [(end.code, end.clean) for end in ends.ends] == [(1006, False)]


FAULTS: dict[str, tuple[bytes, int, str, str | None]] = {
    "binary in a JSON session": (
        frame(BINARY, b"{}"),
        1003,
        "bad_request",
        "this session has text frames only",
    ),
    "not UTF-8": (frame(TEXT, b'"\xff"'), 1007, "bad_request", "text that is not UTF-8"),
    "too large": (
        struct.pack("!BBQ", 0x81, 0xFF, 65537),
        1009,
        "too_large",
        "frame with 65537 bytes exceeds limit of 65536 bytes",
    ),
    "a compression bomb": (frame(TEXT, b"\0" * 1000, rsv=0x40), 1002, "bad_request", None),
    "not masked": (frame(TEXT, b"x", mask=False), 1002, "bad_request", None),
}


@pytest.mark.parametrize(("sent", "code", "reason", "message"), FAULTS.values(), ids=FAULTS)
async def test_faults_are_explained_and_closed(
    sent: bytes, code: int, reason: str, message: str | None
) -> None:
    ends = Ends()
    async with listening(handle=ends.handle, limits=LIMITS) as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"before") + sent)
        assert await client.frame() == (TEXT, b"before")
        if message is not None:
            opcode, payload = await client.frame()
            assert opcode == TEXT
            told = {"op": "error", "code": reason, "message": message}
            assert msgspec.json.decode(payload) == told
        assert await client.closed_with() == (code, reason)
        await client.aclose()
        await rig.settle()
        assert [(end.code, end.reason, end.clean) for end in ends.ends] == [(code, reason, False)]
        assert rig.counters.closes == {code: 1}


async def test_text_in_a_msgpack_session() -> None:
    async with listening() as rig:
        client = await rig.websocket("Sec-WebSocket-Protocol: pushlane.v1.msgpack")
        await client.send(frame(TEXT, b"{}"))
        opcode, payload = await client.frame()
        assert (opcode, msgspec.msgpack.decode(payload)["code"]) == (BINARY, "bad_request")
        assert await client.closed_with() == (1003, "bad_request")


async def test_a_fault_while_the_client_goes_on_sending_is_seen_by_it() -> None:
    async with listening(limits=LIMITS) as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"x" * 3_000_000))
        assert (await client.frame())[0] == TEXT
        assert await client.closed_with() == (1009, "too_large")


async def run_session(
    session: Callable[[Socket], Awaitable[None]],
    talk: Callable[[Client], Awaitable[None]],
    close_ms: int = 5_000,
) -> dict[int, int]:
    async with listening(handle=session, close_ms=close_ms) as rig:
        client = await rig.websocket()
        await talk(client)
        await client.aclose()
        await rig.settle()
        return rig.counters.closes


async def test_our_close_comes_behind_what_waits() -> None:
    async def session(socket: Socket) -> None:
        socket.send(b"x" * 1_000_000)
        socket.close(1001, "drain")
        socket.send(b"too late")
        with pytest.raises(SocketClosed) as end:
            await socket.receive()
        assert (end.value.code, end.value.reason, end.value.clean) == (1001, "drain", False)
        with pytest.raises(SocketClosed):
            await socket.drain(1)

    async def talk(client: Client) -> None:
        assert await client.frame() == (TEXT, b"x" * 1_000_000)
        assert await client.frame() == (CLOSE, struct.pack("!H", 1001) + b"drain")
        await client.send(frame(TEXT, b"ignored") + close(1001, "drain"))
        await client.eof()

    assert await run_session(session, talk) == {1001: 1}


async def test_a_close_from_another_task_wakes_the_session() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        ends.sockets[0].close(4001, "taken_over")
        ends.sockets[0].close(1000, "not twice")
        with trio.fail_after(20):
            assert await client.frame() == (CLOSE, struct.pack("!H", 4001) + b"taken_over")
        await trio.testing.wait_all_tasks_blocked()
        assert [(end.code, end.clean) for end in ends.ends] == [(4001, False)]
        assert len(rig.listener._hub.sockets) == 1, "it waits for the client's close"
        await client.send(close(4001))
        await client.eof()


@pytest.mark.parametrize("last", [close(1000), frame(BINARY, b"x"), frame(TEXT, b"x", rsv=0x40)])
async def test_both_close_at_once(last: bytes) -> None:
    async def session(socket: Socket) -> None:
        assert await socket.receive() == [b"bad"]
        socket.send(b"error")
        socket.close(1008, "unauthorized")

    async def talk(client: Client) -> None:
        await client.send(frame(TEXT, b"bad") + last)
        assert await client.frame() == (TEXT, b"error")
        while (await client.frame())[0] != CLOSE:
            pass
        await client.eof()

    assert len(await run_session(session, talk, close_ms=60)) == 1


async def test_a_client_that_never_answers_a_close_is_cut() -> None:
    ends = Ends()
    async with listening(handle=ends.handle, close_ms=60) as rig:
        await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        ends.sockets[0].close(1001, "drain")
        await rig.settle()
        assert rig.counters.late_closes == 1


async def test_a_session_that_just_returns_closes_with_1000() -> None:
    async def session(socket: Socket) -> None:
        socket.send(b"bye")

    async def talk(client: Client) -> None:
        assert await client.frame() == (TEXT, b"bye")
        assert await client.frame() == (CLOSE, struct.pack("!H", 1000))

    assert await run_session(session, talk) == {1000: 1}


@pytest.mark.parametrize("grouped", [True, False])
async def test_a_session_that_fails_closes_with_1011(
    grouped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def session(socket: Socket) -> None:
        if grouped:
            raise ExceptionGroup("two", [ValueError("boom"), SocketClosed(1006, "", clean=False)])
        raise ValueError("boom")

    async def talk(client: Client) -> None:
        assert await client.frame() == (CLOSE, struct.pack("!H", 1011) + b"internal")

    assert await run_session(session, talk) == {1011: 1}
    assert "boom" in caplog.text


async def test_abort_cuts_and_wakes_the_session() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        ends.sockets[0].abort()
        ends.sockets[0].send(b"without effect")
        await client.eof()
        await rig.settle()
        assert [(end.code, end.clean) for end in ends.ends] == [(1006, False)]


async def test_a_long_close_reason_is_cut_between_characters() -> None:
    async def session(socket: Socket) -> None:
        socket.close(1008, "ü" * 100)

    async def talk(client: Client) -> None:
        _, payload = await client.frame()
        assert payload[2:].decode() == "ü" * 61

    await run_session(session, talk)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is written."""
    sizes: list[int] = []
    write_now = Link.write_now

    def counted(link: Link, data: bytes | memoryview) -> int:
        sizes.append(len(data))
        return write_now(link, data)

    monkeypatch.setattr(Link, "write_now", counted)
    return sizes


async def test_what_one_tick_sends_leaves_in_one_write(writes: list[int]) -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        writes.clear()
        socket = ends.sockets[0]
        for number in range(100):
            socket.send(b"%03d" % number)
        assert (socket.outbox_bytes, writes) == (500, [])
        for number in range(100):
            assert await client.frame() == (TEXT, b"%03d" % number)
        assert (socket.outbox_bytes, writes) == (0, [500])
        assert trio.current_time() - socket.last_sent_at < 5


async def test_one_write_has_no_more_than_a_kernel_buffer_holds(writes: list[int]) -> None:
    ends = Ends()
    async with listening(handle=ends.handle, write_bytes=1000) as rig:
        client = await rig.websocket()
        await trio.testing.wait_all_tasks_blocked()
        writes.clear()
        for _ in range(100):
            ends.sockets[0].send(b"x" * 96)
        for _ in range(100):
            assert await client.frame() == (TEXT, b"x" * 96)
        assert (max(writes), sum(writes)) == (1078, 9800)


async def test_end_of_the_connection_during_the_handshake() -> None:
    async with listening() as rig:
        for size in (0, 10, len(upgrade()) - 1):
            client = await rig.connect()
            if size:
                await client.send(upgrade()[:size])
            await client.aclose()
        await rig.settle()
        assert rig.counters.failures == 0


async def never_admitted(socket: Socket) -> None:
    while True:
        for message in await socket.receive():
            socket.send(message)


async def test_before_it_is_admitted_a_frame_is_small() -> None:
    async with listening(handle=never_admitted) as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"a" * 60_000) + frame(TEXT, b"b"))
        assert await client.frame() == (TEXT, b"a" * 60_000)
        assert await client.frame() == (TEXT, b"b")
        await client.send(frame(TEXT, b"x" * 65_537)[:100])
        _, error = await client.frame()
        assert msgspec.json.decode(error)["code"] == "too_large"
        assert await client.closed_with() == (1009, "too_large")


async def test_what_strangers_leave_half_said_has_a_budget() -> None:
    async with listening(handle=never_admitted, unauthenticated_total_bytes=100_000) as rig:
        small, large, new = [await rig.websocket() for _ in range(3)]
        held = rig.listener.budget
        await small.send(frame(TEXT, b"x" * 20_000)[:10_000])
        await large.send(frame(TEXT, b"x" * 65_000)[:60_000])
        await until(lambda: held.held == 70_000)
        await new.send(frame(TEXT, b"x" * 60_000)[:50_000])
        _, goaway = await large.frame()
        assert msgspec.json.decode(goaway)["reason"] == "overload"
        assert await large.closed_with() == (1013, "overload")
        assert (held.held, rig.counters.overloads) == (60_000, 1)
        await small.send(frame(TEXT, b"x" * 20_000)[10_000:])
        assert await small.frame() == (TEXT, b"x" * 20_000)
        new.cut()
        await until(lambda: held.held == 0)


async def test_who_is_known_has_no_part_in_that_budget() -> None:
    async with listening(unauthenticated_total_bytes=1_000) as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"x" * 100_000)[:50_000])
        await client.send(frame(TEXT, b"x" * 100_000)[50_000:])
        assert await client.frame() == (TEXT, b"x" * 100_000)
        assert rig.counters.overloads == 0


async def test_pings_have_a_rate() -> None:
    async with listening(tiny_frames=5, tiny_frames_rate=1_000_000) as rig:
        client = await rig.websocket()
        for _ in range(5):
            await client.send(frame(PING, b"") * 5)
            for _ in range(5):
                assert await client.frame() == (PONG, b"")
        await client.send(frame(PING, b"") * 6)
        _, error = await client.frame()
        assert msgspec.json.decode(error)["code"] == "throttled"
        found = [await client.frame() for _ in range(5)]
        assert found == [(PONG, b"")] * 5
        assert await client.closed_with() == (1008, "throttled")
        assert rig.counters.floods == 1


async def test_what_is_over_keeps_no_credential() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket("Authorization: Bearer pl_secret")
        await until(lambda: bool(ends.sockets))
        assert ends.sockets[0].authorization == "Bearer pl_secret"
        client.cut()
        await rig.settle()
        assert ends.sockets[0].authorization is None
