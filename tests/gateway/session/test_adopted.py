"""Receipts that outlive their owner in the lease cache: who may settle them, and how."""

from __future__ import annotations

import pytest

from pushlane.wire.frames import Ack, Done, Extend, LeaseLostFrame, Nack, Start
from pushlane_dispatcher.shard import runner as shard_runner
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.memory import MemoryLeases
from pushlane_storage.memory import MemoryStore
from tests.dispatcher.rig import memory_store
from tests.gateway.session.rig import TENANT, Client, Rig, blocked, rig
from tests.gateway.session.test_shards import spread, stop_shard
from tests.running import runners_of


async def held(client: Client, count: int) -> list[str]:
    return [found.receipt or "" for found in await client.deliveries(count)]


async def states(it: Rig, ids: list[str]) -> list[str]:
    return [(await it.dispatcher.explain(TENANT, "q", id)).state for id in ids]


async def die(it: Rig) -> None:
    """All of the server's shards stop without a word."""
    await blocked()
    queue = await it.dispatcher.open(TENANT, "q")
    for number in range(len(runners_of(queue))):
        await stop_shard(it, number)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("reason", [Stop.FENCED, Stop.UNDECIDED])
async def test_the_same_session_settles_what_it_had(shards: int, reason: Stop) -> None:
    async with rig(leases=MemoryLeases()) as it:
        await it.queue("q", shards=shards)
        client, producer = await it.client(), await it.client()
        sub = await client.subscribe("q", credit=6, start="explicit")
        await spread(producer, 6)
        receipts = await held(client, 6)
        client.say(Start(sub, receipts[:2]))
        await blocked()
        for number in range(shards):
            await stop_shard(it, number, reason)
        await client.silence(1)
        client.say(Extend(sub, receipts[:1], 60_000))
        client.say(Nack(sub, receipts[1:2], 60_000))
        assert (await client.ack(sub, *receipts[2:])).lease_lost == []
        assert (await client.ack(sub, receipts[0])).lease_lost == []
        assert (await client.ack(sub, receipts[2])).duplicate == [receipts[2]]
        stats = await it.dispatcher.stats(TENANT, "q")
        assert (stats.stored, stats.retrying) == (1, 1)


async def previous_life(store: MemoryStore, leases: MemoryLeases) -> tuple[list[str], list[str]]:
    """What a server that died had handed out: ids and receipts."""
    async with rig(store, leases=leases) as it:
        client = await it.client()
        await client.subscribe("q", credit=4)
        ids = (await client.publish("q", b"1", b"2", b"3", b"4")).ids
        receipts = await held(client, 4)
        await die(it)
    return [id or "" for id in ids], receipts


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("older", [False, True], ids=["", "of an older server"])
async def test_a_new_session_settles_what_the_server_s_death_cut_off(
    shards: int, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts of older servers do not say which shard they are from."""
    store, leases = memory_store(), MemoryLeases()
    async with rig(store, leases=leases) as it:
        await it.queue("q", shards=shards)
    if older:
        monkeypatch.setattr(shard_runner, "mark_prefix", lambda secret, _: secret)
    ids, receipts = await previous_life(store, leases)
    assert any("~" in receipt for receipt in receipts) is not older
    async with rig(store, leases=leases) as it:
        client = await it.client()
        sub = await client.subscribe("q", credit=10)
        await client.silence()
        assert await client.ack(sub, receipts[0]) == Done(2)
        assert await client.ack(sub, receipts[0]) == Done(3, duplicate=[receipts[0]])
        client.say(Ack(sub, receipts[1:2]))
        client.say(Nack(sub, receipts[2:3], dead=True))
        client.say(Ack(sub, ["feedfeedfeedfeed.3"]))
        assert await client.socket.hear() == LeaseLostFrame(sub, ["feedfeedfeedfeed.3"])
        await blocked()
        assert await states(it, ids) == ["acked", "acked", "dead", "leased"]


async def test_what_another_session_has_is_still_its_own() -> None:
    async with rig(leases=MemoryLeases()) as it:
        one, other = await it.client(), await it.client()
        await one.subscribe("q", credit=1)
        await one.publish("q", b"1")
        (receipt,) = await held(one, 1)
        sub = await other.subscribe("q")
        assert (await other.ack(sub, receipt)).lease_lost == [receipt]
        await stop_shard(it)
        await blocked()
        assert (await other.ack(sub, receipt)).lease_lost == [receipt], "it came back for it"
        assert (await one.ack(1, receipt)).lease_lost == []
