"""Links over real sockets: accepting, dialling, and who is turned away."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from starlette.applications import Starlette

from pushlane_dispatcher.cluster.counters import LinkCounters
from pushlane_dispatcher.cluster.failures import LinkRefused, LinkUnreachable, Refusal, Unreached
from pushlane_dispatcher.cluster.links.dialling import dial
from pushlane_dispatcher.cluster.links.link import EndCode, Link
from pushlane_dispatcher.cluster.links.listening import Links, open_links
from pushlane_dispatcher.cluster.links.talk import HTTP_ANSWER
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_gateway.listener.connection import Service
from pushlane_gateway.listener.listener import open_listener
from pushlane_gateway.listener.socket import Socket
from tests.dispatcher.cluster.rig import KEY, me, until

A, B = me("a"), me("b")
QUICK = ClusterSettings(handshake_ms=300, dial_ms=300, linger_ms=100, strangers=2, links=3)


class Node:
    """A listening node: it gives back each frame that it gets."""

    def __init__(self) -> None:
        self.served: list[Link] = []
        self.links: Links

    async def serve(self, link: Link) -> None:
        self.served.append(link)
        await link.run(lambda frame: link.send(b"back: " + frame))

    @property
    def counters(self) -> LinkCounters:
        return self.links.counters


@asynccontextmanager
async def listening(
    settings: ClusterSettings = QUICK, address: str = "127.0.0.1:0"
) -> AsyncIterator[Node]:
    node = Node()
    async with open_links(address, node.serve, me=lambda: B, key=KEY, settings=settings) as links:
        node.links = links
        yield node


async def test_frames_there_and_back() -> None:
    counters = LinkCounters()
    async with listening() as node, trio.open_nursery() as nursery:
        link = await dial(
            node.links.address, "process-b", lane="rest", me=A, key=KEY, counters=counters
        )
        got: list[bytes] = []
        nursery.start_soon(link.run, got.append)
        for number in range(1_000):
            link.send(b"%d" % number)
        await until(lambda: len(got) == 1_000)
        assert got == [b"back: %d" % number for number in range(1_000)]
        assert node.served[0].peer.name == "a"
        assert node.served[0].lane == "rest"
        assert (counters.open, node.counters.open, node.counters.strangers) == (1, 1, 0)
        link.close("enough")
        await until(lambda: not node.counters.open)
    assert counters.ends == {"closed": 1}
    assert node.counters.ends == {"left": 1}


async def test_large_frames_both_ways() -> None:
    """More than all buffers between the two hold."""
    frame = bytes(range(256)) * 16_384
    async with listening(ClusterSettings()) as node, trio.open_nursery() as nursery:
        link = await dial(node.links.address, lane="data", me=A, key=KEY)
        got: list[bytes] = []
        nursery.start_soon(link.run, got.append)
        for _ in range(8):
            await link.room(len(frame))
            link.send(frame)
        await until(lambda: len(got) == 8)
        assert set(got) == {b"back: " + frame}
        link.abort()


async def test_a_close_loses_nothing_though_the_peer_still_sends() -> None:
    async with listening(ClusterSettings()) as node, trio.open_nursery() as nursery:
        link = await dial(node.links.address, lane="data", me=A, key=KEY)
        got: list[bytes] = []
        nursery.start_soon(link.run, got.append)
        await until(lambda: node.served)
        for _ in range(2_000):
            link.send(b"x" * 1_000)
        link.close("enough")
        await until(lambda: link.ended)
        assert node.counters.frames_in == 2_000
        assert node.counters.ends == {"left": 1}


async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        counters = LinkCounters()
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(LinkUnreachable) as caught:
            await dial(address, lane="data", me=A, key=KEY, counters=counters)
    assert caught.value.nobody_listens
    assert counters.unreached == {"nobody_listens": 1}


async def test_nobody_answers() -> None:
    """Somebody listens, and says nothing; not even that nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(LinkUnreachable) as caught:
            await dial(address, lane="data", me=A, key=KEY, settings=QUICK)
    assert caught.value.code is Unreached.TIMED_OUT
    assert not caught.value.nobody_listens


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1", "::1:80", "", "127.0.0.1:99999"])
async def test_no_address(address: str) -> None:
    with pytest.raises(LinkUnreachable) as caught:
        await dial(address, lane="data", me=A, key=KEY)
    assert caught.value.code is Unreached.NO_ADDRESS


async def test_a_process_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as node:
        with pytest.raises(LinkRefused) as caught:
            await dial(node.links.address, "process-b-before", lane="data", me=A, key=KEY)
        assert caught.value.code is Refusal.OTHER_PROCESS
        assert caught.value.answered is not None
        assert caught.value.answered.process == "process-b"
        await until(lambda: node.counters.refusals == {"other_process": 1})
        await until(lambda: not node.counters.strangers)
        assert node.served == []
    assert "other_process: b runs as process-b, a expected process-b-before" in caplog.text


