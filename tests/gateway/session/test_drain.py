"""The end of a server: sessions are told to go, settle, and are closed."""

from __future__ import annotations

import pytest
import trio

from pushlane.wire.frames import Ack, Done, Goaway, Hello, Publish, Published, Subscribe
from tests.dispatcher.rig import Gate, ScriptedStore
from tests.gateway.session.rig import TENANT, blocked, message, rig


async def test_idle_sessions_are_told_and_closed_at_once() -> None:
    async with rig() as it:
        clients = [await it.client() for _ in range(3)]
        silent = it.connect()
        await blocked()
        await it.sessions.drain()
        assert trio.current_time() < 1
        for client in clients:
            assert await client.socket.hear() == Goaway("drain", 750)
            assert client.socket.closed == (1001, "drain")
        assert silent.socket.closed == (1001, "drain")
        assert (len(it.sessions), len(it.sessions._connections)) == (0, 0)


async def test_accepted_publishes_are_answered_and_new_ones_are_not_taken() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store) as it, trio.open_nursery() as nursery:
        client = await it.client()
        await client.publish("q", b"0")
        store.script.add("append", gate)
        client.say(Publish(10, "q", [message()]))
        await gate.entered.wait()
        nursery.start_soon(it.sessions.drain)
        await client.socket.hear_a(Goaway)
        client.say(Publish(11, "q", [message()]), Subscribe(12, "q", 1))
        for id in (11, 12):
            error = await client.error()
            assert (error.id, error.code) == (id, "unavailable")
        assert client.socket.closed is None
        gate.released.set()
        assert (await client.socket.hear_a(Published)).id == 10
        assert await client.socket.until_closed() == (1001, "drain")


async def test_settles_work_until_the_close_and_nothing_more_is_delivered() -> None:
    async with rig() as it, trio.open_nursery() as nursery:
        client = await it.client()
        sub = await client.subscribe("q", credit=1)
        await client.publish("q", b"1", b"2")
        (found,) = await client.deliver()
        nursery.start_soon(it.sessions.drain)
        await client.socket.hear_a(Goaway)
        await client.silence(5)
        client.say(Ack(sub, [found.receipt or ""], 50))
        assert await client.socket.hear() == Done(50)
        assert await client.socket.until_closed() == (1001, "drain")
        assert trio.current_time() == pytest.approx(5, abs=0.1)


async def test_it_waits_no_longer_than_drain_ms_and_gives_back_what_is_held() -> None:
    async with rig(drain_ms=3_000) as it:
        client, away = await it.client(), await it.client()
        await client.subscribe("q")
        await client.publish("q", b"1")
        await client.deliver()
        await away.subscribe("r")
        await away.publish("r", b"1")
        await away.deliver()
        await away.drop()
        await it.sessions.drain()
        assert trio.current_time() == pytest.approx(3, abs=0.1)
        assert client.socket.closed == (1001, "drain")
        await blocked()
        for queue in ("q", "r"):
            stats = await it.dispatcher.stats(TENANT, queue)
            assert (stats.leased, stats.subscriptions) == (0, 0)


async def test_nobody_is_welcome_any_more() -> None:
    async with rig() as it:
        await it.sessions.drain()
        client = it.connect()
        client.say(Hello())
        assert await client.socket.hear() == Goaway("drain", 750)
        assert await client.socket.until_closed() == (1001, "drain")


async def test_a_socket_that_does_not_close_is_cut() -> None:
    store, gate = ScriptedStore(), Gate()
    async with rig(store, drain_ms=1_000, close_ms=500) as it:
        client = await it.client()
        store.script.add("read_queue", gate)
        client.say(Publish(1, "q", [message()]))
        await gate.entered.wait()
        await it.sessions.drain()
        assert client.socket.aborted
        assert trio.current_time() == pytest.approx(1.5, abs=0.1)
        gate.released.set()
        await client.gone.wait()
