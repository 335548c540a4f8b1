"""Receiving over HTTP: a long poll that loses nothing and leaves nothing behind."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import trio

from pushlane_dispatcher.callers.receive import Receive
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_leases.memory import MemoryLeases
from tests.dispatcher.rig import Gate, ScriptedLeases, ScriptedStore
from tests.gateway.http.client import Exchange
from tests.gateway.http.rig import TENANT, Rig, blocked, rig, small
from tests.running import runners_of

Q = "/v1/queues/q/receive"


def waiting(r: Rig, **fields: Any) -> Exchange:
    return r.begin("POST", Q, {"wait_ms": 20_000, **fields})


async def test_what_is_ready_comes_at_once() -> None:
    async with rig() as r:
        ids = await r.publish("q", "a", "b", "c")
        started = trio.current_time()
        found = await r.receive("q", 2, 20_000)
        assert trio.current_time() == started
        assert [message["id"] for message in found] == ids[:2]
        message = found[0]
        assert (message["body"], message["attempt"], message["lease_ms"]) == ("a", 1, 30_000)
        assert message["fence"] > 0
        assert "." in message["receipt"]
        assert await r.state("q", ids[0]) == "leased"
        assert r.metrics.delivered == 2


async def test_the_defaults() -> None:
    async with rig() as r:
        await r.publish("q", "a", "b")
        answer = await r.post(Q)
        assert len(answer.json["messages"]) == 1
        await r.post(Q)
        started = trio.current_time()
        assert (await r.post(Q)).json == {"messages": []}
        assert trio.current_time() - started == 20


async def test_it_waits_for_the_first_message() -> None:
    async with rig() as r:
        exchange = waiting(r, max=10)
        await trio.sleep(5)
        assert not exchange.answered
        (id,) = await r.publish("q", "a")
        await exchange.done.wait()
        assert [found["id"] for found in exchange.answer.json["messages"]] == [id]


async def test_without_waiting_an_empty_queue_answers_at_once() -> None:
    async with rig() as r:
        started = trio.current_time()
        assert await r.receive("q") == []
        assert trio.current_time() == started
        assert await r.subscriptions() == 0


async def test_without_waiting_what_must_be_read_first_comes_all_the_same() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await r.publish("q", "a")
    async with rig(store) as r:
        gate = Gate()
        store.script.add("segments", gate)
        exchange = r.begin("POST", Q, {"wait_ms": 0})
        await gate.entered.wait()
        gate.released.set()
        await exchange.done.wait()
        assert len(exchange.answer.json["messages"]) == 1


async def test_the_lease_runs_from_the_answer() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", "a")
        exchange = r.exchange("POST", Q, {"lease_ms": 5_000})
        exchange.writing = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await trio.sleep(60)
            assert exchange.started
            assert await r.state("q", id) == "reserved"
            exchange.writing.set()
        explained = (await r.get(f"/v1/queues/q/messages/{id}/explain")).json
        assert (explained["state"], explained["attempts"]) == ("leased", 1)
        assert explained["until"] - explained["since"] == 5_000
        assert explained["session"] == "http:anonymous"
        await trio.sleep(4.9)
        assert await r.state("q", id) == "leased"
        await trio.sleep(0.2)
        assert await r.state("q", id) == "retrying"


async def test_a_client_that_goes_while_it_waits() -> None:
    async with rig() as r:
        exchange = waiting(r)
        await blocked()
        assert await r.subscriptions() == 1
        exchange.leave()
        await exchange.done.wait()
        assert not exchange.answered
        assert await r.subscriptions() == 0
        (id,) = await r.publish("q", "a")
        assert await r.state("q", id) == "ready"


async def test_a_client_that_goes_when_messages_come() -> None:
    leases = ScriptedLeases()
    async with rig(leases=leases) as r:
        gate = Gate()
        leases.script.add("grant", gate)
        exchange = waiting(r)
        (id,) = await r.publish("q", "a")
        await gate.entered.wait()
        exchange.leave()
        await exchange.done.wait()
        gate.released.set()
        await blocked()
        await _is_untouched(r, id)


async def test_a_client_that_goes_before_its_answer_is_out() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", "a")
        exchange = r.exchange("POST", Q, {})
        exchange.deaf = True
        await exchange.run()
        await blocked()
        await _is_untouched(r, id)


async def test_a_request_that_is_cut_while_its_answer_goes_out() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", "a")
        exchange = r.exchange("POST", Q, {})
        exchange.writing = trio.Event()
        with trio.move_on_after(1):
            await exchange.run()
        await blocked()
        await _is_untouched(r, id)


async def _is_untouched(r: Rig, id: str) -> None:
    explained = (await r.get(f"/v1/queues/q/messages/{id}/explain")).json
    assert explained["state"] == "ready"
    assert explained.get("attempts", 0) == explained.get("deliveries", 0) == 0
    assert await r.subscriptions() == 0
    (found,) = await r.receive("q")
    assert (found["id"], found["attempt"]) == (id, 1)


async def test_a_server_that_stops_ends_what_waits() -> None:
    async with rig() as r:
        exchange = waiting(r)
        await blocked()
        started = trio.current_time()
        r.context.draining.set()
        await exchange.done.wait()
        assert trio.current_time() == started
        assert exchange.answer.json == {"messages": []}
        assert (await r.post(Q)).fault == (503, "unavailable")


async def test_a_key_that_is_revoked_meanwhile(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        r.caller("admin:*")
        caller = r.caller("consume:q")
        publisher = r.caller("publish:q")
        exchange = caller.begin("POST", Q, {})
        await blocked()
        r.context.authenticator._keys = {
            id: key
            for id, key in r.context.authenticator._keys.items()
            if key.rules[0].action != "consume"
        }
        (id,) = await publisher.publish("q", "a")
        await exchange.done.wait()
        assert exchange.answer.fault == (401, "unauthorized")
        await blocked()
        assert await publisher.state("q", id) == "ready"


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"max": 0}, "max"),
        ({"max": 1_001}, "max"),
        ({"wait_ms": 60_001}, "wait_ms"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"lease_ms": 999}, "lease_ms"),
        ({"lease_ms": 50_000_000}, "lease_ms"),
        ({"max": 1.0}, "max"),
        ({"max": "1"}, "max"),
    ],
)
async def test_values_outside_their_limits(body: dict[str, Any], name: str) -> None:
    async with rig() as r:
        answer = await r.post(Q, body)
        assert answer.fault == (400, "bad_request")
        assert name in answer.json["error"]["message"]


async def test_limits_are_counted() -> None:
    async with rig(limits=small(batch=5)) as r:
        await r.post(Q, {"max": 6})
        await r.post(Q, {"wait_ms": 60_001})
        assert (r.limit("batch"), r.limit("wait_ms")) == (1, 1)


async def test_polls_of_one_identity_are_limited(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml", polls=4) as r:
        caller = r.caller("consume:*")
        polls = [caller.begin("POST", Q, {}) for _ in range(2)]
        await blocked()
        refused = await caller.post(Q)
        assert refused.fault == (429, "throttled")
        assert (r.limit("polls_share"), refused.headers["retry-after"]) == (1, "1")
        assert b"pushlane_http_polls 2.0" in (await r.caller("operate:*").get("/metrics")).body
        other = r.caller("consume:*")
        polls += [other.begin("POST", Q, {}) for _ in range(2)]
        await blocked()
        third = r.caller("consume:*")
        assert (await third.post(Q)).fault == (429, "throttled")
        assert r.limit("polls") == 1
        for poll in polls:
            await poll.done.wait()
        assert (await caller.post(Q, {"wait_ms": 0})).status == 200


async def test_too_many_subscriptions() -> None:
    async with rig(bounds=Bounds(subscriptions=1)) as r:
        first = waiting(r)
        await blocked()
        assert (await r.post(Q)).fault == (429, "throttled")
        first.leave()
        await first.done.wait()
        assert await r.receive("q") == []


async def test_the_answer_ends_when_it_is_large_enough() -> None:
    async with rig(answer_bytes=2_500) as r:
        await r.publish("q", *["x" * 1_000] * 4)
        assert len(await r.receive("q", 10)) == 1
        assert len(await r.receive("q", 10)) == 1
        await blocked()
        stats = await r.stats("q")
        assert (stats["leased"], stats["ready"]) == (2, 2)


async def test_one_message_comes_however_large() -> None:
    async with rig(answer_bytes=1) as r:
        await r.publish("q", "x" * 1_000)
        assert len(await r.receive("q", 10)) == 1


async def test_a_paused_queue_gives_nothing() -> None:
    async with rig() as r:
        await r.queue(paused=True)
        await r.publish("q", "a")
        assert await r.receive("q", wait_ms=1_000) == []


async def test_a_deleted_queue_ends_the_wait() -> None:
    async with rig() as r:
        exchange = waiting(r)
        await blocked()
        assert (await r.delete("/v1/queues/q?confirm=q")).status == 200
        await exchange.done.wait()
        assert exchange.answer.fault == (404, "not_found")


async def test_a_shard_that_stops_ends_the_wait() -> None:
    async with rig() as r:
        exchange = waiting(r)
        await blocked()
        queue = await r.dispatcher.open(TENANT, "q")
        await runners_of(queue)[0].close()
        await exchange.done.wait()
        assert exchange.answer.fault == (503, "unavailable")
        assert exchange.answer.json["error"]["retry_ms"] == 100


async def test_fair_among_sessions_and_receives() -> None:
    async with rig() as r:
        polls = [waiting(r) for _ in range(3)]
        await blocked()
        await r.publish("q", "a", "b", "c")
        for poll in polls:
            await poll.done.wait()
            assert len(poll.answer.json["messages"]) == 1


# Many of them


async def test_nothing_is_left_of_many_receives() -> None:
    async with rig() as r:
        for n in range(200):
            await r.publish("q", n)
            (found,) = await r.receive("q")
            assert await r.settle("ack", "q", found["receipt"]) == {}
            assert await r.receive("q") == []
        assert await r.subscriptions() == 0
        assert len(r.dispatcher._context.settled) <= 200


async def test_nothing_of_them_stays_in_memory_either() -> None:
    def there() -> int:
        gc.collect()
        return sum(isinstance(found, Subscription | Receive) for found in gc.get_objects())

    async with rig() as r:
        before = there()
        for _ in range(300):
            await r.publish("q", "a")
            (message,) = await r.receive("q", 1)
            await r.settle("ack", "q", message["receipt"])
        assert there() - before <= 2 * 2 * 64, "not until `reserve_ms` is over"
        assert len(r.dispatcher._context.settled) == 300


async def test_what_is_leased_keeps_its_subscription_until_it_expires() -> None:
    async with rig() as r:
        await r.publish("q", *range(20))
        for _ in range(20):
            await r.receive("q", lease_ms=1_000)
        assert await r.subscriptions() == 20
        await trio.sleep(1.1)
        assert await r.subscriptions() == 0
        assert (await r.stats("q"))["retrying"] == 20


# Several shards


async def test_several_shards_when_something_is_ready() -> None:
    async with rig() as r:
        await r.queue(shards=4)
        for n in range(40):
            await r.publish("q", n, key=f"k{n}")
        seen: set[int] = set()
        while len(seen) < 40:
            found = await r.receive("q", 5)
            assert 1 <= len(found) <= 5
            seen |= {message["body"] for message in found}
            receipts = [message["receipt"] for message in found]
            assert await r.settle("ack", "q", *receipts) == {}
        assert await r.subscriptions() == 0


async def test_several_shards_whose_messages_all_failed() -> None:
    async with rig() as r:
        await r.queue(shards=4, backoff_base_ms=100)
        for n in range(20):
            await r.publish("q", n, key=f"k{n}")
        for _ in range(20):
            (found,) = await r.receive("q", wait_ms=20_000)
            await r.settle("nack", "q", found["receipt"])
        done: set[str] = set()
        while len(done) < 20:
            (found,) = await r.receive("q", wait_ms=20_000)
            assert await r.settle("ack", "q", found["receipt"]) == {}
            done.add(found["id"])
        assert (await r.stats("q"))["stored"] == 0


async def test_several_shards_when_nothing_is_ready() -> None:
    async with rig() as r:
        await r.queue(shards=4)
        for n in range(8):
            exchange = waiting(r, max=1)
            await blocked()
            assert await r.subscriptions() == 4
            (id,) = await r.publish("q", n, key=f"k{n}")
            await exchange.done.wait()
            (found,) = exchange.answer.json["messages"]
            assert found["id"] == id
            await r.settle("ack", "q", found["receipt"])
        assert await r.subscriptions() == 0


async def test_what_several_shards_give_at_once_is_no_more_than_asked_for() -> None:
    async with rig() as r:
        await r.queue(shards=4)
        exchange = waiting(r, max=2)
        await blocked()
        await r.publish("q", *range(20))
        await exchange.done.wait()
        assert 1 <= len(exchange.answer.json["messages"]) <= 2
        await blocked()
        stats = await r.stats("q")
        assert stats["leased"] == len(exchange.answer.json["messages"])
        assert stats["reserved"] == 0
        assert stats["ready"] == 20 - stats["leased"]


async def test_a_ready_shard_that_has_nothing_after_all() -> None:
    """Another consumer takes it first: then the others are asked, too."""
    async with rig() as r:
        await r.queue(shards=2)
        queue = await r.dispatcher.open(TENANT, "q")
        first = r.begin("POST", Q, {"max": 100})
        await blocked()
        await r.publish("q", "a", key="k")
        await first.done.wait()
        (ready,) = [runner for runner in runners_of(queue) if runner.stats().leased]
        other = next(runner for runner in runners_of(queue) if runner is not ready)
        second = r.begin("POST", Q, {"max": 100})
        await blocked()
        assert other.stats().subscriptions == 1
        second.leave()
        await second.done.wait()


async def test_a_lease_cache_is_told() -> None:
    leases = MemoryLeases()
    async with rig(leases=leases) as r:
        await r.publish("q", "a")
        (found,) = await r.receive("q")
        assert await r.settle("ack", "q", found["receipt"]) == {}
        assert await r.subscriptions() == 0
