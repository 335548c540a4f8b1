"""Two servers on one keyspace: one stands still, the other takes over, and the first one sees it.

Real processes on a real Cassandra. The first has nothing to write when it goes on: it learns by
comparing that its queue is another's, and forwards what its clients ask.
"""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pushlane import testing
from tests.gateway.client import WireClient
from tests.services import service

PATIENCE_S = 60.0
LIMITS = {
    "cassandra.beat_ms": 200,
    "cassandra.judge_ms": 4_000,
    "cassandra.poll_ms": 50,
    "dispatcher.compare_ms": 200,
    "dispatcher.fenced_ms": 5_000,
}


@pytest.fixture
def pair() -> Iterator[tuple[testing.server, testing.server]]:
    store = service("cassandra").cassandra_url(f"takeover_{os.getpid()}")
    options = [part for name, ms in LIMITS.items() for part in ("--set", f"{name}={ms}")]
    with ExitStack() as stack:
        servers = [
            testing.server(store=store, arguments=options, start_s=PATIENCE_S, stop_s=PATIENCE_S)
            for _ in range(2)
        ]
        for server in servers:
            stack.enter_context(server)
        yield servers[0], servers[1]


def numbers(server: testing.server) -> dict[str, float]:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=PATIENCE_S) as answer:
        lines = answer.read().decode()
    return {name: float(n) for name, n in re.findall(r"^pushlane_store_(\w+) (\S+)$", lines, re.M)}


def readiness(server: testing.server) -> int:
    try:
        with urllib.request.urlopen(f"{server.url}/readyz", timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


def test_a_server_that_stood_still(pair: tuple[testing.server, testing.server]) -> None:
    paused, standby = pair
    with WireClient(paused.url) as client:
        client.publish("orders", 1)
        client.subscribe("orders")
        client.receive()
        assert numbers(paused)["slots"] == 1
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            with WireClient(standby.url) as other:
                other.subscribe("orders")
                (message,) = other.receive()
                assert message["attempt"] == 1, "nobody knew that it was out"
                assert numbers(standby)["fencings"] == 1
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        until(lambda: numbers(paused)["fenced"] == 1)
        assert (numbers(paused)["slots_lost"], numbers(paused)["slots"]) == (1, 0)
        assert readiness(paused) == 503, "new clients had better go to the other one"
        # Its own client stays: what it asks for is forwarded to who has the queue now.
        client.publish("orders", 2)
    until(lambda: readiness(paused) == 200)
    with WireClient(paused.url) as client:
        client.publish("others", 3)
    assert "fenced as" in paused.log()
    assert "steps down: somebody else owns the slot" in paused.log()
    assert "is fenced: its heart has stood still" in standby.log()
