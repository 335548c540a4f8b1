"""Single messages over HTTP: peek, by id, explain, cancel."""

from __future__ import annotations

import base64

import pytest
import trio

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_storage.interface import StoreUnknown
from tests.dispatcher.rig import Gate, ScriptedStore, answer, fail
from tests.gateway.http.rig import START, TENANT, blocked, rig
from tests.running import runners_of

Q = "/v1/queues/q"


# Peek


async def test_peek_shows_the_next_messages_and_takes_none() -> None:
    async with rig() as r:
        ids = await r.publish("q", *range(12))
        found = (await r.get(Q + "/peek")).json["messages"]
        assert [message["id"] for message in found] == ids[:10]
        assert found[0] == {"id": ids[0], "attempt": 0, "published_at": START, "body": 0}
        assert len((await r.get(Q + "/peek?limit=3")).json["messages"]) == 3
        assert (await r.stats("q"))["ready"] == 12
        assert await r.subscriptions() == 0


async def test_peek_shows_attempts_and_dead_letters() -> None:
    async with rig() as r:
        await r.publish("q", 1)
        (found,) = await r.receive("q")
        await r.settle("nack", "q", found["receipt"], delay_ms=0)
        (message,) = (await r.get(Q + "/peek")).json["messages"]
        assert message["attempt"] == 1
        (found,) = await r.receive("q")
        await r.settle("nack", "q", found["receipt"], dead=True)
        await blocked()
        (letter,) = (await r.get("/v1/queues/q.dead/peek")).json["messages"]
        assert letter["dead"]["cause"] == "rejected"


async def test_peek_over_several_shards_and_priorities() -> None:
    async with rig() as r:
        await r.queue(shards=4)
        for n in range(8):
            await r.publish("q", n, key=f"k{n}")
            await trio.sleep(1)
        await r.publish("q", "first", priority=9)
        found = (await r.get(Q + "/peek?limit=5")).json["messages"]
        assert [message["body"] for message in found] == ["first", 0, 1, 2, 3]


async def test_peek_goes_through_the_backlog_page_by_page() -> None:
    async with rig(bounds=Bounds(window_messages=2, segment_messages=1)) as r:
        await r.publish("q", *range(5))
        seen, after = [], ""
        for _ in range(3):
            page = (await r.get(f"{Q}/peek?limit=2&after={after}")).json
            seen += [message["body"] for message in page["messages"]]
            after = page.get("next", "")
        assert seen == [0, 1, 2, 3, 4]
        assert not after
        answer = await r.get(Q + "/peek?after=nonsense")
        assert answer.fault == (400, "bad_request")


async def test_peek_ends_when_it_is_large_enough() -> None:
    async with rig(answer_bytes=2_500) as r:
        await r.publish("q", *["x" * 1_000] * 4)
        page = (await r.get(Q + "/peek")).json
        assert len(page["messages"]) == 1
        assert r.limit("answer_bytes") == 1
        rest = (await r.get(f"{Q}/peek?after={page['next']}")).json
        assert len(rest["messages"]) == 1
        assert rest["messages"] != page["messages"]
        await r.post(Q + "/purge")
        await r.publish("q", "x" * 3_000)
        assert len((await r.get(Q + "/peek")).json["messages"]) == 1


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=", "x=1"])
async def test_bad_peeks(query: str) -> None:
    async with rig() as r:
        await r.queue()
        assert (await r.get(f"{Q}/peek?{query}")).fault == (400, "bad_request")


# By id


async def test_a_message_by_its_id() -> None:
    async with rig() as r:
        (id,) = await r.publish(
            "q", {"a": 1}, delay_ms=5_000, ttl_ms=90_000, headers={"h": "v"}, event_at=7
        )
        assert (await r.get(f"{Q}/messages/{id}")).json == {
            "id": id, "attempt": 0, "published_at": START, "body": {"a": 1},
            "headers": {"h": "v"}, "state": "delayed", "deliver_at": START + 5_000,
            "expires_at": START + 90_000, "event_at": 7,
        }  # fmt: skip


async def test_bytes_by_their_id() -> None:
    async with rig() as r:
        data = base64.b64encode(b"\x01\x02").decode()
        sent = await r.post(f"{Q}/messages", {"messages": [{"data": data}]})
        (id,) = sent.json["ids"]
        await r.receive("q")
        found = (await r.get(f"{Q}/messages/{id}")).json
        assert (found["data"], found["state"], found["attempt"]) == (data, "leased", 1)


