"""Who may do what over HTTP, and what a bad token gets."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from tests.gateway.http.client import Client
from tests.gateway.http.rig import Rig, rig

QUEUE = "/v1/queues/q"

NEEDS = [
    ("POST", "/messages", {"messages": [{"body": 1}]}, {"publish"}),
    ("POST", "/receive", {"wait_ms": 0}, {"consume"}),
    ("POST", "/ack", {"receipts": ["p.1"]}, {"consume"}),
    ("POST", "/nack", {"receipts": ["p.1"]}, {"consume"}),
    ("POST", "/extend", {"receipts": ["p.1"], "lease_ms": 5_000}, {"consume"}),
    ("GET", "/peek", None, {"consume", "manage"}),
    ("GET", "/messages/ID", None, {"consume", "manage"}),
    ("GET", "/messages/ID/explain", None, {"publish", "consume", "manage"}),
    ("GET", "", None, {"publish", "consume", "manage"}),
    ("GET", "/stats", None, {"publish", "consume", "manage"}),
    ("GET", "/consumers", None, {"manage"}),
    ("PUT", "", {}, {"manage"}),
    ("PATCH", "", {}, {"manage"}),
    ("POST", "/pause", {}, {"manage"}),
    ("POST", "/resume", {}, {"manage"}),
    ("POST", "/redrive", {}, {"manage"}),
    ("POST", "/purge", {}, {"manage"}),
    ("DELETE", "/messages/ID", None, {"manage"}),
    ("DELETE", "?confirm=q", None, {"manage"}),
]


@pytest.mark.parametrize(("method", "path", "body", "rights"), NEEDS)
async def test_every_operation_asks_for_its_right(
    tmp_path: Path, method: str, path: str, body: object, rights: set[str]
) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        admin = r.caller("admin:*")
        (id,) = await admin.publish("q", 1, delay_ms=1_000)
        target = QUEUE + path.replace("ID", id)
        for right in ("publish", "consume", "manage"):
            if right in rights:
                continue
            refused = await r.caller(f"{right}:q").ask(method, target, body)
            assert refused.fault == (403, "forbidden")
        elsewhere = await r.caller("admin:other").ask(method, target, body)
        assert elsewhere.fault == (403, "forbidden")
        nobody = await r.ask(method, target, body)
        assert nobody.fault == (401, "unauthorized")
        assert nobody.headers["www-authenticate"] == "Bearer"
        allowed = await r.caller(f"{min(rights)}:q").ask(method, target, body)
        assert allowed.status in (200, 201)


async def test_what_needs_a_token_and_nothing_more(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("publish:x")
        for path in ("/v1/limits", "/v1/queues"):
            assert (await r.get(path)).status == 401
            assert (await caller.get(path)).status == 200
        for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
            assert (await r.get(path)).status == 200


async def test_metrics_are_the_operators(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        assert (await r.get("/metrics")).status == 401
        refused = await r.caller("admin:*").get("/metrics")
        assert refused.fault == (403, "forbidden")
        assert "operate:*" in refused.json["error"]["message"]
        scraper = r.caller("operate:*")
        assert (await scraper.get("/metrics")).status == 200
        assert (await scraper.put(QUEUE)).fault == (403, "forbidden")
        assert (await scraper.get("/v1/queues")).json == {"queues": []}


async def test_without_keys_everybody_operates_the_server() -> None:
    async with rig() as r:
        assert (await r.get("/metrics")).status == 200


async def bad(r: Rig, authorization: str) -> tuple[int, str]:
    return (await r.get("/v1/queues", authorization=authorization)).fault


async def test_bad_tokens(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        r.caller("admin:*")
        forged = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0."
        for header in ("Bearer", "Bearer ", "Basic dXNlcg==", "Bearer x", f"Bearer {forged}",
                       "Bearer plk_nothing", "Bearer " + "x" * 9_000):  # fmt: skip
            assert await bad(r, header) == (401, "unauthorized")


async def test_several_authorization_headers(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("admin:*")
        exchange = caller.exchange("GET", "/v1/queues")
        headers = exchange._scope["headers"]
        assert isinstance(headers, list)
        headers.append((b"authorization", b"Bearer x"))
        await exchange.run()
        assert exchange.answer.fault == (401, "unauthorized")


async def test_a_token_in_the_url_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("admin:*")
        with caplog.at_level(logging.DEBUG):
            for name in ("token", "access_token", "Authorization"):
                answer = await caller.get(f"/v1/queues?{name}=s3cret")
                assert answer.fault == (400, "bad_request")
                assert "never into a URL" in answer.json["error"]["message"]
                assert b"s3cret" not in answer.body
        assert "s3cret" not in caplog.text


async def test_a_token_where_none_is_asked_for_is_checked() -> None:
    async with rig() as r:
        assert await bad(r, "Bearer nonsense") == (401, "unauthorized")


async def test_a_failed_login_is_logged_without_what_was_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("admin:*")
        key = caller._headers["authorization"].removeprefix("Bearer ")
        wrong = key[:-4] + ("aaaa" if key[-4:] != "aaaa" else "bbbb")
        with caplog.at_level(logging.DEBUG):
            await r.get("/v1/queues", authorization=f"Bearer {wrong}")
            await r.get("/v1/queues", authorization="Bearer eyJhbGciOiJ")
            await r.get("/v1/queues")
        lines = [one.getMessage() for one in caplog.records if "login" in one.getMessage()]
        assert len(lines) == 2
        assert wrong.split("_")[1] in lines[0], "the public id says which key it is"
        assert wrong.split("_")[2] not in caplog.text
        assert "eyJhbGciOiJ" not in caplog.text


# Tokens


async def test_a_token_for_a_browser(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("admin:*")
        answer = await caller.post("/v1/tokens", {"rules": ["publish:q"], "ttl_ms": 60_000})
        assert answer.status == 200
        assert answer.headers["cache-control"] == "no-store"
        token = answer.json["token"]
        browser = Client(r.app, r._nursery, {"authorization": f"Bearer {token}"})
        await browser.publish("q", 1)
        assert (await browser.get(QUEUE + "/peek")).fault == (403, "forbidden")
        wider = await browser.post("/v1/tokens", {"rules": ["admin:*"]})
        assert wider.fault == (403, "forbidden")
        await trio.sleep(61)
        late = await browser.post(QUEUE + "/messages", {"messages": [{"body": 1}]})
        assert late.fault == (401, "unauthorized")


async def test_a_token_for_somebody(tmp_path: Path) -> None:
    async with rig(keys=tmp_path / "keys.toml") as r:
        caller = r.caller("admin:*")
        body = {"rules": ["publish:q"], "subject": "user-7"}
        token = (await caller.post("/v1/tokens", body)).json["token"]
        assert r.context.authenticator.authenticate(token).subject == "user-7"
        for wrong in ("", "x" * 121, "a\x07b"):
            assert (await caller.post("/v1/tokens", {**body, "subject": wrong})).status == 400


async def test_tokens_where_nobody_needs_one() -> None:
    async with rig() as r:
        answer = await r.post("/v1/tokens", {"rules": ["publish:q"]})
        assert answer.json["expires_at"] > 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rules": []},
        {"rules": ["fly:q"]},
        {"rules": ["publish:**"]},
        {"rules": ["publish:q"] * 65 + [f"publish:q{n}" for n in range(64)]},
        {"rules": ["publish:q"], "ttl_ms": 1},
        {"rules": ["publish:q"], "ttl_ms": 10**12},
        {"rules": "publish:q"},
    ],
)
async def test_bad_token_requests(body: object) -> None:
    async with rig() as r:
        assert (await r.post("/v1/tokens", body)).fault == (400, "bad_request")
