"""A consumer's process is stopped past its lease, and goes on as if nothing was."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pushlane
from tests.crash.child import Child
from tests.crash.load import LEASE_MS
from tests.crash.node import REPOSITORY, Node

STOP_S = 1.5 * LEASE_MS / 1000
SECONDS = 30.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    node.spawn()
    try:
        node.wait_until_ready()
        yield node
    finally:
        node.close()


@pytest.fixture(params=["sdk", "http"])
def holder(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Iterator[Child]:
    queue = f"q-{request.node.name}".translate(str.maketrans("[]", "--"))
    asyncio.run(publish(node.url, queue))
    command = [sys.executable, "-m", "tests.crash.holder", request.param, node.url, queue]
    child = Child(command, tmp_path / "holder.log", REPOSITORY)
    request.node.queue = queue
    try:
        yield child
    finally:
        child.kill()


async def publish(url: str, queue: str) -> None:
    async with pushlane.connect(url) as client:
        await client.queues.create(queue, backoff_base_ms=1, backoff_max_ms=1)
        await client.publish(queue, {"uid": "u"}, key="k")
        await client.publish(queue, {"uid": "next"}, key="k")


def stop_past_the_lease(child: Child) -> None:
    child.signal(signal.SIGSTOP)
    time.sleep(STOP_S)


def go_on(child: Child) -> str:
    """Continue it, and have it ack; what it was told."""
    child.signal(signal.SIGCONT)
    child.say("ack")
    return child.hear("", SECONDS)


def test_a_holder_that_is_in_time_acks(
    request: pytest.FixtureRequest, node: Node, holder: Child
) -> None:
    assert int(holder.hear("took ", SECONDS)) > 0
    assert go_on(holder) == "ok"
    assert node.left(request.node.queue) == 1


@pytest.mark.parametrize("acks_first", [True, False], ids=["acked", "held"])
def test_what_somebody_else_got_is_no_longer_the_holders(
    request: pytest.FixtureRequest, node: Node, holder: Child, acks_first: bool
) -> None:
    fence = int(holder.hear("took ", SECONDS))
    stop_past_the_lease(holder)

    async def take_over() -> None:
        async with pushlane.connect(node.url) as client, asyncio.timeout(SECONDS):
            subscription = await client.subscribe(request.node.queue, lease_ms=60_000)
            message = await anext(subscription)
            assert message.body == {"uid": "u"}
            assert message.fence is not None
            assert message.fence > fence
            assert message.attempt == 2
            if acks_first:
                await message.ack()
            told = await asyncio.to_thread(go_on, holder)
            assert told == "lease_lost"
            if not acks_first:
                await message.ack()
            last = await anext(subscription)
            assert last.body == {"uid": "next"}
            await last.ack()

    asyncio.run(take_over())
    assert node.left(request.node.queue) == 0


def test_nobody_else_wanted_it_and_it_comes_again(
    request: pytest.FixtureRequest, node: Node, holder: Child
) -> None:
    fence = int(holder.hear("took ", SECONDS))
    stop_past_the_lease(holder)
    assert go_on(holder) == "lease_lost"

    async def take_again() -> None:
        async with pushlane.connect(node.url) as client, asyncio.timeout(SECONDS):
            message = await anext(await client.subscribe(request.node.queue))
            assert (message.body, message.attempt) == ({"uid": "u"}, 2)
            assert message.fence is not None
            assert message.fence > fence
            await message.ack()

    asyncio.run(take_again())