async def test_refusals_are_logged_now_and_then_only(caplog: pytest.LogCaptureFixture) -> None:
    async with listening() as node:
        for _ in range(5):
            with pytest.raises(LinkRefused, match="wrong_key"):
                await dial(node.links.address, lane="data", me=A, key=b"x" * 16)
            await until(lambda: node.counters.strangers == 0)
        assert node.counters.refusals == {"wrong_key": 5}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.text.count("wrong_key: a does not have the cluster's key") == 1


async def test_strangers_take_few_places_and_not_for_long() -> None:
    async with listening() as node:
        host, port = node.links.address.split(":")
        idle = [await trio.open_tcp_stream(host, int(port)) for _ in range(2)]
        await until(lambda: node.counters.strangers == 2)
        with pytest.raises(LinkRefused, match="busy"):
            await dial(node.links.address, lane="data", me=A, key=KEY)
        await until(lambda: node.counters.refusals == {"busy": 1, "timed_out": 2})
        assert node.counters.strangers == 0
        link = await dial(node.links.address, lane="data", me=A, key=KEY)
        link.abort()
        for stream in idle:
            await stream.aclose()
        await link.run(lambda _: None)


async def test_links_are_limited() -> None:
    async with listening() as node, trio.open_nursery() as nursery:
        links = [await dial(node.links.address, lane="data", me=A, key=KEY) for _ in range(3)]
        for link in links:
            nursery.start_soon(link.run, lambda _: None)
        await until(lambda: node.counters.open == 3)
        with pytest.raises(LinkRefused, match="busy"):
            await dial(node.links.address, lane="data", me=A, key=KEY)
        for link in links:
            link.abort()
        await until(lambda: node.counters.open == 0)


async def test_http_gets_an_answer() -> None:
    async with listening() as node:
        host, port = node.links.address.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"".join([bytes(part) async for part in stream]) == HTTP_ANSWER
        await stream.aclose()
        await until(lambda: node.counters.refusals == {"not_a_link": 1})


async def test_dialling_a_listener_for_clients() -> None:
    async def handle(_: Socket) -> None:
        raise AssertionError

    service = Service(Starlette(), handle, lambda _origin, _host: True)
    async with open_listener(["127.0.0.1:0"], service) as listener:
        with pytest.raises(LinkRefused, match="not_a_link"):
            await dial(str(listener.addresses[0]), lane="data", me=A, key=KEY)


async def test_stop_leaves_links_alone() -> None:
    async with listening() as node, trio.open_nursery() as nursery:
        link = await dial(node.links.address, lane="data", me=A, key=KEY)
        got: list[bytes] = []
        nursery.start_soon(link.run, got.append)
        node.links.stop()
        node.links.stop()
        with pytest.raises(LinkUnreachable) as caught:
            await dial(node.links.address, lane="data", me=A, key=KEY)
        assert caught.value.nobody_listens
        link.send(b"x")
        await until(lambda: got == [b"back: x"])
        link.abort()


async def test_leaving_the_block_ends_all() -> None:
    async with trio.open_nursery() as nursery:
        async with listening() as node:
            link = await dial(node.links.address, lane="data", me=A, key=KEY)
            nursery.start_soon(link.run, lambda _: None)
            await until(lambda: node.counters.open)
        await until(lambda: link.ended)
    assert link.why is not None
    assert link.why.code is EndCode.CUT
    assert node.counters.ends == {"aborted": 1}


async def test_a_bug_of_who_serves_ends_one_link(caplog: pytest.LogCaptureFixture) -> None:
    async def serve(link: Link) -> None:
        def take(frame: bytes) -> None:
            raise RuntimeError("a bug")

        await link.run(take)

    async with open_links("127.0.0.1:0", serve, me=lambda: B, key=KEY) as links:
        link = await dial(links.address, lane="data", me=A, key=KEY)
        link.send(b"x")
        await link.run(lambda _: None)
        await until(lambda: links.counters.failures == 1)
        assert links.counters.ends == {"failed": 1}
    assert "the link from 127.0.0.1:" in caplog.text


async def test_who_serves_need_not_run_it() -> None:
    async def serve(link: Link) -> None:
        pass

    async with open_links("127.0.0.1:0", serve, me=lambda: B, key=KEY) as links:
        link = await dial(links.address, lane="data", me=A, key=KEY)
        await link.run(lambda _: None)
        assert link.why is not None
        assert link.why.code is EndCode.CUT


async def test_ipv6() -> None:
    async with listening(address="[::1]:0") as node:
        assert node.links.address.startswith("[::1]:")
        link = await dial(node.links.address, lane="data", me=A, key=KEY)
        link.abort()
        await link.run(lambda _: None)


async def test_an_address_in_use() -> None:
    async with listening() as node:
        with pytest.raises(OSError, match="in use"):
            async with listening(address=node.links.address):
                pass
