"""Servers with one role, as real processes on one Cassandra, without Redis: a gateway in front of
two dispatchers. A queue moves from one to the other, with all that its consumers hold.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from websockets.exceptions import InvalidStatus

from pushlane import testing
from tests.gateway.client import WireClient
from tests.gateway.process import run
from tests.services import service

PATIENCE_S = 60.0
HOUR_MS = 3_600_000
"""Leases must not run out on a slow machine."""
ROLES = ("gateway", "dispatcher", "dispatcher")


@pytest.fixture(scope="module")
def servers() -> Iterator[list[testing.server]]:
    """A gateway, and two dispatchers."""
    store = service("cassandra").cassandra_url(f"roles_{os.getpid()}")
    found = [
        testing.server(
            store=store, arguments=["--roles", role], start_s=PATIENCE_S, stop_s=PATIENCE_S
        )
        for role in ROLES
    ]
    with ExitStack() as stack:
        for server in found:
            stack.enter_context(server)
        yield found


def get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def nodes(url: str) -> list[dict[str, Any]]:
    status, text = get(f"{url}/v1/cluster")
    assert status == 200, text
    found: list[dict[str, Any]] = json.loads(text)["nodes"]
    return found


def until_all_are_up(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while [node["state"] for node in nodes(url)] != ["up"] * len(ROLES):
        assert time.monotonic() < deadline, nodes(url)
        time.sleep(0.2)


def test_each_says_what_it_is(servers: list[testing.server]) -> None:
    until_all_are_up(servers[0].url)
    found = nodes(servers[1].url)
    assert sorted(tuple(node["roles"]) for node in found) == [
        ("dispatcher",), ("dispatcher",), ("gateway",),
    ]  # fmt: skip
    placed = {tuple(node["roles"]): node["placed"] for node in found}
    assert placed["gateway",] == 0
    urls = {node["url"] for node in found}
    assert urls == {"", servers[0].url}, "clients are sent to the gateway only"


def test_a_dispatcher_serves_no_clients(servers: list[testing.server]) -> None:
    url = servers[1].url
    for path in ("/healthz", "/readyz", "/metrics"):
        assert get(url + path)[0] == 200, path
    status, text = get(f"{url}/v1/queues")
    assert (status, json.loads(text)["error"]["code"]) == (404, "not_found")
    assert "serves no clients" in text
    publish = Request(f"{url}/v1/queues/q/messages", b"{}", {"content-type": "application/json"})
    with pytest.raises(HTTPError, match="404"):
        urlopen(publish, timeout=PATIENCE_S)
    with pytest.raises(InvalidStatus, match="404"):
        WireClient(url)


def test_leases_move_without_redis(servers: list[testing.server]) -> None:
    front = servers[0]
    until_all_are_up(front.url)
    with WireClient(front.url) as client, WireClient(front.url) as other:
        client.say(op="subscribe", id=2, credit=100, lease_ms=HOUR_MS, **{"from": "orders"})
        sub = client.hear("subscribed")["sub"]
        with WireClient(front.url) as producer:
            producer.publish("orders", *range(6))
        held = client.receive(6)
        receipts = [message["receipt"] for message in held]
        assert not acked(client, sub, receipts[:1]).get("lease_lost")
        owner = next(node for node in nodes(front.url) if node["slots"])
        victim = next(
            server for server in servers[1:]
            if next(node for node in nodes(server.url) if node["this"])["name"] == owner["name"]
        )  # fmt: skip
        assert victim.stop() == 0
        other.subscribe("orders")
        with WireClient(front.url) as producer:
            producer.publish("orders", 6)
        assert [message["body"] for message in client_or(other, client)] == [6]
        done = acked(client, sub, receipts)
        assert not done.get("lease_lost"), victim.log()
        assert done.get("duplicate"), "what it acked before is known, too"


def client_or(*clients: WireClient) -> list[dict[str, Any]]:
    """What comes next, to whoever it comes."""
    while True:
        for client in clients:
            try:
                frame: dict[str, Any] = json.loads(client.ws.recv(timeout=0.2))
            except TimeoutError:
                continue
            assert frame["op"] != "lease_lost", frame
            if frame["op"] == "deliver":
                messages: list[dict[str, Any]] = frame["messages"]
                return messages


def acked(client: WireClient, sub: int, receipts: list[str]) -> dict[str, Any]:
    """Once the server can say, as a client does it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client.say(op="ack", id=9, sub=sub, receipts=receipts)
        answer = client.hear_any()
        while answer["op"] not in ("done", "error"):
            answer = client.hear_any()
        if answer["op"] == "done":
            return answer
        assert answer["code"] == "unavailable", answer
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--roles", "gateway"], "is alone, so it needs all roles (gateway, dispatcher)"),
        (["--roles", "dispatcher", "--store", "memory:"], "is alone, so it needs all roles"),
        (["--roles", "gateway,owner"], "there is no role 'owner': take gateway or dispatcher"),
        (["--roles", ""], "roles"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, flags: list[str], fault: str) -> None:
    found = run(tmp_path, *flags)
    assert found.returncode == 2
    assert fault in found.stderr
