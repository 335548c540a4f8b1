"""Addresses, limits, accepting under pressure, and stopping in good order."""

from __future__ import annotations

import errno
import os
import socket as sockets
import stat
from pathlib import Path
from typing import Any

import pytest
import trio
from starlette.responses import Response

from pushlane_gateway.listener.address import Address, open_address, parse_address
from pushlane_gateway.settings import DEFAULT_SETTINGS, GatewaySettings
from tests.gateway.listener.rig import TEXT, Ends, frame, get, listening, until


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8420", Address("127.0.0.1", 8420)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:8420", Address("::1", 8420)),
        ("unix:/run/pushlane.sock", Address(path="/run/pushlane.sock")),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    ["", "8420", ":8420", "localhost", "localhost:", "a:x", "a:70000", "::1:8420", "unix:", "a:²"],
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r".+: "):
        parse_address(text)


@pytest.mark.parametrize("change", [{"connections": 0}, {"ping_ms": 10, "silence_ms": 10}])
def test_settings_that_make_no_sense(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"connections|silence_ms"):
        GatewaySettings(**change)


async def test_port_0_finds_a_free_one_and_says_which() -> None:
    async with listening("127.0.0.1:0", "127.0.0.1:0") as rig:
        ports = [address.port for address in rig.listener.addresses]
        assert 0 not in ports
        assert len(set(ports)) == 2
        for port in ports:
            client = rig.adopt(await trio.open_tcp_stream("127.0.0.1", port))
            await client.send(get("/hello"))
            assert (await client.answer()).status == 200


async def test_a_port_in_use_is_an_error_and_leaves_nothing_open() -> None:
    async with listening() as rig:
        with pytest.raises(OSError, match="in use"):
            async with listening("127.0.0.1:0", f"127.0.0.1:{rig.port}"):
                pass


async def test_ipv6() -> None:
    async with listening("[::1]:0") as rig:
        client = await rig.websocket()
        await client.send(frame(TEXT, b"six"))
        assert await client.frame() == (TEXT, b"six")


async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    ends = Ends()
    async with listening(f"unix:{path}", handle=ends.handle) as rig:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        client = await rig.websocket()
        await client.send(frame(TEXT, b"here"))
        assert await client.frame() == (TEXT, b"here")
        assert ends.sockets[0].peer == "unix"
        with pytest.raises(OSError, match="in use"):
            open_address(Address(path=str(path)), DEFAULT_SETTINGS)
    assert not path.exists()


async def test_http_on_a_unix_socket(tmp_path: Path) -> None:
    async with listening(f"unix:{tmp_path / 's'}") as rig:
        client = await rig.connect()
        await client.send(get("/hello"))
        assert (await client.answer()).body == b"hello you"


async def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "gateway.sock")
    with sockets.socket(sockets.AF_UNIX) as stale:
        stale.bind(path)
    async with listening(f"unix:{path}") as rig:
        await rig.websocket()


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("keep me")
    with pytest.raises(FileExistsError, match="not a socket"):
        open_address(Address(path=str(path)), DEFAULT_SETTINGS)
    assert path.read_text() == "keep me"


async def test_one_connection_too_many_is_told_503() -> None:
    async with listening(connections=2) as rig:
        first, _ = await rig.websocket(), await rig.websocket()
        third = await rig.connect()
        answer = await third.answer()
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert "overload" in answer.error["message"]
        assert answer.headers["retry-after"] == "5"
        await third.eof()
        assert (rig.counters.refused, rig.listener.connections) == (1, 2)
        await first.aclose()
        await rig.settle(1)
        await rig.websocket()


async def test_who_is_turned_away_with_a_request_is_not_reset() -> None:
    async with listening(connections=1) as rig:
        await rig.websocket()
        with sockets.create_connection(("127.0.0.1", rig.port)) as late:
            late.sendall(get("/hello"))
            await until(lambda: rig.counters.refused == 1)
            assert late.recv(10_000).startswith(b"HTTP/1.1 503 ")
            assert late.recv(10_000) == b""


