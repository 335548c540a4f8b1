"""Nodes of two versions side by side, as during an upgrade: what a newer one adds is passed over,
and what it must not say to an older one costs its links, and nothing else."""

from __future__ import annotations

import logging

import msgspec
import pytest
import trio

from tests.dispatcher.cluster.test_cluster import HOUR, Client, make, numbered
from tests.dispatcher.cluster.world import cluster, until
from tests.dispatcher.rig import TENANT

COUNT = 24
UNKNOWN = 99
"""A tag that no version has used."""


def more(frame: bytes) -> bytes:
    """The frame with a field that a later version has added at its end."""
    return msgspec.msgpack.encode([*msgspec.msgpack.decode(frame), "of a later version"])


def garbled(frame: bytes) -> bytes:
    """A frame of a kind that this version doesn't know, in the place of a publish."""
    tag, *rest = msgspec.msgpack.decode(frame)
    return msgspec.msgpack.encode([UNKNOWN if tag == 12 else tag, *rest])


async def test_a_newer_node_says_more_than_others_understand(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(3) as world:
        newer = world.nodes[1]
        world.air.accents[newer.address] = more
        world.air.drop(newer.address)
        await make(world, shards=8)
        took = [
            await Client(node).subscribe(session=f"s{i}", credit=COUNT, lease_ms=HOUR)
            for i, node in enumerate(world.nodes)
        ]
        for turn, node in enumerate(world.nodes):
            done = await Client(node).publish(*numbered(turn * COUNT, (turn + 1) * COUNT))
            assert not done.failed
        await until(lambda: sum(len(one.bodies) for one in took) == 3 * COUNT)
        for one in took:
            settled = await one.ack(*one.receipts)
            assert (settled.lost, settled.duplicate, settled.error) == ([], [], None)
        assert "understand" not in caplog.text
        assert newer.cluster.numbers()["forwarded"], "it asked nobody"
        assert newer.cluster.numbers()["slots"], "nobody asked it"


async def test_a_node_that_says_what_it_must_not_loses_its_links_and_is_named(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with cluster(2) as world, trio.open_nursery() as nursery:
        a, newer = world.nodes
        await make(world, shards=8)
        world.air.accents[newer.address] = garbled
        nursery.start_soon(lambda: Client(newer).publish(*numbered(0, COUNT)))
        said = "the links of node b are cut: it says what this node does not understand"
        await until(lambda: said in caplog.text)
        del world.air.accents[newer.address]
        await world.linked()
        again = await Client(a).publish(*numbered(0, COUNT))
        assert not again.failed
        stats = await a.dispatcher.stats(TENANT, "q")
        assert stats.stored == COUNT, "nothing was lost, and nothing was stored twice"
