"""`GET /v1/queues?stats=true`: how each queue is doing, for little work."""

from __future__ import annotations

from typing import Any

from pushlane_storage.interface import StoreUnknown
from tests.dispatcher.rig import ScriptedStore, fail, hang, memory_store
from tests.gateway.http.rig import START, Rig, rig

LIST = "/v1/queues?stats=true"


async def listed(r: Rig) -> dict[str, Any]:
    return {queue["name"]: queue for queue in (await r.get(LIST)).json["queues"]}


async def test_open_queues_are_told_from_memory() -> None:
    async with rig() as r:
        await r.queue("empty")
        await r.queue("wide", shards=4)
        await r.publish("q", 1, 2, 3)
        await r.receive("q", 1)
        await r.publish("wide", 1)
        await r.post("/v1/queues/wide/pause")
        found = await listed(r)
        assert found["q"]["stats"] == {
            "depth": 3, "in_flight": 1, "oldest_at": START, "consumers": 1, "as_of": START,
        }  # fmt: skip
        assert (found["q"]["paused"], found["wide"]["paused"]) == (False, True)
        assert (found["wide"]["stats"]["depth"], found["wide"]["stats"]["consumers"]) == (1, 0)
        assert found["empty"]["stats"]["depth"] == 0


async def test_without_being_asked_it_looks_at_nothing() -> None:
    async with rig() as r:
        await r.publish("q", 1)
        (queue,) = (await r.get("/v1/queues")).json["queues"]
        assert "stats" not in queue


async def test_others_are_told_from_what_is_stored() -> None:
    store = memory_store()
    async with rig(store) as r:
        await r.publish("q", 1, 2)
    async with rig(store) as r:
        found = (await listed(r))["q"]["stats"]
        assert (found["depth"], found["in_flight"], found["consumers"]) == (2, 0, 0)
        assert found["oldest_at"] == START
        assert r.dispatcher.open_shards == 0, "who only looks opens nothing"


async def test_there_is_little_time_for_them() -> None:
    store = ScriptedStore()
    async with rig(store, list_stats_ms=100) as r:
        await r.queue("closed")
        await r.publish("open", 1)
        store.script.always["outline"] = hang
        found = await listed(r)
        assert found["closed"]["stats"] is None
        assert found["open"]["stats"]["depth"] == 1, "open ones come first"
        assert r.limit("list_stats_ms") == 1


async def test_one_that_can_not_be_read() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await r.queue("a")
        await r.queue("b")
        store.script.add("outline", fail(StoreUnknown("?")))
        found = await listed(r)
        assert (found["a"]["stats"], found["b"]["stats"]["depth"]) == (None, 0)