async def test_small_frames_are_not_held_back_by_the_kernel() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        await rig.websocket()
        await until(lambda: len(ends.sockets) == 1)
        sock = ends.sockets[0]._link._sock
        assert sock.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_accepting_goes_on_after_something_ran_out(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = 3
    accept = sockets.socket.accept

    def failing(sock: sockets.socket) -> Any:
        nonlocal failures
        if failures and sock.getsockname()[1] == rig.port:
            failures -= 1
            raise OSError(number, os.strerror(number))
        return accept(sock)

    async with listening(accept_pause_ms=20) as rig:
        monkeypatch.setattr(sockets.socket, "accept", failing)
        began = trio.current_time()
        client = await rig.connect()
        await client.send(get("/hello"))
        assert (await client.answer()).status == 200
        assert trio.current_time() - began >= 0.06
        assert rig.counters.accept_failures == 3
    assert "can't accept" in caplog.text


async def test_a_client_that_went_before_it_was_accepted_is_no_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = [ConnectionAbortedError(errno.ECONNABORTED, "gone")]
    accept = sockets.socket.accept

    def failing(sock: sockets.socket) -> Any:
        if gone:
            raise gone.pop()
        return accept(sock)

    async with listening(accept_pause_ms=10_000) as rig:
        monkeypatch.setattr(sockets.socket, "accept", failing)
        await rig.websocket()
        assert rig.counters.accept_failures == 0


async def test_stopping_answers_what_is_under_way_and_closes_what_is_idle() -> None:
    asked, release = trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/wait":
            asked.set()
            await release.wait()
        await Response(b"done")(scope, receive, send)

    async with listening(app=app) as rig:
        busy, idle, fresh = [await rig.connect() for _ in range(3)]
        await idle.send(get("/"))
        assert (await idle.answer()).body == b"done"
        await busy.send(get("/wait") + get("/too-late"))
        await asked.wait()
        rig.listener.stop()
        await idle.eof()
        await fresh.eof()
        with pytest.raises(OSError, match="connect"):
            await rig.connect()
        release.set()
        answer = await busy.answer()
        assert (answer.body, answer.headers["connection"]) == (b"done", "close")
        await busy.eof()


async def test_stopping_in_the_middle_of_an_answer_ends_the_connection_behind_it() -> None:
    begun, release = trio.Event(), trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half ", "more_body": True})
        begun.set()
        await release.wait()
        await send({"type": "http.response.body", "body": b"whole"})

    async with listening(app=app) as rig:
        client = await rig.connect()
        await client.send(get("/"))
        await begun.wait()
        rig.listener.stop()
        release.set()
        assert (await client.answer()).body == b"half whole"
        with trio.fail_after(20):
            await client.eof()


async def test_stopping_leaves_websockets_to_their_sessions() -> None:
    ends = Ends()
    async with listening(handle=ends.handle) as rig:
        client = await rig.websocket()
        rig.listener.stop()
        await client.send(frame(TEXT, b"still here"))
        assert await client.frame() == (TEXT, b"still here")
        with trio.move_on_after(0.05) as scope:
            await rig.listener.drained()
        assert scope.cancelled_caught
        ends.sockets[0].close(1001, "drain")
        await client.frame()
        await client.aclose()
        await rig.listener.drained()


async def test_leaving_ends_everything_at_once() -> None:
    ends = Ends()
    with trio.fail_after(20):
        async with listening(handle=ends.handle) as rig:
            client = await rig.websocket()
            await trio.testing.wait_all_tasks_blocked()
            ends.sockets[0].send(b"x" * 30_000_000)
            await trio.sleep(0.01)
            rig.clients.clear()
            rig.listener.nursery.cancel_scope.cancel()
        await client.aclose()


async def test_many_connections_come_and_go() -> None:
    async with listening() as rig:

        async def visit(number: int) -> None:
            client = await rig.websocket()
            await client.send(frame(TEXT, b"%d" % number))
            assert await client.frame() == (TEXT, b"%d" % number)
            await client.aclose()

        for _ in range(5):
            async with trio.open_nursery() as nursery:
                for number in range(40):
                    nursery.start_soon(visit, number)
        await rig.settle()
        assert (rig.counters.accepted, rig.counters.upgrades) == (200, 200)
        assert rig.counters.failures == 0
