"""Retention over HTTP: what the job that archives asks of the owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pushlane_dispatcher.browsing.dropping import MOST
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.dropping import CLOCK_MARGIN_MS
from tests.gateway.http.rig import TENANT, Rig, rig

Q = "/v1/queues/q"
SMALL = Bounds(bucket_messages=1)
WINDOW_MS = 1_000


async def make(r: Rig, **config: Any) -> str:
    """The queue's id; what is drained waits for its archive."""
    fields = {"archive": "parquet", "dedup_window_ms": WINDOW_MS, **config}
    assert (await r.put(Q, fields)).status == 201
    return (await r.dispatcher.get(TENANT, "q")).id


async def drain(r: Rig, count: int) -> None:
    """As many drained buckets, and one that is open."""
    for n in range(count):
        await r.publish("q", n, dedup=str(n))
        [message] = (await r.post(Q + "/receive", {"max": 1})).json["messages"]
        await r.post(Q + "/ack", {"receipts": [message["receipt"]]})
    await r.publish("q", "open")
    await trio.sleep(1)


async def buckets(r: Rig, queue_id: str) -> list[Bucket]:
    return (await r.context.dispatcher._context.store.outline(ShardKey(queue_id, 0))).buckets


def name(bucket: Bucket) -> dict[str, int]:
    return {"shard": 0, **bucket.key._asdict()}


async def test_what_is_drained_is_dropped_when_its_window_is_over() -> None:
    async with rig(bounds=SMALL) as r:
        queue_id = await make(r)
        await drain(r, 3)
        first, second, third, last = await buckets(r, queue_id)
        body = {"queue_id": queue_id, "drop": [name(first), name(last)]}
        answer = (await r.post(Q + "/retention", body)).json
        assert answer["dropped"] == []
        assert [kept["reason"] for kept in answer["kept"]] == [
            "its dedup window is not over",
            "it is not drained",
        ]
        assert len(await buckets(r, queue_id)) == 4
        await trio.sleep((WINDOW_MS + CLOCK_MARGIN_MS) / 1000)
        for _ in range(2):  # what is not there any more counts as dropped
            answer = (await r.post(Q + "/retention", body)).json
            assert answer["dropped"] == [name(first)]
            assert answer["kept"] == [{**name(last), "reason": "it is not drained"}]
        left = [bucket.key for bucket in await buckets(r, queue_id)]
        assert left == [second.key, third.key, last.key]
        [message] = (await r.post(Q + "/receive", {"max": 10})).json["messages"]
        assert message["body"] == "open"


async def test_opening_a_queue_ends_what_is_past_its_retention() -> None:
    async with rig(bounds=SMALL) as r:
        queue_id = await make(r, retention_ms=60_000, dedup_window_ms=0)
        await r.publish("q", "old")
        await trio.sleep(61)
        assert (await r.post(Q + "/retention", {"queue_id": queue_id})).json == {
            "dropped": [],
            "kept": [],
        }
        await trio.sleep(1)
        [bucket] = await buckets(r, queue_id)
        assert bucket.drained
        stats = (await r.get(Q + "/stats")).json
        assert (stats["expired"], stats["stored"]) == (1, 0)


async def test_a_queue_that_was_made_anew_is_another_one() -> None:
    async with rig() as r:
        old = await make(r)
        await r.delete(Q + "?confirm=q")
        await make(r)
        for drop in ([], [KEY]):
            body = {"queue_id": old, "drop": drop}
            assert (await r.post(Q + "/retention", body)).fault == (409, "conflict")


KEY = {"shard": 0, "lane": 4, "epoch": 1, "start": 1}


@pytest.mark.parametrize(
    "drop", [[{**KEY, "shard": 1}], [{**KEY, "shard": -1}], [{}], [KEY] * (MOST + 1)]
)
async def test_buckets_that_can_not_be(drop: list[dict[str, int]]) -> None:
    async with rig() as r:
        body = {"queue_id": await make(r), "drop": drop}
        assert (await r.post(Q + "/retention", body)).fault == (400, "bad_request")


async def test_who_may(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        admin = r.caller("admin:*")
        await admin.put(Q, {})
        body = {"queue_id": (await r.dispatcher.get(TENANT, "q")).id}
        for right in ("publish", "consume"):
            refused = await r.caller(f"{right}:q").post(Q + "/retention", body)
            assert refused.fault == (403, "forbidden")
        assert (await r.caller("manage:q").post(Q + "/retention", body)).status == 200
        nowhere = await admin.post("/v1/queues/none/retention", body)
        assert nowhere.fault == (404, "not_found")
