"""Declaring a queue: POST makes it, and never changes one that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from pushlane_storage.interface import QueueExists
from pushlane_storage.queue import QueueConfig, QueueRow
from tests.dispatcher.rig import ScriptedStore, fail
from tests.gateway.http.rig import Rig, rig

QUEUES = "/v1/queues"
Q = "/v1/queues/q"


async def declare(r: Rig, ensure: bool = False, **config: Any) -> Any:
    return await r.post(QUEUES + "?ensure=true" * ensure, {"name": "q", **config})


@pytest.mark.parametrize("ensure", [False, True])
async def test_one_that_is_not_there_is_made(ensure: bool) -> None:
    async with rig() as r:
        answer = await declare(r, ensure, max_attempts=3)
        assert (answer.status, answer.headers["etag"]) == (201, '"1"')
        assert (answer.json["name"], answer.json["max_attempts"]) == ("q", 3)
        assert (await r.get(Q)).json == answer.json


async def test_the_same_again_changes_nothing() -> None:
    async with rig() as r:
        made = await declare(r, max_attempts=3, lease_ms=60_000)
        for given in ({}, {"max_attempts": 3}, {"lease_ms": 60_000, "max_attempts": 3}):
            again = await r.post(QUEUES, {"name": "q", **given})
            assert (again.status, again.json, again.headers["etag"]) == (200, made.json, '"1"')


async def test_another_configuration_is_a_conflict_that_names_the_fields() -> None:
    async with rig() as r:
        made = await declare(r, max_attempts=3, dead_letter="q.faults")
        answer = await declare(r, max_attempts=5, dead_letter=None, lease_ms=30_000)
        assert answer.fault == (409, "conflict")
        message = answer.json["error"]["message"]
        assert "max_attempts is 3, not 5" in message
        assert 'dead_letter is "q.faults", not null' in message
        assert "lease_ms" not in message, "it is the same"
        assert (await r.get(Q)).json == made.json


async def test_ensure_leaves_one_alone_that_is_there() -> None:
    async with rig() as r:
        made = await declare(r, max_attempts=3)
        answer = await declare(r, ensure=True, max_attempts=5)
        assert (answer.status, answer.json) == (200, made.json)


async def test_a_put_that_meets_a_pause_leaves_it_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue's row is read, then somebody pauses it, then the PUT is written."""
    async with rig() as r:
        await r.queue()
        real, pauses = r.dispatcher.update, iter([True])

        async def late(
            tenant: str, name: str, config: QueueConfig, version: int | None
        ) -> QueueRow:
            if next(pauses, False):
                row = await r.dispatcher.get(tenant, name)
                await real(tenant, name, msgspec.structs.replace(row.config, paused=True))
            return await real(tenant, name, config, version)

        monkeypatch.setattr(r.dispatcher, "update", late)
        found = (await r.put(Q, {"max_attempts": 7})).json
        assert (found["paused"], found["max_attempts"], found["version"]) == (True, 7, 3)
        pauses = iter([True])
        assert (await r.put(Q, {"paused": False})).json["paused"] is False  # it said so
        pauses = iter([True])
        assert (await r.put(Q, {"version": 5})).fault == (409, "conflict")


async def test_no_declaration_resumes_a_paused_queue() -> None:
    async with rig() as r:
        await declare(r, max_attempts=3)
        await r.post(Q + "/pause")
        assert (await declare(r, max_attempts=3)).json["paused"] is True
        assert (await declare(r, ensure=True, paused=False)).json["paused"] is True
        differs = await declare(r, paused=False)
        assert differs.fault == (409, "conflict")
        assert "paused is true, not false" in differs.json["error"]["message"]
        assert (await r.put(Q, {"max_attempts": 7})).json["paused"] is True
        assert (await r.patch(Q, {"max_attempts": 8})).json["paused"] is True
        assert (await r.put(Q, {"paused": False})).json["paused"] is False
        assert (await r.put(Q, {})).json["paused"] is False


async def test_two_at_once() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        await declare(r, max_attempts=3)
        dispatcher = r.dispatcher
        row = await dispatcher.get("default", "q")
        await dispatcher.delete("default", "q")

        async def somebody_was_faster(_: Any) -> Any:
            await dispatcher.create("default", "q", row.config)
            raise QueueExists("q")

        store.script.add("create_queue", somebody_was_faster)
        assert (await declare(r, max_attempts=3)).status == 200


async def test_a_conflict_of_another_kind_comes_through() -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.always["create_queue"] = fail(QueueExists("q"))
        assert (await declare(r)).fault == (409, "conflict")


@pytest.mark.parametrize(
    "body",
    [{}, {"name": ""}, {"name": ".q"}, {"name": "q", "version": 1}, {"name": "q", "lease_ms": -1},
     {"name": "q", "lease_ms": None}],
)  # fmt: skip
async def test_bad_ones(body: dict[str, Any]) -> None:
    async with rig() as r:
        assert (await r.post(QUEUES, body)).fault == (400, "bad_request")


async def test_it_takes_the_right_to_manage(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("manage:q*", "publish:*", "consume:*")
        assert (await caller.post(QUEUES, {"name": "other"})).fault == (403, "forbidden")
        assert (await caller.post(QUEUES, {"name": "q"})).status == 201
        forbidden = {"name": "q2", "dead_letter": "other"}
        await r.caller("admin:*").post(QUEUES, {"name": "other", "dead_letter": ""})
        no_rights = r.caller("manage:q*")
        assert (await no_rights.post(QUEUES, forbidden)).fault == (403, "forbidden")
