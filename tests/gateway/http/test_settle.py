"""Settling over HTTP: receipts are all that is needed, and all that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pushlane.wire.receipts import parse
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.sink import Attach
from pushlane_dispatcher.shard.stop import Stop
from pushlane_leases.memory import MemoryLeases
from pushlane_storage.interface import StoreUnknown
from tests.dispatcher.rig import Consumer, Gate, ScriptedStore, fail
from tests.gateway.http.rig import TENANT, Rig, blocked, rig, small
from tests.running import runners_of

ACK = "/v1/queues/q/ack"


async def one(r: Rig, **fields: Any) -> tuple[str, str]:
    """The id and the receipt of a fresh message."""
    await r.publish("q", "a")
    (found,) = await r.receive("q", **fields)
    return found["id"], found["receipt"]


def run_of(receipts: list[str]) -> str:
    (prefix,) = {parse(receipt)[0] for receipt in receipts}
    return f"{prefix}.1-{len(receipts)}"


async def test_ack() -> None:
    async with rig() as r:
        id, receipt = await one(r)
        assert await r.settle("ack", "q", receipt) == {}
        assert await r.state("q", id) == "acked"
        assert await r.subscriptions() == 0
        assert r.metrics.settled.counts["ack"] == 1


async def test_a_run_of_receipts() -> None:
    async with rig() as r:
        await r.publish("q", *range(10))
        found = await r.receive("q", 10)
        assert await r.settle("ack", "q", run_of([m["receipt"] for m in found])) == {}
        assert (await r.stats("q"))["stored"] == 0


async def test_some_now_and_some_later() -> None:
    async with rig() as r:
        await r.publish("q", 1, 2)
        first, second = await r.receive("q", 2)
        await r.settle("ack", "q", first["receipt"])
        assert await r.subscriptions() == 1
        await r.settle("ack", "q", second["receipt"])
        assert await r.subscriptions() == 0


async def test_a_repeated_ack_is_a_duplicate_for_a_while() -> None:
    async with rig() as r:
        await r.publish("q", 1, 2)
        found = await r.receive("q", 2)
        receipts = [message["receipt"] for message in found]
        await r.settle("ack", "q", receipts[0])
        assert await r.settle("ack", "q", receipts[0]) == {"duplicate": [receipts[0]]}
        await r.settle("ack", "q", receipts[1])
        run = run_of(receipts)
        assert await r.settle("ack", "q", run) == {"duplicate": [run]}
        assert await r.settle("extend", "q", run, lease_ms=5_000) == {"duplicate": [run]}
        await trio.sleep(31)
        assert await r.settle("ack", "q", run) == {"lease_lost": [run]}


async def test_what_is_remembered_is_limited() -> None:
    async with rig(remembered=2) as r:
        receipts = [(await one(r))[1] for _ in range(3)]
        for receipt in receipts:
            await r.settle("ack", "q", receipt)
        assert len(r.dispatcher._context.settled) == 2
        answer = await r.settle("ack", "q", *receipts)
        assert answer == {"lease_lost": receipts[:1], "duplicate": receipts[1:]}


async def test_nack_and_its_delay() -> None:
    async with rig() as r:
        id, receipt = await one(r)
        assert await r.settle("nack", "q", receipt, delay_ms=5_000, error="no luck") == {}
        explained = (await r.get(f"/v1/queues/q/messages/{id}/explain")).json
        assert (explained["state"], explained["error"]) == ("retrying", "no luck")
        assert explained["until"] - explained["since"] == pytest.approx(5_000, abs=5)
        assert await r.subscriptions() == 0
        (found,) = await r.receive("q", wait_ms=10_000)
        assert (found["id"], found["attempt"]) == (id, 2)
        assert await r.settle("nack", "q", receipt) == {"lease_lost": [receipt]}


async def test_nack_without_a_delay_waits_for_the_queues_backoff() -> None:
    async with rig() as r:
        await r.queue(backoff_base_ms=4_000)
        id, receipt = await one(r)
        await r.settle("nack", "q", receipt)
        assert await r.state("q", id) == "retrying"
        assert await r.receive("q", wait_ms=1_000) == []
        assert len(await r.receive("q", wait_ms=5_000)) == 1


async def test_dead() -> None:
    async with rig() as r:
        id, receipt = await one(r)
        assert await r.settle("nack", "q", receipt, dead=True, error="never") == {}
        await blocked()
        assert await r.state("q", id) == "dead"
        (letter,) = await r.receive("q.dead")
        assert (letter["dead"]["cause"], letter["dead"]["id"]) == ("rejected", id)
        assert letter["dead"]["error"] == "never"


async def test_extend() -> None:
    async with rig() as r:
        id, receipt = await one(r, lease_ms=1_000)
        assert await r.settle("extend", "q", receipt, lease_ms=60_000) == {}
        await trio.sleep(59)
        assert await r.state("q", id) == "leased"
        await trio.sleep(2)
        assert await r.settle("extend", "q", receipt, lease_ms=1_000) == {"lease_lost": [receipt]}
        assert await r.subscriptions() == 0


async def test_an_expired_lease_is_lost() -> None:
    async with rig() as r:
        _, receipt = await one(r, lease_ms=1_000)
        await trio.sleep(1.5)
        assert await r.settle("ack", "q", receipt) == {"lease_lost": [receipt]}
        assert r.metrics.settled.counts["ack"] == 0


async def test_forged_and_foreign_receipts() -> None:
    async with rig() as r:
        await r.queue("other")
        _, receipt = await one(r)
        prefix, _, _ = parse(receipt)
        forged = [f"{prefix}.2", f"{prefix}.1000-2000", "nobody.1"]
        assert await r.settle("ack", "q", *forged) == {"lease_lost": forged}
        assert await r.settle("ack", "other", receipt) == {"lease_lost": [receipt]}
        await r.settle("ack", "q", receipt)
        assert await r.settle("ack", "other", receipt) == {"lease_lost": [receipt]}


async def test_receipts_of_a_session_are_its_own() -> None:
    async with rig() as r:
        await r.publish("q", "a")
        queue = await r.dispatcher.open(TENANT, "q")
        consumer = Consumer(runners_of(queue)[0])
        await consumer.got(1)
        receipt = f"{consumer.sub.prefix}.1"
        assert await r.settle("ack", "q", receipt) == {"lease_lost": [receipt]}
        assert len(consumer.sub.held) == 1
        assert (await consumer.ack()).lost == []


async def test_anybody_who_may_consume_may_settle(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        producer, one, other = r.caller("publish:q"), r.caller("consume:q"), r.caller("consume:q")
        await producer.publish("q", 1)
        (found,) = await one.receive("q")
        answer = await producer.post(ACK, {"receipts": [found["receipt"]]})
        assert answer.fault == (403, "forbidden")
        assert await other.settle("ack", "q", found["receipt"]) == {}


@pytest.mark.parametrize(
    ("op", "fields", "wrong"),
    [
        ("ack", {"receipts": []}, "receipts is empty"),
        ("ack", {"receipts": ["nonsense"]}, "not a receipt"),
        ("ack", {"receipts": ["p.5-1"]}, "not a receipt"),
        ("ack", {"receipts": ["p.1-20000"]}, "at most 10000"),
        ("ack", {"receipts": ["p.1-6000", "p.1-6000"]}, "more than 10000"),
        ("ack", {"receipts": ["p." + "1" * 200]}, "not a receipt"),
        ("ack", {}, "receipts"),
        ("nack", {"receipts": ["p.1"], "delay_ms": 10**12}, "delay_ms"),
        ("nack", {"receipts": ["p.1"], "delay_ms": 1, "dead": True}, "dead"),
        ("nack", {"receipts": ["p.1"], "error": "x" * 2_000}, "error"),
        ("extend", {"receipts": ["p.1"]}, "lease_ms"),
        ("extend", {"receipts": ["p.1"], "lease_ms": 10}, "lease_ms"),
    ],
)
async def test_bad_requests(op: str, fields: dict[str, Any], wrong: str) -> None:
    async with rig() as r:
        await r.queue()
        answer = await r.post(f"/v1/queues/q/{op}", fields)
        assert answer.fault == (400, "bad_request")
        assert wrong in answer.json["error"]["message"]


async def test_the_limit_of_receipts_is_the_servers() -> None:
    async with rig(limits=small(settle=3)) as r:
        await r.queue()
        assert (await r.post(ACK, {"receipts": ["p.1-4"]})).fault == (400, "bad_request")


async def test_an_unknown_queue_is_not_made_by_an_ack() -> None:
    async with rig() as r:
        assert (await r.post(ACK, {"receipts": ["p.1"]})).fault == (404, "not_found")


async def test_who_has_a_receipt_has_the_answer() -> None:
    """An ack that overtakes the end of the answer: the lease has begun all the same."""
    async with rig() as r:
        await r.queue(backoff_base_ms=0)
        (id,) = await r.publish("q", "a")
        exchange = r.exchange("POST", "/v1/queues/q/receive", {})
        exchange.writing = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run)
            await blocked()
            queue = await r.dispatcher.open(TENANT, "q")
            (subscription,) = runners_of(queue)[0]._shard.consumers.subscriptions.values()
            assert await r.settle("nack", "q", f"{subscription.prefix}.1") == {}
            exchange.writing.set()
        explained = (await r.get(f"/v1/queues/q/messages/{id}/explain")).json
        assert (explained["state"], explained["attempts"]) == ("ready", 1)
        assert await r.subscriptions() == 0


async def test_an_ack_is_answered_when_it_is_durable() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        _, receipt = await one(r)
        gate = Gate()
        store.script.add("settle", gate)
        first = r.begin("POST", ACK, {"receipts": [receipt]})
        await gate.entered.wait()
        again = r.begin("POST", ACK, {"receipts": [receipt]})
        await trio.sleep(10)
        assert not first.answered
        assert not again.answered
        gate.released.set()
        await first.done.wait()
        await again.done.wait()
        assert first.answer.json == {}
        assert again.answer.json == {"duplicate": [receipt]}


async def test_an_ack_that_is_not_durable_is_confirmed_to_nobody() -> None:
    """Its lease was the last but one, and the last runs out while it is being written."""
    store = ScriptedStore()
    async with rig(store) as r:
        await r.publish("q", 1, 2)
        first, _ = await r.receive("q", 2, lease_ms=1_000)
        gate = Gate()
        store.script.add("settle", gate)
        ack = r.begin("POST", ACK, {"receipts": [first["receipt"]]})
        await gate.entered.wait()
        await trio.sleep(2)
        again = r.begin("POST", ACK, {"receipts": [first["receipt"]]})
        await trio.sleep(1)
        assert not ack.answered
        assert not again.answered
        gate.released.set()
        await again.done.wait()
        assert again.answer.json == {"duplicate": [first["receipt"]]}
        assert ack.answer.json == {}
        assert await r.subscriptions() == 0


async def test_an_unknown_outcome() -> None:
    store = ScriptedStore()
    async with rig(store, dispatching=Settings(decide_ms=100)) as r:
        id, receipt = await one(r)
        store.script.always["settle"] = fail(StoreUnknown("?"))
        answer = await r.post(ACK, {"receipts": [receipt]})
        assert answer.fault == (503, "unavailable")
        del store.script.always["settle"]
        await blocked()
        assert await r.settle("ack", "q", receipt) == {"lease_lost": [receipt]}
        assert await r.state("q", id) == "ready"


async def test_a_shard_that_closes() -> None:
    async with rig() as r:
        _, receipt = await one(r)
        queue = await r.dispatcher.open(TENANT, "q")
        await runners_of(queue)[0].close()
        assert await r.settle("ack", "q", receipt) == {"lease_lost": [receipt]}


# What the lease cache remembers


async def reopened(r: Rig) -> None:
    queue = await r.dispatcher.open(TENANT, "q")
    await runners_of(queue)[0].close()
    await r.dispatcher.open(TENANT, "q")


async def test_leases_outlive_their_shard_in_the_cache() -> None:
    async with rig(leases=MemoryLeases()) as r:
        id, receipt = await one(r)
        await reopened(r)
        assert await r.state("q", id) == "leased"
        assert await r.settle("ack", "q", receipt) == {}
        assert await r.state("q", id) == "acked"
        assert await r.subscriptions() == 0
        assert await r.settle("ack", "q", receipt) == {"duplicate": [receipt]}


async def test_they_can_be_extended() -> None:
    async with rig(leases=MemoryLeases()) as r:
        id, receipt = await one(r, lease_ms=5_000)
        await reopened(r)
        assert await r.settle("extend", "q", receipt, lease_ms=60_000) == {}
        await trio.sleep(30)
        assert await r.state("q", id) == "leased"
        await trio.sleep(31)
        assert await r.subscriptions() == 0


async def test_they_expire_when_nobody_comes() -> None:
    async with rig(leases=MemoryLeases()) as r:
        id, receipt = await one(r, lease_ms=5_000)
        await reopened(r)
        await trio.sleep(5.1)
        assert await r.state("q", id) == "retrying"
        assert await r.subscriptions() == 0
        assert await r.settle("ack", "q", receipt) == {"lease_lost": [receipt]}


async def session_of(r: Rig, *bodies: str) -> tuple[Consumer, list[str], list[str]]:
    """Somebody like a session that got messages: ids, receipts."""
    ids = await r.publish("q", *bodies)
    queue = await r.dispatcher.open(TENANT, "q")
    consumer = Consumer(runners_of(queue)[0], lease_ms=5_000)
    await consumer.got(len(ids))
    await blocked()
    return consumer, ids, [f"{consumer.sub.prefix}.{n + 1}" for n in range(len(ids))]


async def test_one_of_a_session_that_a_crash_cut_off_can_be_settled() -> None:
    async with rig(leases=MemoryLeases()) as r:
        _, ids, receipts = await session_of(r, "a", "b", "c")
        assert await r.settle("ack", "q", *receipts) == {"lease_lost": receipts}
        await crashed(r)
        assert await r.settle("ack", "q", receipts[0]) == {}
        assert await r.settle("ack", "q", receipts[0]) == {"duplicate": [receipts[0]]}
        assert await r.settle("nack", "q", receipts[1], dead=True) == {}
        assert await r.settle("extend", "q", receipts[2], lease_ms=60_000) == {}
        await blocked()
        assert [await r.state("q", id) for id in ids] == ["acked", "dead", "leased"]
        await trio.sleep(25)
        assert await r.state("q", ids[2]) == "leased", "it was extended"
        assert await r.settle("ack", "q", *receipts) == {"duplicate": [f"{receipts[0]}-2"]}
        await trio.sleep(40)
        assert await r.subscriptions() == 0


async def test_a_repeat_is_a_duplicate_also_when_it_is_over() -> None:
    async with rig(leases=MemoryLeases()) as r:
        _, _, receipts = await session_of(r, "a")
        await crashed(r)
        assert await r.settle("ack", "q", *receipts) == {}
        await trio.sleep(10)
        assert await r.subscriptions() == 0
        assert await r.settle("ack", "q", *receipts) == {"duplicate": receipts}


async def test_a_session_that_comes_back_has_them_to_itself() -> None:
    async with rig(leases=MemoryLeases()) as r:
        consumer, ids, receipts = await session_of(r, "a", "b")
        await crashed(r)
        assert await r.settle("ack", "q", receipts[0]) == {}
        queue = await r.dispatcher.open(TENANT, "q")
        prefix = consumer.sub.prefix
        wish = Attach("s", 5, prefix=prefix, held=[(prefix, 1, 2)])
        lost = consumer.attach(wish, runners_of(queue)[0])
        assert (consumer.sub.prefix, lost) == (prefix, [(prefix, 1, 1)]), "somebody else settled it"
        assert await r.settle("ack", "q", receipts[1]) == {"lease_lost": [receipts[1]]}
        assert await r.state("q", ids[1]) == "leased"


async def crashed(r: Rig) -> None:
    """The shard is gone without a word, and another owner has it."""
    queue = await r.dispatcher.open(TENANT, "q")
    runners_of(queue)[0].stop(Stop.FENCED)
    await runners_of(queue)[0]._engine.stopped.wait()
    await r.dispatcher.open(TENANT, "q")


async def test_http_receipts_outlive_a_crash() -> None:
    async with rig(leases=MemoryLeases()) as r:
        id, receipt = await one(r)
        await crashed(r)
        assert await r.settle("ack", "q", receipt) == {}
        assert await r.state("q", id) == "acked"
        assert await r.settle("ack", "q", receipt) == {"duplicate": [receipt]}


async def test_a_delay_longer_than_the_retention_is_refused() -> None:
    async with rig() as r:
        await r.queue("q", retention_ms=60_000)
        body = {"messages": [{"body": 1, "delay_ms": 60_001}, {"body": 2}]}
        answer = await r.post("/v1/queues/q/messages", body)
        assert (answer.status, answer.json["ids"][0]) == (200, None)
        (failed,) = answer.json["failed"]
        assert (failed["index"], failed["code"]) == (0, "bad_request")
        assert "delay_ms is 60001" in failed["message"]
        assert "retention_ms (60000)" in failed["message"]
        alone = await r.post("/v1/queues/q/messages", {"messages": body["messages"][:1]})
        assert alone.fault == (400, "bad_request")
        assert r.limit("retention_ms") == 2
        (found,) = await r.receive("q")
        nack = {"receipts": [found["receipt"]], "delay_ms": 60_001}
        assert (await r.post("/v1/queues/q/nack", nack)).fault == (400, "bad_request")
        assert r.limit("retention_ms") == 3
        assert (await r.stats("q"))["leased"] == 1, "nothing changed"
