"""`GET /v1/cluster`: who may ask, and what a server without a cluster says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pushlane_dispatcher.port import ClusterStatus
from tests.gateway.http.rig import rig


async def test_without_a_cluster_it_says_so() -> None:
    async with rig() as r:
        answer = await r.get("/v1/cluster")
        assert answer.status == 200
        assert answer.json["shared"] is False
        assert answer.json["nodes"] == []


async def test_only_who_operates_the_server_may_ask(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.json") as r:
        assert (await r.caller("admin:*").get("/v1/cluster")).status == 403
        assert (await r.caller("operate:*").get("/v1/cluster")).status == 200


async def test_what_the_dispatcher_says_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def status() -> Any:
        return ClusterStatus(shared=True, cluster="c", orphans=3)

    async with rig() as r:
        monkeypatch.setattr(r.dispatcher, "cluster_status", status)
        answer = await r.get("/v1/cluster")
        assert answer.json["cluster"] == "c"
        assert answer.json["orphans"] == 3


async def test_without_a_cluster_nothing_is_drained() -> None:
    async with rig() as r:
        answer = await r.post("/v1/cluster/drain", {"node": "a"})
        assert answer.status == 404
        assert "there is no cluster" in answer.json["error"]["message"]


async def test_a_drain_names_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    async def set_draining(node: str, draining: bool) -> None:
        asked.append((node, draining))

    async with rig(keys=tmp_path / "keys.json") as r:
        monkeypatch.setattr(r.dispatcher, "set_draining", set_draining)
        operator = r.caller("operate:*")
        assert (await operator.post("/v1/cluster/drain", {"node": "a"})).status == 200
        assert (await operator.post("/v1/cluster/drain", {"node": "a", "undo": True})).status == 200
        assert (await operator.post("/v1/cluster/drain", {})).status == 400
        refused = await r.caller("admin:*").post("/v1/cluster/drain", {"node": "a"})
        assert refused.status == 403
    assert asked == [("a", True), ("a", False)]
