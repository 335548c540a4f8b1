"""Subscriptions over several shards, and shards that stop and come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from pushlane.wire.frames import (
    Ack,
    Credit,
    Deliver,
    DeliverMessage,
    Done,
    Ended,
    Goaway,
    LeaseLostFrame,
    Nack,
    Subscribe,
)
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.engine import Engine
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.memory import MemoryLeases
from pushlane_storage.interface import SlotOwned, StoreUnknown
from pushlane_storage.member import Owner
from tests.dispatcher.rig import ScriptedStore, fail
from tests.gateway.session.rig import TENANT, Client, Rig, blocked, rig
from tests.running import runners_of, stats_now


async def spread(client: Client, count: int, first: int = 0) -> None:
    """Messages for all shards: their keys decide."""
    for n in range(first, first + count):
        await client.publish("q", b"%d" % n, key=f"key-{n}")


def unread(client: Client) -> list[DeliverMessage]:
    frames = [frame for frame in client.socket.unread if isinstance(frame, Deliver)]
    return [found for frame in frames for found in frame.messages]


def shard_of(found: DeliverMessage) -> str:
    return found.id.split("-")[1]


async def stop_shard(it: Rig, number: int = 0, reason: Stop = Stop.FENCED) -> None:
    queue = await it.dispatcher.open(TENANT, "q")
    runners_of(queue)[number]._engine.stop(reason)
    await runners_of(queue)[number]._engine.stopped.wait()


@pytest.mark.parametrize(("shards", "credit"), [(2, 100), (4, 5), (4, 4), (4, 3), (8, 1)])
async def test_all_shards_are_read_and_credit_is_never_exceeded(shards: int, credit: int) -> None:
    async with rig() as it:
        await it.queue("q", shards=shards)
        client, producer = await it.client(), await it.client()
        await spread(producer, 40)
        sub = await client.subscribe("q", credit=credit)
        seen: list[DeliverMessage] = []
        open_now: list[str] = []
        while len(seen) < 40:
            batch = await client.deliver()
            seen += batch
            open_now += [found.receipt or "" for found in batch]
            assert len(open_now) <= credit
            await blocked()
            assert len(open_now) + len(unread(client)) <= credit
            client.say(Ack(sub, [open_now.pop(0)]))
        assert len({found.id for found in seen}) == 40
        assert len({shard_of(found) for found in seen}) == shards
        client.say(Ack(sub, open_now))
        await blocked()
        assert (await it.dispatcher.stats(TENANT, "q")).acked == 40


async def test_a_shard_with_a_backlog_gets_nearly_all_the_credit() -> None:
    async with rig() as it:
        await it.queue("q", shards=4)
        client, producer = await it.client(), await it.client()
        await client.subscribe("q", credit=64)
        await producer.publish("q", *[b"1"] * 100)
        for _ in range(3):
            await producer.publish("q", *[b"1"] * 100)
        await trio.sleep(1)
        assert len(unread(client)) == 64


async def test_idle_and_scarce_credit_costs_nothing_and_moves_when_something_comes() -> None:
    async with rig() as it:
        await it.queue("q", shards=8)
        client, producer = await it.client(), await it.client()
        sub = await client.subscribe("q", credit=1)
        await trio.sleep(10)
        for n in range(16):
            since = trio.current_time()
            await producer.publish("q", b"1", key=f"k{n}")
            (found,) = await client.deliver()
            assert trio.current_time() == since, "nobody has to look whether something came"
            assert await client.ack(sub, found.receipt or "") == Done(n + 2)


@pytest.mark.parametrize(("shards", "credit"), [(2, 1), (4, 4), (4, 64)])
@pytest.mark.parametrize("fault", ["nack", "expiry"])
@pytest.mark.parametrize("leases", [None, MemoryLeases()], ids=["plain", "cached"])
async def test_a_consumer_that_failed_with_all_its_permits_goes_on_after_its_backoff(
    shards: int, credit: int, fault: str, leases: MemoryLeases | None
) -> None:
    async with rig(leases=leases) as it:
        await it.queue("q", shards=shards, max_attempts=100)
        client, producer = await it.client(), await it.client()
        await spread(producer, 80)
        sub = await client.subscribe("q", credit=credit, lease_ms=1_000)
        held = [found.receipt or "" for found in await client.deliveries(credit)]
        if fault == "nack":
            client.say(Nack(sub, held, error="down"))
        handled: set[str] = set()
        with trio.fail_after(600):
            while len(handled) < 80:
                frame = await client.socket.hear()
                if isinstance(frame, Deliver):
                    client.say(Ack(sub, [found.receipt or "" for found in frame.messages]))
                    handled |= {found.id for found in frame.messages}
        await blocked()
        assert (await it.dispatcher.stats(TENANT, "q")).acked == 80


async def test_scarce_credit_of_many_is_asked_for_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as it:
        await it.queue("q", shards=4)
        producer = await it.client()
        clients = [await it.client() for _ in range(20)]
        subs = [await client.subscribe("q", credit=1) for client in clients]
        queue = await it.dispatcher.open(TENANT, "q")
        calls = 0

        def counted(credit: Callable[..., None], *args: Any) -> None:
            nonlocal calls
            calls += 1
            credit(*args)

        for runner in runners_of(queue):
            monkeypatch.setattr(runner, "credit", partial(counted, runner.credit))
        for n in range(40):
            await producer.publish("q", b"1", key=f"k{n}")
            await blocked()
            held = [
                (client, sub, unread(client)) for client, sub in zip(clients, subs, strict=True)
            ]
            ((client, sub, (found,)),) = [item for item in held if item[2]]
            assert await client.deliver() == [found]
            await client.ack(sub, found.receipt or "")
            free = [sub.credit for runner in runners_of(queue) for sub in _subscriptions(runner)]
            assert sum(free) == 20
        assert calls < 40 * 6, "not each time of all of them"


async def test_many_with_scarce_credit_and_nothing_to_do_cost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as it:
        await it.queue("q", shards=4)
        producer = await it.client()
        clients = [await it.client() for _ in range(50)]
        subs = {client: await client.subscribe("q", credit=1) for client in clients}
        await blocked()
        calls: Counter[str] = Counter()

        def counted(real: Callable[..., None]) -> Callable[..., None]:
            def count(*args: Any) -> None:
                calls[real.__name__] += 1
                real(*args)

            return count

        monkeypatch.setattr(Engine, "pump", counted(Engine.pump))
        monkeypatch.setattr(ShardRunner, "credit", counted(ShardRunner.credit))
        await trio.sleep(60)
        assert calls["pump"] <= 4 * 6, "at most a look at the clock every ten seconds"
        assert calls["credit"] <= 10
        await spread(producer, 8)
        await blocked()
        for client in [client for client in clients if unread(client)]:
            (found,) = await client.deliver()
            await client.ack(subs[client], found.receipt or "")
        await blocked()
        assert (await it.dispatcher.stats(TENANT, "q")).acked == 8
        assert min(calls["pump"], calls["credit"]) > 0, "they are counted"
        calls.clear()
        await trio.sleep(60)
        assert calls["pump"] <= 4 * 6
        assert calls["credit"] <= 10
        assert (await it.dispatcher.stats(TENANT, "q")).subscriptions == 50 * 4


async def test_what_is_held_of_a_shard_that_is_away_counts() -> None:
    store = ScriptedStore()
    async with rig(store, dispatching=Settings(open_ms=60_000), leases=MemoryLeases()) as it:
        await it.queue("q", shards=2)
        client, producer = await it.client(), await it.client()
        await spread(producer, 12)
        sub = await client.subscribe("q", credit=4)
        held = await client.deliveries(4)
        away = [found for found in held if shard_of(found) == "0"]
        assert 0 < len(away) < 4
        store.script.always["claim"] = fail(StoreUnknown("?"))
        await stop_shard(it, 0)
        here = [found.receipt or "" for found in held if found not in away]
        client.say(Ack(sub, here))
        await trio.sleep(0.5)
        assert len(unread(client)) == 4 - len(away)


def _subscriptions(runner: ShardRunner) -> list[Subscription]:
    return list(runner._shard.consumers.subscriptions.values())


async def test_lowering_the_credit_below_what_is_held() -> None:
    async with rig() as it:
        await it.queue("q", shards=2)
        client, producer = await it.client(), await it.client()
        sub = await client.subscribe("q", credit=10)
        await spread(producer, 30)
        held = await client.deliveries(10)
        client.say(Credit(sub, 2))
        client.say(Ack(sub, [found.receipt or "" for found in held[:8]]))
        await client.silence(2)
        client.say(Ack(sub, [held[8].receipt or ""]))
        await blocked()
        assert len(unread(client)) == 1


async def test_one_frame_settles_on_several_shards() -> None:
    async with rig() as it:
        await it.queue("q", shards=3)
        client, producer = await it.client(), await it.client()
        sub = await client.subscribe("q")
        await spread(producer, 12)
        receipts = [found.receipt or "" for found in await client.deliveries(12)]
        await client.ack(sub, *receipts[:2])
        client.say(Ack(sub, [*receipts, "feedfeedfeedfeed.3"], 50))
        done = await client.socket.hear_a(Done)
        assert done.lease_lost == ["feedfeedfeedfeed.3"]
        assert sorted(done.duplicate) == sorted(receipts[:2])
        client.say(Ack(sub, ["feedfeedfeedfeed.3"]))
        assert await client.socket.hear() == LeaseLostFrame(sub, ["feedfeedfeedfeed.3"])


async def test_a_full_shard_leaves_nothing_attached() -> None:
    async with rig(bounds=Bounds(subscriptions=1)) as it:
        await it.queue("q", shards=3)
        queue = await it.dispatcher.open(TENANT, "q")
        client = await it.client()
        await client.subscribe("q")
        other = await it.client()
        other.say(b'{"op":"subscribe","id":1,"from":"q","credit":3}')
        assert (await other.error()).code == "throttled"
        assert stats_now(queue).subscriptions == 3
        await client.leave()
        await other.subscribe("q")


# Shards that stop


async def test_a_shard_that_stops_is_asked_for_again() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q", credit=2)
        await client.publish("q", b"1", b"2", b"3")
        held = await client.deliveries(2)
        await stop_shard(it)
        lost = await client.socket.hear_a(LeaseLostFrame)
        first = held[0].receipt or ""
        assert lost == LeaseLostFrame(sub, [f"{first}-2"])
        again = await client.deliveries(2)
        assert [found.id for found in again] == [found.id for found in held]
        assert await client.ack(sub, first) == Done(3, lease_lost=[first])
        client.say(Ack(sub, [again[0].receipt or ""]))
        assert len(await client.deliver()) == 1


async def test_with_a_lease_cache_the_client_notices_nothing() -> None:
    async with rig(leases=MemoryLeases()) as it:
        client = await it.client()
        sub = await client.subscribe("q", credit=2)
        await client.publish("q", b"1", b"2", b"3")
        held = [found.receipt or "" for found in await client.deliveries(2)]
        await blocked()
        await stop_shard(it, reason=Stop.CLOSED)
        await client.silence(1)
        client.say(Ack(sub, held[:1]))
        assert len(await client.deliver()) == 1
        assert (await client.ack(sub, held[1])).lease_lost == []


async def test_settles_while_a_shard_is_away_are_unavailable() -> None:
    store = ScriptedStore()
    async with rig(store, dispatching=Settings(open_ms=60_000)) as it:
        client = await it.client()
        sub = await client.subscribe("q")
        await client.publish("q", b"1")
        (found,) = await client.deliver()
        store.script.always["claim"] = fail(StoreUnknown("?"))
        await stop_shard(it)
        await blocked()
        client.say(Ack(sub, [found.receipt or ""], 50))
        error = await client.error()
        assert (error.code, error.id) == ("unavailable", 50)
        client.say(Ack(sub, [found.receipt or ""]))
        error = await client.error()
        assert (error.code, error.sub) == ("unavailable", sub)
        await trio.sleep(3)
        store.script.always.clear()
        lost = await client.socket.hear_a(LeaseLostFrame)
        assert lost.receipts == [found.receipt]
        assert len(await client.deliver()) == 1


async def test_whose_queue_another_server_has_is_sent_away() -> None:
    store = ScriptedStore()
    async with rig(store) as it:
        client, bystander = await it.client(), await it.client()
        await client.subscribe("q")
        await bystander.publish("other", b"1")
        store.script.always["claim"] = fail(SlotOwned("it is alive", Owner("p", "beta", 1)))
        await stop_shard(it)
        assert await client.socket.hear_a(Goaway) == Goaway("drain", 750)
        begun = trio.current_time()
        assert await client.socket.until_closed() == (1001, "drain")
        assert trio.current_time() - begun == pytest.approx(
            it.sessions.context.settings.goaway_ms / 1000
        )
        assert bystander.socket.closed is None
        client = await it.client()
        client.say(Subscribe(1, "q", 1))
        error = await client.error()
        assert (error.code, "server beta" in error.message) == ("unavailable", True)


async def test_a_queue_that_comes_back_keeps_its_consumers() -> None:
    """Fenced, but nobody else wants it."""
    async with rig() as it:
        client = await it.client()
        await client.subscribe("q")
        await stop_shard(it)
        await client.publish("q", b"1")
        assert len(await client.deliver()) == 1


async def test_one_of_several_shards_stops_and_the_others_go_on() -> None:
    async with rig() as it:
        await it.queue("q", shards=3)
        client, producer = await it.client(), await it.client()
        await client.subscribe("q", credit=100)
        await spread(producer, 12)
        held = await client.deliveries(12)
        await stop_shard(it, 1)
        lost = await client.socket.hear_a(LeaseLostFrame)
        prefixes = {receipt.rpartition(".")[0] for receipt in lost.receipts}
        gone = [found for found in held if (found.receipt or "").rpartition(".")[0] in prefixes]
        assert {shard_of(found) for found in gone} == {"1"}
        again = await client.deliveries(len(gone))
        assert {found.id for found in again} == {found.id for found in gone}
        await spread(producer, 12, 12)
        assert len(await client.deliveries(12)) == 12


async def test_a_shard_that_stopped_while_the_client_was_away() -> None:
    async with rig(leases=MemoryLeases()) as it:
        client = it.connect()
        session = (await client.hello()).session
        sub = await client.subscribe("q")
        await client.publish("q", b"1", b"2", b"3")
        held = [found.receipt or "" for found in await client.deliveries(3)]
        await client.drop()
        await stop_shard(it, reason=Stop.CLOSED)
        again = it.connect()
        welcome = await again.resume(session, {"1": held[:2]})
        assert (welcome.resumed, welcome.lost) == (True, {})
        (found,) = await again.deliver()
        assert found.receipt not in held, "it had not come, so it is granted anew"
        assert await again.ack(sub, *held[:2], found.receipt or "") == Done(1)


async def test_the_same_without_a_lease_cache() -> None:
    async with rig() as it:
        client = it.connect()
        session = (await client.hello()).session
        sub = await client.subscribe("q")
        await client.publish("q", b"1")
        (found,) = await client.deliver()
        await client.drop()
        await stop_shard(it)
        again = it.connect()
        await again.resume(session, {"1": [found.receipt or ""]})
        assert await again.socket.hear() == LeaseLostFrame(sub, [found.receipt or ""])
        assert (await again.deliver())[0].id == found.id


async def test_an_unsubscribed_sub_loses_its_receipts_with_its_shard() -> None:
    async with rig() as it:
        client = await it.client()
        sub = await client.subscribe("q")
        await client.publish("q", b"1")
        (found,) = await client.deliver()
        client.say(b'{"op":"unsubscribe","id":50,"sub":1}')
        await client.socket.hear_a(Done)
        await stop_shard(it)
        receipt = found.receipt or ""
        assert await client.ack(sub, receipt) == Done(3, lease_lost=[receipt])


async def test_a_queue_that_was_made_anew_is_another_one() -> None:
    store = ScriptedStore()
    async with rig(store) as it:
        client = await it.client()
        sub = await client.subscribe("q")
        store.script.always["claim"] = fail(StoreUnknown("?"))
        await stop_shard(it)
        await trio.sleep(0.2)
        await it.dispatcher.delete(TENANT, "q")
        await it.queue("q")
        store.script.always.clear()
        ended = await client.socket.hear_a(Ended)
        assert (ended.sub, ended.code) == (sub, "not_found")
        assert await client.subscribe("q") == sub + 1


async def test_a_session_that_ends_while_its_shard_is_away() -> None:
    store = ScriptedStore()
    async with rig(store) as it:
        client = await it.client()
        await client.subscribe("q")
        store.script.always["claim"] = fail(StoreUnknown("?"))
        await stop_shard(it)
        await client.leave()
        store.script.always.clear()
        await trio.sleep(20)
        assert (await it.dispatcher.stats(TENANT, "q")).subscriptions == 0
