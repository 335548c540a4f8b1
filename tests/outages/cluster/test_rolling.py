"""Three nodes are restarted one after the other, as an upgrade does it, and no client of the SDK is
told of an error."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.cluster.load import Load, Trace
from tests.outages.cluster.hosts import Hosts, running_hosts
from tests.outages.door import Door
from tools.services.cassandra import Ring
from tools.services.redis import Redis

SHARDS = 4
UNHURRIED = {
    "cassandra.judge_ms": 20_000,
    "dispatcher.cache_ms": 5_000,
    "dispatcher.cache_claim_ms": 10_000,
}
"""On a busy machine nobody is dead for being slow, and Redis isn't gone: nothing fails here."""
QUEUES = [f"rolling-{number}" for number in range(6)]


def test_an_upgrade_costs_no_client_an_error(single: Ring, redis: Redis, tmp_path: Path) -> None:
    with running_hosts(tmp_path, 3, single, redis, UNHURRIED) as hosts:
        for queue in QUEUES:
            hosts.members[0].node.ask("PUT", f"/v1/queues/{queue}", {"shards": SHARDS})
        doors = [Door(member.node.port) for member in hosts.members]
        try:
            load = Load(_urls(doors))
            asyncio.run(_roll(hosts, doors, load))
        finally:
            for door in doors:
                door.close()
    traces: list[Trace] = [trace for traces in load.traces.values() for trace in traces]
    assert load.errors + [trace.error for trace in traces if trace.error] == []
    assert all(trace.done for trace in traces)


def _urls(doors: list[Door]) -> dict[str, tuple[str, str]]:
    """Every queue is published to through one node and consumed through another one."""
    urls = [door.url for door in doors]
    return {
        queue: (urls[n % len(urls)], urls[(n + 1) % len(urls)]) for n, queue in enumerate(QUEUES)
    }


async def _roll(hosts: Hosts, doors: list[Door], load: Load) -> None:
    async with load.running():
        for door, member in zip(doors, hosts.members, strict=True):
            home = member.node.port
            [other, *_] = [each for each in hosts.members if each is not member]
            door.lead_on(other.node.port)  # a balancer sends nobody there any more
            assert await asyncio.to_thread(member.end) == 0
            await asyncio.to_thread(member.start)
            door.lead_on(home)
            await asyncio.to_thread(hosts.wait_until_up)
            await load.back_since(asyncio.get_running_loop().time())
