"""Queues over HTTP: made, replaced, changed, listed, emptied, deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from pushlane.wire.errors import Conflict
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import Consumer, ScriptedStore, fail
from tests.gateway.http.rig import START, TENANT, Rig, blocked, rig
from tests.running import runners_of

Q = "/v1/queues/q"


async def test_put_makes_a_queue() -> None:
    async with rig() as r:
        answer = await r.put(Q, {"lease_ms": 60_000, "max_attempts": 3})
        assert answer.status == 201
        assert answer.headers["etag"] == '"1"'
        found = answer.json
        assert (found["name"], found["version"], found["deleting"]) == ("q", 1, False)
        assert (found["lease_ms"], found["max_attempts"], found["shards"]) == (60_000, 3, 1)
        assert (await r.get(Q)).json == found


async def test_put_replaces_everything() -> None:
    async with rig() as r:
        await r.put(Q, {"lease_ms": 60_000})
        answer = await r.put(Q, {"max_attempts": 3})
        assert (answer.status, answer.headers["etag"]) == (200, '"2"')
        assert (answer.json["lease_ms"], answer.json["max_attempts"]) == (30_000, 3)


async def test_what_get_shows_can_be_put() -> None:
    async with rig() as r:
        shown = (await r.put(Q, {"lease_ms": 60_000})).json
        del shown["deleting"]
        answer = await r.put(Q, shown)
        assert (answer.status, answer.json["version"]) == (200, 2)
        assert (await r.put(Q, shown)).fault == (409, "conflict")
        assert (await r.put("/v1/queues/other", shown)).fault == (400, "bad_request")


async def test_an_empty_body_is_all_defaults() -> None:
    async with rig() as r:
        answer = await r.put(Q, b"")
        assert answer.status == 201


async def test_patch_merges() -> None:
    async with rig() as r:
        await r.put(Q, {"lease_ms": 60_000, "max_bytes": 10_000, "dead_letter": "x"})
        answer = await r.patch(Q, {"max_attempts": 3, "max_bytes": None, "lease_ms": None})
        assert (answer.status, answer.headers["etag"]) == (200, '"2"')
        found = answer.json
        assert (found["lease_ms"], found["max_attempts"]) == (30_000, 3)
        assert (found["max_bytes"], found["dead_letter"]) == (None, "x")


async def test_changes_reach_what_is_open() -> None:
    async with rig() as r:
        await r.publish("q", 1)
        await r.patch(Q, {"lease_ms": 5_000})
        (found,) = await r.receive("q")
        assert found["lease_ms"] == 5_000


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_if_match(method: str) -> None:
    async with rig() as r:
        await r.put(Q)
        tag = {"if-match": '"1"'}
        assert (await r.ask(method, Q, {"max_attempts": 2}, tag)).status == 200
        assert (await r.ask(method, Q, {"max_attempts": 3}, tag)).fault == (409, "conflict")
        assert (await r.ask(method, Q, {"version": 1})).fault == (409, "conflict")
        assert (await r.ask(method, Q, {"version": 2})).status == 200
        assert (await r.ask(method, Q, {}, {"if-match": "*"})).status == 200
        assert (await r.ask(method, Q, {"version": 4}, {"if-match": '"4"'})).status == 200
        assert (await r.ask(method, Q, {"version": 4}, {"if-match": '"5"'})).status == 400
        for wrong in ("5", '"x"', '"0"', '"5", "6"', ""):
            answer = await r.ask(method, Q, {}, {"if-match": wrong})
            assert answer.fault == (400, "bad_request")


async def test_conditions_on_what_is_not_there() -> None:
    async with rig() as r:
        assert (await r.put(Q, if_match="*")).fault == (409, "conflict")
        assert (await r.put(Q, if_match='"1"')).fault == (409, "conflict")
        assert (await r.put(Q, {"version": 1})).fault == (409, "conflict")
        assert (await r.put(Q, if_none_match='"1"')).fault == (400, "bad_request")
        assert (await r.put(Q, if_none_match="*")).status == 201
        assert (await r.put(Q, if_none_match="*")).fault == (409, "conflict")
        assert (await r.patch("/v1/queues/none", {})).fault == (404, "not_found")


async def test_two_that_make_the_same_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r:
        dispatcher = r.context.dispatcher
        real = dispatcher.create

        async def late(tenant: str, name: str, config: QueueConfig) -> Any:
            await real(tenant, name, config)
            raise Conflict("somebody was faster")

        monkeypatch.setattr(dispatcher, "create", late)
        assert (await r.put(Q, {"max_attempts": 2})).json["version"] == 2
        await r.delete(f"{Q}?confirm=q")
        assert (await r.put(Q, if_none_match="*")).fault == (409, "conflict")


async def test_changes_at_the_same_time_are_merged() -> None:
    async with rig() as r:
        await r.put(Q)
        async with trio.open_nursery() as nursery:
            for change in ({"max_attempts": 2}, {"lease_ms": 5_000}, {"max_messages": 7}):
                nursery.start_soon(r.patch, Q, change)
        found = (await r.get(Q)).json
        assert (found["max_attempts"], found["lease_ms"], found["max_messages"]) == (2, 5_000, 7)
        assert found["version"] == 4


async def test_a_merge_gives_up_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as r:
        await r.put(Q)
        tries = []

        async def update(*args: Any) -> Any:
            tries.append(args)
            raise Conflict("always")

        monkeypatch.setattr(r.dispatcher, "update", update)
        assert (await r.patch(Q, {"max_attempts": 2})).fault == (409, "conflict")
        assert len(tries) == 5


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"lease_ms": 1}, "lease_ms"),
        ({"lease_ms": "1"}, "lease_ms"),
        ({"leese_ms": 1}, "leese_ms"),
        ({"overflow": "explode"}, "overflow"),
        ({"encrypted": True}, "encrypted"),
        ({"dead_letter": "q"}, "dead_letter"),
        ({"dead_letter": "not a name"}, "queue name"),
        ({"name": "p"}, "renamed"),
        ({"version": 0}, "version"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_bad_configurations(method: str, body: dict[str, Any], wrong: str) -> None:
    async with rig() as r:
        await r.put(Q)
        answer = await r.ask(method, Q, body)
        assert answer.fault == (400, "bad_request")
        assert wrong in answer.json["error"]["message"]
        assert (await r.get(Q)).json["version"] == 1


async def test_shards_can_not_be_changed() -> None:
    async with rig() as r:
        await r.put(Q, {"shards": 2})
        assert (await r.patch(Q, {"shards": 3})).fault == (400, "bad_request")


@pytest.mark.parametrize("name", [".hidden", "a b", "topic:x", "x" * 121, "ü"])
async def test_illegal_names(name: str) -> None:
    async with rig() as r:
        assert (await r.put(f"/v1/queues/{name}")).fault == (400, "bad_request")
        assert (await r.get(f"/v1/queues/{name}/stats")).fault == (400, "bad_request")


async def test_what_is_not_there() -> None:
    async with rig() as r:
        for path in ("", "/stats", "/consumers", "/peek", "/messages/x", "/messages/x/explain"):
            assert (await r.get(Q + path)).fault == (404, "not_found")
        for path in ("/purge", "/pause", "/resume", "/redrive"):
            assert (await r.post(Q + path)).fault == (404, "not_found")
        assert (await r.delete(Q + "?confirm=q")).fault == (404, "not_found")


# Deleting


async def test_delete_asks_for_the_name() -> None:
    async with rig() as r:
        await r.publish("q", 1)
        for wrong in ("", "?confirm=", "?confirm=Q", "?confirm=q&confirm=q", "?confirm=q&x=1"):
            assert (await r.delete(Q + wrong)).fault == (400, "bad_request")
        assert (await r.delete(Q + "?confirm=q")).json == {}
        assert (await r.get(Q)).fault == (404, "not_found")


# Listing


async def test_a_list_in_pages() -> None:
    async with rig() as r:
        names = [f"q{n}" for n in range(5)]
        for name in names:
            await r.put(f"/v1/queues/{name}")
        everything = (await r.get("/v1/queues")).json
        assert [queue["name"] for queue in everything["queues"]] == names
        assert "next" not in everything
        assert everything["queues"][0]["version"] == 1
        seen: list[str] = []
        after = ""
        for _ in range(3):
            page = (await r.get(f"/v1/queues?limit=2&after={after}")).json
            seen += [queue["name"] for queue in page["queues"]]
            after = page.get("next", "")
        assert (seen, after) == (names, "")


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=1.5", "limt=1", "limit=1&limit=2"]
)
async def test_bad_pages(query: str) -> None:
    async with rig() as r:
        assert (await r.get(f"/v1/queues?{query}")).fault == (400, "bad_request")


async def test_a_list_shows_what_the_caller_may_see(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        admin = r.caller("admin:*")
        for name in ("a1", "a2", "b1", "b2"):
            await admin.put(f"/v1/queues/{name}")
        caller = r.caller("publish:a2", "consume:b*", "admin:topic:a1")
        page = (await caller.get("/v1/queues?limit=2")).json
        assert [queue["name"] for queue in page["queues"]] == ["a2", "b1"]
        assert page["next"] == "b1"
        page = (await caller.get("/v1/queues?limit=2&after=b1")).json
        assert ([queue["name"] for queue in page["queues"]], "next" in page) == (["b2"], False)


async def test_no_page_names_a_queue_that_the_caller_may_not_see(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        admin = r.caller("admin:*")
        for name in ("aa", "payroll", "q", "secret", "zz"):
            await admin.put(f"/v1/queues/{name}")
        answer = await r.caller("publish:q").get("/v1/queues?limit=1")
        assert (answer.json["queues"][0]["name"], answer.json["next"]) == ("q", "q")
        last = await r.caller("publish:q").get("/v1/queues?limit=1&after=q")
        assert last.json == {"queues": []}
        none = await r.caller("publish:nothing").get("/v1/queues?limit=1")
        assert none.json == {"queues": []}


async def test_tenants_do_not_see_each_other(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        one, other = r.caller("admin:*"), r.caller("admin:*", tenant="other")
        await one.publish("q", "mine")
        assert (await other.get("/v1/queues")).json == {"queues": []}
        assert (await other.get(Q)).fault == (404, "not_found")
        assert await other.receive("q") == []


# Looking


async def test_stats() -> None:
    async with rig() as r:
        await r.publish("q", 1, 2)
        await r.publish("q", 3, delay_ms=60_000)
        await r.receive("q")
        stats = await r.stats("q")
        assert (stats["ready"], stats["leased"], stats["delayed"], stats["stored"]) == (1, 1, 1, 3)


async def test_consumers() -> None:
    async with rig() as r:
        await r.queue(shards=2)
        queue = await r.dispatcher.open(TENANT, "q")
        Consumer(runners_of(queue)[1], 7, session="worker")
        exchange = r.begin("POST", Q + "/receive", {"max": 4})
        await blocked()
        found = (await r.get(Q + "/consumers")).json["consumers"]
        assert [(one["session"], one["shard"]) for one in found] == [
            ("http:anonymous", 0),
            ("worker", 1),
            ("http:anonymous", 1),
        ]
        assert found[1] == {
            "session": "worker", "client": "", "shard": 1, "state": "active", "credit": 7,
            "reserved": 0, "leased": 0, "lease_ms": 30_000, "ack": "explicit",
        }  # fmt: skip
        exchange.leave()
        await exchange.done.wait()


# Doing


async def test_purge() -> None:
    async with rig() as r:
        (id, *_) = await r.publish("q", 1, 2, 3)
        assert (await r.post(Q + "/purge")).json == {"purged": 3}
        assert (await r.post(Q + "/purge")).json == {"purged": 0}
        assert await r.state("q", id) == "purged"
        assert (await r.stats("q"))["stored"] == 0


async def test_pause_and_resume() -> None:
    async with rig() as r:
        await r.publish("q", 1)
        paused = await r.post(Q + "/pause")
        assert (paused.json["paused"], paused.headers["etag"]) == (True, '"2"')
        assert await r.receive("q", wait_ms=1_000) == []
        assert (await r.post(Q + "/resume")).json["paused"] is False
        assert len(await r.receive("q")) == 1


async def dead_letters(r: Rig, count: int) -> None:
    await r.publish("q", *range(count))
    for message in await r.receive("q", count):
        await r.settle("nack", "q", message["receipt"], dead=True)
    await blocked()


async def test_redrive() -> None:
    async with rig() as r:
        await dead_letters(r, 3)
        dead = "/v1/queues/q.dead/redrive"
        assert (await r.post(dead, {"dry_run": True})).json == {"redriven": 3}
        assert (await r.post(dead, {"dry_run": True, "max": 2})).json["redriven"] == 2
        first = (await r.post(dead, {"max": 1})).json
        assert first["redriven"] == 1
        await r.queue("other")
        second = {"max": 1, "to": "other", "after": first["next"]}
        assert (await r.post(dead, second)).json["redriven"] == 1
        await blocked()
        ready = [(await r.stats(name))["ready"] for name in ("q", "q.dead", "other")]
        assert ready == [1, 1, 1]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"max": 0}, (400, "bad_request")),
        ({"to": "q.dead"}, (400, "bad_request")),
        ({"to": "bad name"}, (400, "bad_request")),
        ({"to": "nowhere"}, (404, "not_found")),
        ({"to": "nowhere", "dry_run": True}, (404, "not_found")),
        ({"queue": "bad name"}, (400, "bad_request")),
        ({"rate": 0}, (400, "bad_request")),
        ({"from_at": -1}, (400, "bad_request")),
        ({"after": "nonsense"}, (400, "bad_request")),
    ],
)
async def test_redrives_that_can_not_be(body: dict[str, Any], fault: tuple[int, str]) -> None:
    async with rig() as r:
        await r.queue("q.dead")
        assert (await r.post("/v1/queues/q.dead/redrive", body)).fault == fault


async def test_a_redrive_of_some() -> None:
    async with rig() as r:
        await dead_letters(r, 3)
        dead = "/v1/queues/q.dead/redrive"
        for body, count in (
            ({"cause": "expired"}, 0),
            ({"cause": "rejected", "queue": "q"}, 3),
            ({"queue": "other"}, 0),
            ({"key": "k"}, 0),
            ({"until_at": START}, 0),
            ({"from_at": START, "until_at": START + 60_000}, 3),
        ):
            answer = await r.post(dead, {**body, "dry_run": True})
            assert answer.json == {"redriven": count}, body


async def test_a_redrive_says_where_to_go_on_when_its_time_is_over() -> None:
    async with rig(redrive_ms=1_000) as r:
        await dead_letters(r, 30)
        dead, counts = "/v1/queues/q.dead/redrive", []
        answer = (await r.post(dead, {"rate": 10})).json
        while "next" in answer:
            counts.append(answer["redriven"])
            answer = (await r.post(dead, {"rate": 10, "after": answer["next"]})).json
        assert len(counts) in (2, 3)
        assert sum(counts) + answer["redriven"] == 30
        await blocked()
        assert (await r.stats("q"))["ready"] == 30


async def test_messages_go_only_where_the_caller_may_send_them(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        admin = r.caller("admin:*")
        await admin.put("/v1/queues/payroll")
        caller = r.caller("manage:q*")
        assert (await caller.put(Q, {"dead_letter": "payroll"})).fault == (403, "forbidden")
        assert (await caller.put(Q, {"dead_letter": "q.faults"})).status == 201
        assert (await caller.patch(Q, {"dead_letter": "payroll"})).fault == (403, "forbidden")
        await admin.patch(Q, {"dead_letter": "payroll"})
        assert (await caller.patch(Q, {"lease_ms": 9_000})).status == 200
        for rights in (["manage:q*"], ["manage:*"], ["manage:*", "consume:*", "publish:q*"]):
            answer = await r.caller(*rights).post(Q + "/redrive", {"to": "payroll"})
            assert answer.fault == (403, "forbidden")


async def test_a_queue_for_dead_letters_takes_the_right_to_manage_it(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        publisher = r.caller("manage:q", "publish:*", "consume:*")
        assert (await publisher.put(Q, {"dead_letter": "faults"})).fault == (403, "forbidden")
        manager = r.caller("manage:q", "manage:faults")
        assert (await manager.put(Q, {"dead_letter": "faults"})).status == 201
        await r.caller("admin:*").put("/v1/queues/orders")
        clash = await r.caller("manage:*").put(Q, {"dead_letter": "orders"})
        assert clash.fault == (409, "conflict")


async def test_a_redrive_goes_only_where_the_caller_may_publish(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        admin, dead = r.caller("admin:*"), "/v1/queues/all.dead/redrive"
        for name in ("a", "b", "a"):
            await admin.put(f"/v1/queues/{name}", {"dead_letter": "all.dead"})
            await admin.publish(name, 1)
            (message,) = await admin.receive(name)
            await admin.settle("nack", name, message["receipt"], dead=True)
            await blocked()
        caller = r.caller("manage:all.dead", "publish:a*")
        first = (await caller.post(dead, {})).json
        assert first["redriven"] == 1
        again = await caller.post(dead, {"after": first["next"]})
        assert again.fault == (403, "forbidden")
        assert "b" in again.json["error"]["message"]
        assert (await caller.post(dead, {"dry_run": True})).fault == (403, "forbidden")
        assert (await caller.post(dead, {"queue": "a"})).json == {"redriven": 1}
        assert (await r.caller("manage:all.dead").post(dead, {})).fault == (403, "forbidden")
        assert (await r.caller("admin:*").post(dead, {})).json == {"redriven": 1}


async def test_a_store_that_fails() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await r.put(Q)
        store.script.add("list_queues", fail(StoreUnknown("?")))
        assert (await r.get("/v1/queues")).fault == (503, "unavailable")
        store.script.add("update_queue", fail(StoreUnknown("?")))
        assert (await r.put(Q)).fault == (503, "unavailable")
