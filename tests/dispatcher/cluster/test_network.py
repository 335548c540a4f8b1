"""Nodes that don't belong together, over TCP: each end says why, in words for operators."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from pushlane_dispatcher.cluster.links.greeting import Me
from pushlane_dispatcher.cluster.links.network import LinkNetwork, open_network
from pushlane_dispatcher.cluster.peers import CannotReach, LinkLike, Peers, Refused, Replaced
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_storage.member import Member

KEY = b"the key of these nodes"
HOUR = 3_600_000
SETTINGS = ClusterSettings(close_ms=100)


@asynccontextmanager
async def node(name: str, key: bytes = KEY, **about: Any) -> AsyncIterator[LinkNetwork]:
    """A node with a listener, whose links do nothing."""
    fields = {"cluster": "c", "version": "1.0", "wall": lambda: 10 * HOUR, **about}
    me = Me(process=f"p-{name}", name=name, **fields)

    async def serve(link: LinkLike, process: str, lane: str) -> None:
        await link.run(lambda _: None)

    async with (
        open_network("127.0.0.1:0", me=lambda: me, key=key, tls=None, settings=SETTINGS) as network,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(network.serve, serve)
        yield network
        nursery.cancel_scope.cancel()


def member(name: str, there: LinkNetwork) -> Member:
    return Member(process=f"p-{name}", name=name, address=there.address)


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ({"key": b"the key of other nodes"}, "wrong_key"),
        ({"cluster": "another"}, "other_cluster"),
        ({"versions": (2, 3)}, "new_version"),
    ],
)
async def test_a_node_that_does_not_belong_here(
    caplog: pytest.LogCaptureFixture, other: dict[str, Any], code: str
) -> None:
    caplog.set_level(logging.WARNING)
    async with node("a") as a, node("stray", **other) as stray:
        with pytest.raises(CannotReach, match=code):
            await stray.dial(member("a", a), "rest")
        with trio.fail_after(5):
            while not a.counters.refusals:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert a.counters.refusals == {code: 1}
        assert stray.counters.unreached == {code: 1}
        [said] = [text for text in caplog.messages if text.startswith("refused a link")]
        assert code in said
        assert "stray" in said or "another" in said


async def test_an_old_node_is_told_apart() -> None:
    async with node("a", versions=(2, 3)) as a, node("old") as old:
        with pytest.raises(CannotReach, match="old_version"):
            await old.dial(member("a", a), "rest")


async def test_a_clock_that_is_an_hour_off_is_said_once_and_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with node("a") as a, node("b", wall=lambda: 9 * HOUR) as b:
        assert a.ahead_ms("p-b") is None
        for lane in ("rest", "data"):
            link = await a.dial(member("b", b), lane)
            link.abort()
            await link.run(lambda _: None)  # closes it
        ahead = a.ahead_ms("p-b")
        assert ahead is not None
        assert -HOUR - 5_000 < ahead < -HOUR + 5_000
        said = [text for text in caplog.messages if "the clock of node b" in text]
        assert len(said) == 1


async def test_half_a_pair_of_links_is_closed(nursery: trio.Nursery) -> None:
    async with node("a") as a, node("b") as b:

        async def dial(to: Member, lane: str) -> LinkLike:
            if lane == "data":
                raise CannotReach("busy")
            return await a.dial(to, lane)

        nothing: Any = None
        peers = Peers(nothing, SETTINGS, dial, int, int, nothing, nursery, float)
        with pytest.raises(CannotReach):
            async with peers._pair(member("b", b)):
                pass
        assert a.counters.opened == 1
        with trio.fail_after(5):
            while a.counters.open or b.counters.open:  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_who_is_not_there_and_who_took_its_place() -> None:
    async with node("a") as a:
        async with node("b") as b:
            there = member("b", b)
            with pytest.raises(Replaced):
                await a.dial(Member(process="p-older", name="b", address=b.address), "rest")
        with pytest.raises(Refused):
            await a.dial(there, "rest")
        assert a.counters.unreached == {"other_process": 1, "nobody_listens": 1}
