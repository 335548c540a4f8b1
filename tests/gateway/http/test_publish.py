"""Publishing over HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from pushlane_dispatcher.settings import Settings
from pushlane_storage.interface import StoreRefused, StoreUnknown
from tests.dispatcher.rig import Gate, ScriptedStore, fail
from tests.gateway.http.rig import TENANT, rig, small

Q = "/v1/queues/q/messages"


def messages(*bodies: Any, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"body": body, **fields} for body in bodies]}


async def test_messages_are_stored_and_the_queue_is_made() -> None:
    async with rig(template={"lease_ms": 7_000}) as r:
        answer = await r.post(Q, messages({"order": 17}, None))
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert list(answer.json) == ["ids"]
        assert len(set(answer.json["ids"])) == 2
        assert (await r.dispatcher.get(TENANT, "q")).config.lease_ms == 7_000
        assert r.metrics.published == 2
        assert sum(r.metrics.publish_seconds.counts) == 1
        found = await r.receive("q", 2)
        assert [message["body"] for message in found] == [{"order": 17}, None]


async def test_a_body_comes_back_byte_for_byte() -> None:
    async with rig() as r:
        text = b'{ "a" : 1.50, "a":[12345678901234567890123] }'
        await r.post(Q, b'{"messages": [{"body": ' + text + b"}]}")
        exchange = r.exchange("POST", "/v1/queues/q/receive", {"wait_ms": 0})
        await exchange.run()
        assert text in exchange.answer.body


async def test_every_option() -> None:
    async with rig() as r:
        data = base64.b64encode(b"\x00\xff").decode()
        sent = {"data": data, "priority": 9, "ttl_ms": 5_000, "headers": {"type": "raw"}}
        answer = await r.post(Q, {"messages": [sent, {"body": 1, "key": "k", "event_at": 5}]})
        assert answer.status == 200
        first, second = await r.receive("q", 2)
        assert (first["data"], first["headers"], "body" in first) == (data, sent["headers"], False)
        assert second["key"] == "k"


async def test_without_auto_create_an_unknown_queue_is_not_found() -> None:
    async with rig(auto_create=False) as r:
        assert (await r.post(Q, messages(1))).fault == (404, "not_found")


async def test_the_idempotency_key() -> None:
    async with rig() as r:
        first = await r.post(Q, messages(1, 2), idempotency_key="job-7")
        again = await r.post(Q, messages(1, 2), idempotency_key="job-7")
        assert again.json == {"ids": first.json["ids"], "duplicates": [0, 1]}
        assert r.metrics.published == 2
        other = await r.post(Q, messages(1, dedup="job-7:1"))
        assert other.json["duplicates"] == [0]


@pytest.mark.parametrize(
    ("key", "wrong"),
    [("", "printable"), ("a\tb", "printable"), ("ü", "printable"), ("x" * 255, "too long"),
     ("pushlane:x", "reserved")],
)  # fmt: skip
async def test_bad_idempotency_keys(key: str, wrong: str) -> None:
    async with rig() as r:
        answer = await r.post(Q, messages(1), idempotency_key=key)
        assert answer.fault == (400, "bad_request")
        assert wrong in answer.json["error"]["message"]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"messages": []}, "messages is 0"),
        ({"messages": [{}]}, "messages[0]: give exactly one"),
        ({"messages": [{"body": 1}, {"body": 1, "data": ""}]}, "messages[1]"),
        ({"messages": [{"body": 1, "key": "k", "priority": 1}]}, "key can't be combined"),
        ({"messages": [{"body": 1, "seq": 1}]}, "seq is for sessions"),
        ({"messages": [{"body": 1, "dedup": "pushlane:1"}]}, "reserved"),
        ({"messages": [{"body": 1, "ttl_ms": 0}]}, "ttl_ms"),
        ({"messages": [{"body": 1, "delay_ms": 10**12}]}, "delay_ms"),
        ({"messages": [{"body": 1, "priority": 10}]}, "priority"),
        ({"messages": [{"body": 1, "headers": {"a": "x" * 9_000}}]}, "headers has"),
        ({"messages": [{"data": "%%"}]}, "data"),
        ({"messages": 1}, "messages"),
        ({}, "messages"),
        ([], "object"),
    ],
)
async def test_a_mistake_in_form_refuses_all(body: Any, wrong: str) -> None:
    async with rig() as r:
        await r.queue()
        answer = await r.post(Q, body)
        assert answer.fault == (400, "bad_request")
        assert wrong in answer.json["error"]["message"]
        assert (await r.stats("q"))["stored"] == 0


async def test_dedup_and_idempotency_key_do_not_go_together() -> None:
    async with rig() as r:
        answer = await r.post(Q, messages(1, dedup="d"), idempotency_key="k")
        assert "can't be combined" in answer.json["error"]["message"]


async def test_a_batch_over_the_limit() -> None:
    async with rig(limits=small(batch=2)) as r:
        answer = await r.post(Q, messages(1, 2, 3))
        assert answer.fault == (400, "bad_request")
        assert r.limit("batch") == 1


async def test_what_is_too_large_stands_alone() -> None:
    async with rig() as r:
        await r.queue(max_message_bytes=10)
        answer = await r.post(Q, messages("x" * 20, "ok"))
        assert answer.status == 200
        assert (answer.json["ids"][0], len(answer.json["ids"])) == (None, 2)
        assert answer.json["failed"][0]["code"] == "too_large"
        assert r.metrics.errors.counts["too_large"] == 1
        assert r.metrics.published == 1


async def test_when_nothing_was_stored_it_is_an_error() -> None:
    async with rig(limits=small(message_bytes=1_024)) as r:
        await r.queue(max_message_bytes=1_024)
        answer = await r.post(Q, messages("x" * 2_000))
        assert answer.fault == (413, "too_large")
        assert answer.json["failed"][0]["index"] == 0
        assert r.limit("message_bytes") == 1
        assert r.metrics.published == 0


async def test_a_full_queue() -> None:
    async with rig() as r:
        await r.queue(max_messages=1)
        await r.publish("q", 1)
        answer = await r.post(Q, messages(2))
        assert answer.fault == (507, "queue_full")


async def test_an_unknown_outcome_goes_before_others() -> None:
    store = ScriptedStore()
    async with rig(store, dispatching=Settings(decide_ms=100)) as r:
        await r.queue(shards=1)
        await r.publish("q", 1)
        store.script.always["append"] = fail(StoreUnknown("?"))
        large = {"body": "x" * 1_100_000}
        answer = await r.post(Q, {"messages": [large, {"body": 1}]})
        assert answer.fault == (503, "unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert [fault["code"] for fault in answer.json["failed"]] == ["too_large", "unavailable"]


async def test_a_store_that_can_not_answer_for_the_queue() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("read_queue", fail(StoreRefused("no")))
        answer = await r.post(Q, messages(1))
        assert answer.fault == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"


async def test_a_client_that_goes_does_not_undo_what_it_sent() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await r.publish("q", 1)
        gate = Gate()
        store.script.add("append", gate)
        exchange = r.begin("POST", Q, messages(2))
        await gate.entered.wait()
        exchange.deaf = True
        exchange.leave()
        gate.released.set()
        await exchange.done.wait()
        assert (await r.stats("q"))["ready"] == 2


async def test_a_server_that_stops_takes_nothing_on() -> None:
    async with rig() as r:
        r.context.draining.set()
        answer = await r.post(Q, messages(1))
        assert answer.fault == (503, "unavailable")
        assert answer.json["error"]["retry_ms"] == 1_000
