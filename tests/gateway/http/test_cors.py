"""Which pages may call, and what browsers are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.http.rig import rig

APP = "https://app.example.com"
LOCAL = "http://localhost:3000"


async def test_an_allowed_page(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml", origins=(APP,)) as r:
        caller = r.caller("admin:*")
        answer = await caller.get("/v1/queues", origin=APP)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == APP
        assert answer.headers["vary"] == "origin"
        assert "etag" in answer.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answer.headers
        refused = await r.get("/v1/queues", origin=APP)
        assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, APP)
        nowhere = await r.get("/v1/nowhere", origin=APP)
        assert (nowhere.status, nowhere.headers["access-control-allow-origin"]) == (404, APP)


@pytest.mark.parametrize(
    "origin",
    ["null", "https://evil.example", "https://app.example.com.evil.example", APP.upper(),
     "http://app.example.com", APP + ":443", APP + "/", "", LOCAL],
)  # fmt: skip
async def test_all_other_pages(tmp_path: Path, origin: str) -> None:
    async with rig(keys=tmp_path / "keys.toml", origins=(APP,)) as r:
        caller = r.caller("admin:*")
        for method in ("GET", "POST", "OPTIONS"):
            answer = await caller.ask(method, "/v1/queues", headers={"origin": origin})
            assert answer.fault == (403, "forbidden")
            assert answer.headers["access-control-allow-origin"] == "*", "it may read the error"
            assert "auth.allowed_origins" in answer.json["error"]["message"]
        assert r.metrics.errors.counts["forbidden"] == 3


async def test_a_page_that_is_refused_gets_to_read_why(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml", origins=(APP,)) as r:
        caller, evil = r.caller("admin:*"), {"origin": "https://evil.example"}
        ask = {**evil, "access-control-request-method": "POST"}
        preflight = await caller.ask("OPTIONS", "/v1/queues", headers=ask)
        assert (preflight.status, preflight.headers["access-control-max-age"]) == (204, "0")
        assert preflight.headers["access-control-allow-origin"] == "*"
        answer = await caller.ask("POST", "/v1/queues", {"name": "q"}, evil)
        assert answer.fault == (403, "forbidden")
        assert (await caller.get("/v1/queues/q")).status == 404, "nothing was done"


async def test_two_origins_are_none(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml", origins=(APP,)) as r:
        exchange = r.exchange("GET", "/docs", headers={"origin": APP})
        headers = exchange._scope["headers"]
        assert isinstance(headers, list)
        headers.append((b"origin", b"https://evil.example"))
        await exchange.run()
        assert exchange.answer.status == 403


async def test_programs_send_no_origin(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("admin:*")
        answer = await caller.get("/v1/queues", host="pushlane.internal")
        assert answer.status == 200
        assert "access-control-allow-origin" not in answer.headers


async def test_preflight(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml", origins=(APP,)) as r:
        asked = {"origin": APP, "access-control-request-method": "PUT"}
        answer = await r.ask("OPTIONS", "/v1/queues/q", headers=asked)
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == APP
        assert "PUT" in answer.headers["access-control-allow-methods"]
        for name in ("authorization", "content-type", "idempotency-key", "if-match"):
            assert name in answer.headers["access-control-allow-headers"]
        assert answer.headers["access-control-max-age"] == "600"
        assert answer.headers["vary"] == "origin"
        asked["origin"] = "https://evil.example"
        refused = await r.ask("OPTIONS", "/v1/queues/q", headers=asked)
        assert (refused.status, refused.headers["access-control-max-age"]) == (204, "0")
        asked.pop("access-control-request-method")
        assert (await r.put("/v1/queues/q", {}, **asked)).fault == (403, "forbidden")


async def test_without_keys_only_pages_of_this_machine() -> None:
    async with rig() as r:
        assert (await r.get("/v1/queues", origin=LOCAL)).status == 200
        assert (await r.get("/v1/queues", origin=APP)).fault == (403, "forbidden")


async def test_without_keys_a_foreign_host_is_refused() -> None:
    """A page whose name leads to this machine: its requests have no Origin."""
    async with rig() as r:
        for host in ("evil.example", "evil.example:8420", "10.0.0.1"):
            assert (await r.get("/v1/queues", host=host)).fault == (403, "forbidden")
            assert (await r.get("/healthz", host=host)).status == 200
            assert (await r.get("/readyz", host=host)).status == 200
        for host in ("localhost:8420", "[::1]:8420", "127.0.0.1"):
            assert (await r.get("/v1/queues", host=host)).status == 200
        assert (await r.get("/v1/queues", host="-")).status == 200