async def test_a_message_behind_the_window_is_read() -> None:
    async with rig(bounds=Bounds(window_messages=1, segment_messages=1)) as r:
        ids = await r.publish("q", *range(5))
        found = (await r.get(f"{Q}/messages/{ids[4]}")).json
        assert (found["body"], found["state"]) == (4, "ready")


async def test_a_message_whose_body_can_not_be_read() -> None:
    store = ScriptedStore()
    async with rig(store, bounds=Bounds(window_messages=1, segment_messages=1)) as r:
        ids = await r.publish("q", *range(5))
        store.script.add("messages", fail(StoreUnknown("?")), answer({}))
        assert (await r.get(f"{Q}/messages/{ids[4]}")).fault == (503, "unavailable")
        assert (await r.get(f"{Q}/messages/{ids[4]}")).fault == (404, "not_found")


async def test_a_message_that_has_ended_is_not_found() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", 1)
        (found,) = await r.receive("q")
        await r.settle("ack", "q", found["receipt"])
        answered = await r.get(f"{Q}/messages/{id}")
        assert answered.fault == (404, "not_found")
        assert "has ended" in answered.json["error"]["message"]
        assert await r.state("q", id) == "acked"


async def test_ids_that_are_none() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", 1)
        (foreign,) = await r.publish("other", 1)
        for strange in ("x", "x-y-z-w", id + "f", id.upper(), foreign, "0" * 500):
            for path in (f"/messages/{strange}", f"/messages/{strange}/explain"):
                found = await r.get(Q + path)
                if path.endswith("explain") and strange == id + "f":
                    assert found.json["state"] == "unknown"
                else:
                    assert found.fault == (404, "not_found")
            assert (await r.delete(f"{Q}/messages/{strange}")).fault == (404, "not_found")


async def test_explain() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", 1)
        found = (await r.get(f"{Q}/messages/{id}/explain")).json
        assert found == {"state": "ready", "why": "no consumer", "since": START}


# Cancel


async def test_a_delayed_message_is_cancelled() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", 1, delay_ms=5_000)
        assert (await r.delete(f"{Q}/messages/{id}")).json == {}
        assert await r.state("q", id) == "purged"
        assert (await r.delete(f"{Q}/messages/{id}")).fault == (404, "not_found")
        assert await r.receive("q", wait_ms=10_000) == []


async def test_one_that_waits_for_a_year() -> None:
    async with rig() as r:
        await r.put(Q, {"retention_ms": 366 * 24 * 3_600_000})
        (id,) = await r.publish("q", 1, delay_ms=300 * 24 * 3_600_000)
        assert (await r.stats("q"))["delayed"] == 1
        found = (await r.get(f"{Q}/messages/{id}/explain")).json
        assert (found["state"], found["until"]) == ("delayed", START + 300 * 24 * 3_600_000)
        assert (await r.delete(f"{Q}/messages/{id}")).status == 200
        assert (await r.stats("q"))["stored"] == 0


async def test_what_is_not_delayed_is_a_conflict() -> None:
    async with rig() as r:
        (id,) = await r.publish("q", 1)
        assert (await r.delete(f"{Q}/messages/{id}")).fault == (409, "conflict")
        (found,) = await r.receive("q")
        assert (await r.delete(f"{Q}/messages/{id}")).fault == (409, "conflict")
        await r.settle("ack", "q", found["receipt"])


async def test_a_cancel_is_answered_when_it_is_durable() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        (id,) = await r.publish("q", 1, delay_ms=5_000)
        gate = Gate()
        store.script.add("settle", gate)
        exchange = r.begin("DELETE", f"{Q}/messages/{id}")
        await gate.entered.wait()
        await trio.sleep(1)
        assert not exchange.answered
        gate.released.set()
        await exchange.done.wait()
        assert exchange.answer.status == 200


async def test_a_cancel_of_a_shard_that_stops() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        (id,) = await r.publish("q", 1, delay_ms=5_000)
        gate = Gate()
        store.script.add("settle", gate)
        exchange = r.begin("DELETE", f"{Q}/messages/{id}")
        await gate.entered.wait()
        queue = await r.dispatcher.open(TENANT, "q")
        await runners_of(queue)[0].close()
        await exchange.done.wait()
        assert exchange.answer.fault == (503, "unavailable")
        gate.released.set()
