"""Alive, ready, and in numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from pushlane.wire.limits import Limits
from pushlane_dispatcher.heart import Heart
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.stop import Stop
from pushlane_storage.interface import StoreUnknown
from tests.dispatcher.rig import ScriptedStore, fail, hang
from tests.gateway.http.rig import rig
from tests.running import runners_of


async def test_healthz() -> None:
    async with rig() as r:
        answer = await r.get("/healthz")
        assert (answer.status, answer.body) == (200, b"ok\n")
        assert answer.headers["content-type"].startswith("text/plain")
        assert (await r.get("/healthz?probe=1")).status == 200


async def test_readyz() -> None:
    async with rig() as r:
        answer = await r.get("/readyz")
        assert (answer.status, answer.body) == (200, b"ready\n")
        r.context.draining.set()
        answer = await r.get("/readyz")
        assert (answer.status, answer.body) == (503, b"draining\n")
        assert (await r.get("/healthz")).status == 200


async def test_not_ready_while_others_can_not_see_that_it_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as r:
        monkeypatch.setattr(Heart, "stands_still", True)
        answer = await r.get("/readyz")
        assert answer.status == 503
        assert answer.body.startswith(b"the store takes no heartbeats")
        monkeypatch.undo()
        assert (await r.get("/readyz")).status == 200


async def test_not_ready_for_a_while_after_others_took_over() -> None:
    async with rig() as r:
        await r.publish("q", 1)
        queue = await r.context.dispatcher.open("default", "q")
        runners_of(queue)[0].stop(Stop.FENCED)
        await runners_of(queue)[0]._engine.stopped.wait()
        await trio.lowlevel.checkpoint()
        answer = await r.get("/readyz")
        assert (answer.status, answer.body) == (503, b"fenced: other servers took over\n")
        await trio.sleep(Settings().fenced_ms / 1000)
        assert (await r.get("/readyz")).status == 200


async def test_not_ready_without_a_store(caplog: pytest.LogCaptureFixture) -> None:
    store = ScriptedStore()
    async with rig(store) as r:
        store.script.add("list_queues", fail(StoreUnknown("?")))
        answer = await r.get("/readyz")
        assert (answer.status, answer.body) == (503, b"the store does not answer\n")
        assert "not ready" in caplog.text
        assert (await r.get("/readyz")).status == 200


async def test_not_ready_with_a_store_that_hangs() -> None:
    store = ScriptedStore()
    async with rig(store, ready_ms=500) as r:
        store.script.add("list_queues", hang)
        assert (await r.get("/readyz")).status == 503
        assert r.limit("ready_ms") == 1


async def test_metrics() -> None:
    async with rig() as r:
        await r.publish("q", 1, 2)
        await r.get("/v1/queues/none")
        answer = await r.get("/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        text = answer.body.decode()
        for line in (
            "pushlane_messages_published_total 2.0",
            'pushlane_http_requests_total{operation="publish"} 1.0',
            'pushlane_http_answers_total{status="404"} 1.0',
            'pushlane_errors_total{code="not_found"} 1.0',
            "pushlane_http_polls 0.0",
        ):
            assert f"{line}\n" in text


async def test_limits_for_those_who_get_no_welcome(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml", limits=Limits(batch=7)) as r:
        assert (await r.get("/v1/limits")).fault == (401, "unauthorized")
        answer = await r.caller("consume:q").get("/v1/limits")
        assert answer.json["limits"] == Limits(batch=7).wire()
        assert answer.json["limits"]["batch"] == 7
        assert (answer.json["resume_ms"], answer.json["heartbeat_ms"]) == (30_000, 25_000)
