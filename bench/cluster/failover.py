"""How soon every queue accepts and delivers again, when a node dies, hangs or is stopped."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable

from bench.cluster.load import Load, Trace
from bench.cluster.nodes import SHARE_S, Node
from bench.cluster.saying import say, tell
from tests.outages.door import Door

KILL_S, HANG_S, DRAIN_P99_S = 5.0, 12.0, 1.0
QUEUES = [f"failover-{n}" for n in range(12)]
SHARDS = b'{"shards": 2}'
WARM_S, AFTER_S = 4.0, 3.0
BEFORE_S = 1.0


def killed(nodes: list[Node], rounds: int) -> None:
    times = []
    for turn in range(rounds):
        victim, *others = turned(nodes, turn)
        times.append(measured(others, victim.kill))
        _come_back(victim)
        tell("  kill -9, s", f"{times[-1]:.2f}")
    median_of("kill -9: all queues go on after, s (median)", times, KILL_S)


def hung(nodes: list[Node], rounds: int) -> None:
    times = []
    for turn in range(rounds):
        victim, *others = turned(nodes, turn)
        times.append(measured(others, victim.pause))
        victim.go_on()
        tell("  SIGSTOP, s", f"{times[-1]:.2f}")
        time.sleep(SHARE_S)
    median_of("SIGSTOP: all queues go on after, s (median)", times, HANG_S)


def stopped(nodes: list[Node], rounds: int) -> None:
    """A third of all clients are with the one that stops; a balancer sends them elsewhere then."""
    times, errors, ends = [], 0, []
    for turn in range(rounds):
        victim, *others = turned(nodes, turn)
        load, struck, took = asyncio.run(_planned(victim, others))
        ends.append(took)
        _come_back(victim)
        found = load.errors + [t.error for ts in load.traces.values() for t in ts if t.error]
        errors += len(found)
        for error in sorted(set(found))[:3]:
            tell(f"  an SDK client saw {error}"[:70], str(found.count(error)))
        traces = [trace for traces in load.traces.values() for trace in traces]
        before = _p99(trace for trace in traces if trace.sent < struck - BEFORE_S)
        times.append(_p99(trace for trace in traces if trace.sent >= struck - BEFORE_S))
        tell(
            "  p99 of publish to delivery, before / at SIGTERM, s",
            f"{before:.2f} / {times[-1]:.2f}",
        )
    tell("SIGTERM: the process ends after, s (median)", f"{statistics.median(ends):.2f}")
    say("SIGTERM: errors that SDK clients saw", f"{errors}", errors == 0, "0")
    median_of("SIGTERM: p99 of publish to delivery, s (median)", times, DRAIN_P99_S)


def turned(nodes: list[Node], turn: int) -> list[Node]:
    first = turn % len(nodes)
    return nodes[first:] + nodes[:first]


def median_of(name: str, times: list[float], bar: float) -> None:
    found = statistics.median(times)
    say(name, f"{found:.2f}", found < bar, f"< {bar:g}")


def _urls(producers: list[str], consumers: list[str]) -> dict[str, tuple[str, str]]:
    return {
        queue: (producers[n % len(producers)], consumers[n % len(consumers)])
        for n, queue in enumerate(QUEUES)
    }


def make_queues(node: Node) -> None:
    for queue in QUEUES:
        node.put(f"/v1/queues/{queue}", SHARDS)


def measured(others: list[Node], strike: Callable[[], None]) -> float:
    """Seconds until all queues go on, through these nodes."""
    return asyncio.run(_failover(others, strike))


async def _failover(others: list[Node], strike: Callable[[], None]) -> float:
    """Seconds from the fault until every queue took and delivered something sent after it."""
    urls = [node.url for node in others]
    load = Load(_urls(urls, urls[::-1]))
    async with load.running():
        await asyncio.sleep(WARM_S)
        struck = time.monotonic()
        strike()
        return await load.back_since(struck) - struck


async def _planned(victim: Node, others: list[Node]) -> tuple[Load, float, float]:
    """The load, when the node was asked to end, and how long it took."""
    doors = [Door(_port(node)) for node in (victim, *others)]
    try:
        urls = [door.url for door in doors]
        load = Load(_urls(urls, urls[1:] + urls[:1]))
        async with load.running():
            await asyncio.sleep(WARM_S)
            struck = time.monotonic()
            doors[0].lead_on(_port(others[0]))
            await asyncio.to_thread(victim.end)
            took = time.monotonic() - struck
            await asyncio.sleep(AFTER_S)
        return load, struck, took
    finally:
        for door in doors:
            door.close()


def _port(node: Node) -> int:
    return int(node.url.rpartition(":")[2])


def _come_back(victim: Node) -> None:
    victim.start()
    time.sleep(SHARE_S)


def _p99(traces: Iterable[Trace]) -> float:
    found = sorted(trace.delivered - trace.sent for trace in traces if trace.delivered)
    return found[int(len(found) * 0.99)]
