"""Usage is exact over kill -9: what clients count is what `/v1/usage` says, on either store.

A request whose answer was lost with the server makes a range: it may have counted or not.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.crash.node import Node
from tests.services import service

KILLS = {"sqlite": 3, "cassandra": 2}
"""Fewer where the next server must first see that the last one is dead."""
ROUND_S = 1.2
QUEUE = "/v1/queues/orders"
SETTINGS = """
[dispatcher]
usage_flush_ms = 300
[shard]
bucket_messages = 40
[queues.template]
lease_ms = 2000
[cassandra]
beat_ms = 200
judge_ms = 1000
poll_ms = 50
"""


class Clients:
    """Producers and consumers that count for themselves."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.ending = threading.Event()
        self.lock = threading.Lock()
        self.published = 0
        self.unsure = 0
        """Messages in publishes whose answer was lost."""
        self.seen: set[str] = set()
        self.acked: set[str] = set()
        self.dead: set[str] = set()
        self.maybe: set[str] = set()
        """Settled without an answer."""

    def produce(self) -> None:
        body = {"messages": [{"body": number} for number in range(7)]}
        while not self.ending.is_set():
            answer = self._ask(f"{QUEUE}/messages", body)
            with self.lock:
                if answer is None:
                    self.unsure += 7
                else:
                    self.published += len(answer["ids"])

    def consume(self) -> None:
        while not self.ending.is_set():
            self.take(100)

    def take(self, wait_ms: int) -> int:
        """Receive and settle once; how many came."""
        answer = self._ask(f"{QUEUE}/receive", {"max": 64, "wait_ms": wait_ms})
        messages = [] if answer is None else answer["messages"]
        with self.lock:
            self.seen |= {message["id"] for message in messages}
        good = [message for message in messages if message["body"] != 3]
        bad = [message for message in messages if message["body"] == 3]
        self._settle("ack", {}, good, self.acked)
        self._settle("nack", {"dead": True}, bad, self.dead)
        return len(messages)

    def _settle(
        self, how: str, more: dict[str, Any], messages: list[dict[str, Any]], into: set[str]
    ) -> None:
        if not messages:
            return
        receipts = [message["receipt"] for message in messages]
        answer = self._ask(f"{QUEUE}/{how}", {"receipts": receipts, **more})
        with self.lock:
            if answer is None:
                self.maybe |= {message["id"] for message in messages}
                return
            lost = set(answer.get("lease_lost", []))
            into |= {one["id"] for one in messages if one["receipt"] not in lost}

    def _ask(self, path: str, body: dict[str, Any]) -> Any:
        """None: its answer was lost. One that found nobody there is made again."""
        while True:
            try:
                return self._node.ask("POST", path, body)
            except (OSError, HTTPException, json.JSONDecodeError) as error:
                refused = isinstance(getattr(error, "reason", None), ConnectionRefusedError)
                if not refused or self.ending.is_set():
                    return None
            time.sleep(0.05)


@pytest.mark.parametrize("kind", ["sqlite", "cassandra"])
def test_usage_is_exact_over_kills(tmp_path: Path, kind: str) -> None:
    config = tmp_path / "pushlane.toml"
    config.write_text(SETTINGS)
    node = Node(tmp_path, backing=["--store", store_url(kind, tmp_path), "--config", str(config)])
    try:
        _start(node)
        clients = Clients(node)
        load(node, clients, KILLS[kind])
        if kind == "cassandra":
            assert node.number("pushlane_store_fencings") == 1, "it took the slots of a dead owner"
        until(lambda: clients.take(1_000) == 0 and node.left("orders") == 0)
        found, dead = usage(node, "orders"), usage(node, "orders.dead")
        check(clients, found, dead)
        assert node.terminate() == 0
        _start(node)
        assert usage(node, "orders") == found
    finally:
        node.close()


def store_url(kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:{folder / 'data'}"
    return service("cassandra").cassandra_url(f"crash_usage_{os.getpid()}")


def load(node: Node, clients: Clients, kills: int) -> None:
    work = [clients.produce, clients.produce, clients.consume, clients.consume]
    threads = [threading.Thread(target=target) for target in work]
    for thread in threads:
        thread.start()
    try:
        for _ in range(kills):
            go_on(clients)
            node.kill()
            _start(node)
        go_on(clients)
    finally:
        clients.ending.set()
        for thread in threads:
            thread.join()


def go_on(clients: Clients) -> None:
    """A round, from when the server serves: on Cassandra that is later than when it is ready."""
    before = clients.published
    until(lambda: clients.published > before)
    time.sleep(ROUND_S)


def check(clients: Clients, found: dict[str, int], dead: dict[str, int]) -> None:
    published, acked = found["published"], found["acked"]
    rejected = found.get("dead.rejected", 0)
    assert clients.published > 200
    assert clients.unsure < clients.published
    assert clients.published <= published <= clients.published + clients.unsure
    assert published == len(clients.seen), "an independent count: every message came at least once"
    assert set(found) <= {"published", "acked", "dead.rejected", "dead.max_attempts"}
    assert published == acked + rejected + found.get("dead.max_attempts", 0)
    unsure = clients.maybe - clients.acked - clients.dead
    assert len(clients.acked) <= acked <= len(clients.acked | unsure)
    assert len(clients.dead) <= rejected <= len(clients.dead | unsure)
    assert dead["published"] == published - acked


EXACT = ("published", "acked", "dead.", "expired", "dropped", "purged", "redriven")


def usage(node: Node, queue: str) -> dict[str, int]:
    points = node.ask("GET", f"/v1/usage?queue={queue}&by=day")["usage"]
    found: dict[str, int] = {}
    for point in points:
        for name, value in point["counters"].items():
            if name.startswith(EXACT):
                found[name] = found.get(name, 0) + value
    return found


def until(done: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def _start(node: Node) -> None:
    node.spawn()
    node.wait_until_ready()
