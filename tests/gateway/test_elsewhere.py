"""Three servers on one Cassandra and one Redis: a session goes on at another one of them.

Real processes. What its client holds stays its own, also when its server is killed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

import pushlane
from pushlane import testing
from tests.gateway.client import WireClient
from tests.outages.door import Door
from tests.services import service

PATIENCE_S = 60.0
SETTINGS = {"cassandra.beat_ms": 500, "cassandra.judge_ms": 6_000}


@pytest.fixture(scope="module")
def servers() -> Iterator[list[testing.server]]:
    """Those that live. A test that kills one takes it out."""
    store = service("cassandra").cassandra_url(f"elsewhere_{os.getpid()}")
    options = ["--leases", service("redis").redis_url]
    options += [part for name, ms in SETTINGS.items() for part in ("--set", f"{name}={ms}")]
    with ExitStack() as stack:
        found = [
            testing.server(store=store, arguments=options, start_s=PATIENCE_S, stop_s=PATIENCE_S)
            for _ in range(3)
        ]
        for server in found:
            stack.enter_context(server)
        yield found


def acked(client: WireClient, receipts: list[str]) -> dict[str, Any]:
    """Once the server can say, as a client does it."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client.say(op="ack", id=9, sub=1, receipts=receipts)
        while True:
            answer = client.hear_any()
            if answer["op"] in ("done", "error"):
                break
        if answer["op"] == "done":
            return answer
        assert answer["code"] == "unavailable", answer
        assert time.monotonic() < deadline
        time.sleep(0.2)


@pytest.mark.parametrize("end", ["alive", "killed"])
def test_it_keeps_what_it_holds(servers: list[testing.server], end: str) -> None:
    first, second = servers[:2]
    with WireClient(first.url) as old, WireClient(servers[-1].url) as producer:
        old.subscribe("orders")
        for n in range(6):
            producer.publish("orders", n)
        messages = old.receive(6)
        receipts = [message["receipt"] for message in messages]
        time.sleep(1)  # its record is written
        if end == "killed":
            servers.remove(first)
            first.kill()
        held = {"1": receipts[:4]}
        resume = {"session": old.welcome["session"], "held": held}
        with WireClient(second.url, resume=resume) as client:
            assert client.welcome["resumed"] is True
            assert not client.welcome.get("lost")
            again = client.receive(2)
            assert sorted(one["body"] for one in again) == [4, 5]
            assert [one["attempt"] for one in again] == [1, 1]
            done = acked(client, receipts[:4] + [one["receipt"] for one in again])
            assert not done.get("lease_lost")
            assert acked(client, receipts[4:])["lease_lost"], "those never came to its client"


def test_a_client_of_the_sdk_does_not_notice(servers: list[testing.server]) -> None:
    first, second = servers[:2]
    servers.remove(first)
    door = Door(port_of(first))
    try:
        asyncio.run(hold_on(door, first, port_of(second)))
    finally:
        door.close()


def port_of(server: testing.server) -> int:
    return urlsplit(server.url).port or 0


async def hold_on(door: Door, first: testing.server, other: int) -> None:
    """Its server dies while it has messages; it settles them at another one."""
    async with pushlane.connect(door.url) as client, asyncio.timeout(PATIENCE_S):
        for n in range(6):
            await client.publish("orders", n)
        messages = await client.subscribe("orders", credit=10)
        held = [await anext(messages) for _ in range(6)]
        assert sorted(message.body for message in held) == list(range(6))
        await asyncio.sleep(1)  # its record is written
        first.kill()
        door.lead_to(other)
        for message in held:
            await message.ack()
        await client.publish("orders", 6)
        last = await anext(messages)
        assert (last.body, last.attempt) == (6, 1), "nothing came twice"
        await last.ack()
