"""What the way through a node that is not the owner costs: CPU of all nodes, and time."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

import pushlane
from bench.cluster.nodes import Node
from bench.cluster.saying import say, tell

COST, HALF_COST, ADDED_MS = 1.6, 1.33, 2.0
FRAME, FRAMES = 32, 8
"""Messages in a frame, and frames under way."""
CREDIT = 1_024
QUEUE = "speed"
TRIES = 30
"""Queues that are made to find two with one owner."""
BODY = {"text": "x" * 188}
PACE = 200
IDLE, PER_SESSION = 1_000, 100
IDLE_S = 10.0
IDLE_CPU = 0.005
"""Of a core, more than without the subscriptions: as good as none."""
PROBE = 200 * FRAME


class Pair(NamedTuple):
    """A producer and a consumer of one queue, and the nodes that they talk to."""

    producer: Node
    consumer: Node
    queue: str = QUEUE


DIRECT, FORWARDED, CONSUMED, TWO_DIRECT, TWO_HALF = range(5)
"""Ways of the same messages, by their place in `_ways`."""


def _ways(owner: Node, other: Node, second: str) -> list[list[Pair]]:
    """`second` is another queue of the same owner: so that of two pairs each carries exactly half
    of the messages, whichever is faster."""
    return [
        [Pair(owner, owner)],
        [Pair(other, other)],
        [Pair(owner, other)],
        [Pair(owner, owner), Pair(owner, owner, second)],
        [Pair(owner, owner), Pair(other, other, second)],
    ]


def cost(nodes: list[Node], rounds: int, messages: int) -> None:
    """CPU of all nodes per message: through the owner, and through another node."""
    nodes[0].put(f"/v1/queues/{QUEUE}", b"{}")
    asyncio.run(flow(nodes[0], messages))  # warm
    owner, *others = _owner_first(nodes)
    second = _second_queue(nodes, owner)
    all_found: list[list[float]] = []
    for turn in range(rounds):
        ways = _ways(owner, others[turn % len(others)], second)
        found = [_cpu_us(nodes, way, messages) for way in (ways if turn % 2 else ways[::-1])]
        found = found if turn % 2 else found[::-1]
        tell("  µs a message: direct / forwarded / consumed elsewhere", _slashed(found[:3]))
        tell("  … of two pairs: direct / one of them forwarded", _slashed(found[3:]))
        all_found.append(found)
    share = _median_ratio(all_found, FORWARDED, DIRECT)
    say(f"frames of {FRAME}: forwarded ÷ direct", f"{share:.2f}", share <= COST, f"≤ {COST}")
    half = _median_ratio(all_found, TWO_HALF, TWO_DIRECT)
    name = "two pairs, half of the traffic forwarded ÷ direct"
    say(name, f"{half:.2f}", half <= HALF_COST, f"≤ {HALF_COST}")
    consumed = _median_ratio(all_found, CONSUMED, DIRECT)
    tell("… published directly, consumed through another ÷ direct", f"{consumed:.2f}")


def _slashed(found: list[float]) -> str:
    return " / ".join(f"{each:.0f}" for each in found)


def _median_ratio(rounds: list[list[float]], way: int, to: int) -> float:
    """Each round by itself: what else the machine does changes from one to the next."""
    return statistics.median(found[way] / found[to] for found in rounds)


def _cpu_us(nodes: list[Node], pairs: Sequence[Pair], messages: int) -> float:
    before = sum(node.cpu_s() for node in nodes)
    asyncio.run(_flows(pairs, messages))
    return 1e6 * (sum(node.cpu_s() for node in nodes) - before) / messages


async def _flows(pairs: Sequence[Pair], messages: int) -> None:
    """Each carries the same part of the messages."""
    part, left = divmod(messages, len(pairs))
    assert not left
    async with asyncio.TaskGroup() as group:
        for pair in pairs:
            group.create_task(flow(pair.producer, part, pair.consumer, pair.queue))


def _owner_first(nodes: list[Node], queue: str = QUEUE) -> list[Node]:
    """Through the owner, others have nothing to do."""

    def of_others(node: Node) -> float:
        others = [each for each in nodes if each is not node]
        before = sum(each.cpu_s() for each in others)
        asyncio.run(flow(node, PROBE, queue=queue))
        return sum(each.cpu_s() for each in others) - before

    return sorted(nodes, key=of_others)


def _second_queue(nodes: list[Node], owner: Node) -> str:
    """The name of another queue of this owner."""
    for number in range(TRIES):
        queue = f"{QUEUE}-{number}"
        nodes[0].put(f"/v1/queues/{queue}", b"{}")
        asyncio.run(flow(owner, PROBE, queue=queue))  # warm
        if _owner_first(nodes, queue)[0] is owner:
            return queue
    raise AssertionError(f"none of {TRIES} queues has the owner of {QUEUE}")


async def flow(node: Node, messages: int, consumed: Node | None = None, queue: str = QUEUE) -> None:
    """Publish and consume so many messages, in frames of `FRAME`."""
    assert messages % FRAME == 0
    done = asyncio.Event()
    async with (
        pushlane.connect(node.url) as producer,
        pushlane.connect((consumed or node).url) as consumer,
        asyncio.TaskGroup() as group,
    ):
        subscription = await consumer.subscribe(queue, credit=CREDIT)

        async def consume() -> None:
            left = messages
            async for message in subscription:
                group.create_task(_ack(message))
                left -= 1
                if not left:
                    break
            done.set()

        group.create_task(consume())
        frames = iter(range(messages // FRAME))

        async def produce() -> None:
            for _ in frames:
                items = [pushlane.Item(body=BODY) for _ in range(FRAME)]
                for told in await producer.publish_many(queue, items):
                    assert told.error is None, told.error

        async with asyncio.TaskGroup() as producers:
            for _ in range(FRAMES):
                producers.create_task(produce())
        await done.wait()


async def _ack(message: pushlane.Message) -> None:
    await message.ack()


def latency(nodes: list[Node], rounds: int, seconds: float) -> None:
    """From publish to delivery at `PACE` messages/s, through the owner and through another."""
    nodes[0].put(f"/v1/queues/{QUEUE}", b"{}")
    owner, *others = _owner_first(nodes)
    added: list[float] = []
    for turn in range(rounds):
        pair = [owner, others[turn % len(others)]]
        found = [asyncio.run(paced(node, seconds)) for node in (pair if turn % 2 else pair[::-1])]
        direct, remote = found if turn % 2 else found[::-1]
        tell("  p50 ms: direct / forwarded", f"{direct:.2f} / {remote:.2f}")
        added.append(remote - direct)
    found_ms = statistics.median(added)
    name = f"{PACE} messages/s: forwarding adds at p50, ms"
    say(name, f"{found_ms:.2f}", found_ms < ADDED_MS, f"< {ADDED_MS:g}")


async def paced(node: Node, seconds: float) -> float:
    """Milliseconds at p50."""
    times: list[float] = []
    count = round(PACE * seconds)
    async with (
        pushlane.connect(node.url) as producer,
        pushlane.connect(node.url) as consumer,
        asyncio.TaskGroup() as group,
    ):
        subscription = await consumer.subscribe(QUEUE, credit=CREDIT)

        async def consume() -> None:
            async for message in subscription:
                times.append(1000 * (time.monotonic() - message.body["at"]))
                group.create_task(_ack(message))
                if len(times) == count:
                    return

        group.create_task(consume())
        began = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / PACE - time.monotonic()))
            group.create_task(_publish(producer))
    return statistics.median(times)


async def _publish(producer: pushlane.Client) -> None:
    await producer.publish(QUEUE, {"at": time.monotonic()})


def idle(nodes: list[Node]) -> None:
    """Many subscriptions to shards of which other nodes have two thirds, and nothing to do.

    Beside a tenth of them: open shards cost something by themselves.
    """
    queues = [f"idle-{n}" for n in range(PER_SESSION)]
    for queue in queues:
        nodes[0].put(f"/v1/queues/{queue}", b"{}")
    few, all_ = (asyncio.run(_idle(nodes, queues, n)) for n in (1, IDLE // PER_SESSION))
    tell(f"CPU of all nodes with {PER_SESSION} / {IDLE}, of a core", f"{few:.3f} / {all_:.3f}")
    more = all_ - few
    say(
        f"{IDLE} idle subscriptions cost, of a core",
        f"{more:.3f}",
        more < IDLE_CPU,
        f"< {IDLE_CPU}",
    )


async def _idle(nodes: list[Node], queues: list[str], sessions: int) -> float:
    async with AsyncExitStack() as clients:
        for _ in range(sessions):
            client = await clients.enter_async_context(pushlane.connect(nodes[0].url))
            for queue in queues:
                await client.subscribe(queue, credit=1)
        await asyncio.sleep(2)
        return await asyncio.to_thread(_cpu_share, nodes)


def _cpu_share(nodes: list[Node]) -> float:
    before, began = sum(node.cpu_s() for node in nodes), time.monotonic()
    time.sleep(IDLE_S)
    return (sum(node.cpu_s() for node in nodes) - before) / (time.monotonic() - began)
