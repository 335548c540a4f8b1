"""The usage writer: what is written when, what a failing store costs, and the bounds."""

from __future__ import annotations

import trio

from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.usage.writer import Presence
from pushlane_storage.interface import Backend, StoreUnknown
from pushlane_storage.usage import BILLING, Usage, UsageKey, merge
from tests.dispatcher.rig import (
    START,
    TENANT,
    Rig,
    ScriptedStore,
    dispatching,
    fail,
    memory_store,
    message,
    rig,
)

NOW = START // 60_000


async def counters(store: Backend, queue: str = "q", minute: int | None = None) -> dict[str, int]:
    """Of all nodes."""
    found: dict[str, int] = {}
    low, high = (1, 1 << 40) if minute is None else (minute, minute)
    for row in await store.usage.read(TENANT, low, high, queue):
        merge(found, row.counters)
    return found


async def work(r: Rig) -> None:
    consumer = r.consumer(acking=True)
    await r.publish(b"1", b"22")
    await trio.sleep(1)
    consumer.leave()


async def test_a_flush_comes_by_itself() -> None:
    store = memory_store()
    async with rig(store) as r:
        await work(r)
        assert await counters(store) == {}
        await trio.sleep(11)
        found = await counters(store)
        exact = {"published": 2, "acked": 2, "delivered": 2, "started": 2}
        assert {name: found[name] for name in exact} == exact
        assert (found["bytes_in"], found["bytes_out"]) == (3, 3)
        assert sum(value for name, value in found.items() if "_ms." in name) == 6


async def test_what_happened_before_the_turn_of_a_minute_belongs_to_it() -> None:
    store = memory_store()
    async with rig(store) as r:
        left = 60 - START / 1000 % 60
        await trio.sleep(left - 2)
        await r.publish(b"1")
        await trio.sleep(3)
        await r.publish(b"2", b"3")
        await trio.sleep(30)
        assert (await counters(store, minute=NOW))["published"] == 1
        assert (await counters(store, minute=NOW + 1))["published"] == 2


async def test_nothing_is_written_while_nothing_happens() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await r.publish(b"1")
        r.runner.purge()
        await trio.sleep(61)
        before = len(store.script.called("put_usage"))
        rows = [row for (rows,) in store.script.called("put_usage") for row in rows]
        await trio.sleep(500)
        after = [row for (rows,) in store.script.called("put_usage")[before:] for row in rows]
        assert rows
        assert after == []


async def test_what_is_stored_is_looked_at() -> None:
    store = memory_store()
    async with rig(store) as r:
        await r.publish(bytes(1_000), bytes(1_000))
        r.consumer(credit=1, explicit=True)
        await trio.sleep(45)
        found = await counters(store)
        assert found["max.backlog"] == 2
        assert 30_000 < found["max.oldest_ms"] <= 45_000
        assert found["stored_byte_s"] >= 2_000 * 30
        assert 30_000 <= found["subscription_ms"] <= 45_000


async def test_closing_writes_everything() -> None:
    store = memory_store()
    async with rig(store) as r:
        await work(r)
    found = await counters(store)
    assert (found["published"], found["acked"], found["delivered"]) == (2, 2, 2)


async def test_a_queue_that_is_deleted_was_counted() -> None:
    store = memory_store()
    async with rig(store) as r:
        await work(r)
        await r.dispatcher.delete(TENANT, "q")
        assert (await counters(store))["published"] == 2
        await r.dispatcher.open(TENANT, "q", create=True)
        await r.reopen()
        await work(r)
    assert (await counters(store))["published"] == 4


async def test_a_store_that_fails_delays_and_loses_nothing() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.always["put_usage"] = fail(StoreUnknown("planted"))
        await work(r)
        await trio.sleep(200)
        assert r.dispatcher.usage_numbers()["failures"] > 10
        assert r.runner.running
        await r.publish(b"4")
        del store.script.always["put_usage"]
        await trio.sleep(11)
        found = await counters(store)
        assert (found["published"], found["acked"], found["delivered"]) == (3, 2, 2)
        assert r.dispatcher.usage_numbers()["lost"] == 0


async def test_rows_that_can_t_be_written_are_bounded() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(usage_rows=3)) as dispatcher:
        store.script.always["put_usage"] = fail(StoreUnknown("planted"))
        for _ in range(10):
            dispatcher.usage_writer.connected(TENANT)
            dispatcher.usage_writer.disconnected(TENANT)
            await trio.sleep(60)
        assert dispatcher.usage_numbers()["lost"] == 7
        del store.script.always["put_usage"]
    assert (await counters(store, ""))["connections"] == 3


async def test_many_shards_are_written_together() -> None:
    store = ScriptedStore()
    async with dispatching(store, settings=Settings(usage_batch=4)) as dispatcher:
        for number in range(10):
            await dispatcher.publish(TENANT, f"q{number}", [message()], create=True)
        before = len(store.script.called("put_usage"))
        await dispatcher.usage_writer.flush()
        assert len(store.script.called("put_usage")) - before == 3 + 3
        for number in range(10):
            assert (await counters(store, f"q{number}"))["published"] == 1


async def test_connections_are_the_tenant_s() -> None:
    store = memory_store()
    async with dispatching(store) as dispatcher:
        dispatcher.usage_writer.connected(TENANT)
        await trio.sleep(100)
        dispatcher.usage_writer.connected(TENANT)
        await trio.sleep(20)
        dispatcher.usage_writer.disconnected(TENANT)
        await dispatcher.usage_writer.flush()
        found = await counters(store, "")
        assert found == {"connections": 2, "connection_ms": 140_000}


async def test_nobody_counts_when_it_is_off() -> None:
    store = memory_store()
    async with rig(store, settings=Settings(usage=False)) as r:
        r.dispatcher.usage_writer.connected(TENANT)
        await work(r)
        await trio.sleep(100)
        await r.dispatcher.usage_writer.flush()
        r.dispatcher.usage_writer.disconnected(TENANT)
    assert await store.usage.read(TENANT, 0, 1 << 40) == []


async def test_a_later_bill_counts_whatever_the_clock_says() -> None:
    """It was an hour ahead, or another server's is."""
    store = memory_store()
    place = ("q", NOW)
    key = UsageKey(TENANT, *place, BILLING)
    await store.usage.put([Usage(key, {"billing.day.total": 1}, START + 3_600_000)])
    async with dispatching(store) as dispatcher:
        for cost in (2, 3):
            await dispatcher.usage_writer.put_bills(TENANT, {place: {"billing.day.total": cost}})
            found = await store.usage.find(key)
            assert found is not None
            assert found.counters == {"billing.day.total": cost}


def test_the_time_of_all_connections_of_a_tenant_adds_up() -> None:
    presence = Presence()
    presence.came("a", 1_000)
    presence.came("a", 1_500)
    presence.came("b", 1_500)
    assert dict(presence.take(2_000)) == {"a": 1_500, "b": 500}
    presence.left("b", 2_100)
    presence.left("a", 2_500)
    assert dict(presence.take(3_000)) == {"a": 1_500, "b": 100}
    presence.left("a", 3_000)
    assert dict(presence.take(4_000)) == {}
    assert presence._tenants == {}
