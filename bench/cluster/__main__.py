"""A cluster of three nodes on one machine, with one Cassandra (commitlog_sync: batch) and Redis.

    python -m bench.cluster                 everything: about 10 minutes
    python -m bench.cluster --quick         a short run, to see that everything works
    python -m bench.cluster --only NAME …   cost, latency, idle, crowd, kill, hang, stop, cut, both

The last two, a node that is cut off and one that dies with a Cassandra node, are measured on a ring
of three, with each part on a host of its own in a network namespace (Linux, as root).

Nodes, services and load share the cores: what is measured of time says something on a machine that
has nothing else to do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.cluster import failover, speed
from bench.cluster.crowd import crowd
from bench.cluster.nodes import Node, running_nodes
from bench.cluster.ring import RING_PARTS, running_ground
from bench.gateway.process import raise_limits


class Plan(msgspec.Struct, frozen=True):
    rounds: int = 5
    messages: int = 64_000
    paced_s: float = 10.0
    consumers: int = 2_000


WHOLE = Plan()
QUICK = Plan(rounds=1, messages=6_400, paced_s=3.0, consumers=100)

PARTS: dict[str, Callable[[list[Node], Plan], None]] = {
    "cost": lambda nodes, plan: speed.cost(nodes, plan.rounds, plan.messages),
    "latency": lambda nodes, plan: speed.latency(nodes, plan.rounds, plan.paced_s),
    "idle": lambda nodes, _: speed.idle(nodes),
    "crowd": lambda nodes, plan: crowd(nodes, plan.consumers),
    "kill": lambda nodes, plan: failover.killed(nodes, plan.rounds),
    "hang": lambda nodes, plan: failover.hung(nodes, plan.rounds),
    "stop": lambda nodes, plan: failover.stopped(nodes, plan.rounds),
}
NAMES = [*PARTS, *RING_PARTS]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", default=NAMES)
    args = parser.parse_args()
    raise_limits()
    plan = QUICK if args.quick else WHOLE
    parts = [name for name in args.only if name in PARTS]
    ring_parts = [name for name in args.only if name in RING_PARTS]
    if parts:
        _on_loopback(parts, plan)
    if not ring_parts:
        return
    if parts:  # who leaves the world has no threads yet
        again = [sys.executable, "-m", "bench.cluster", "--only", *ring_parts]
        subprocess.run([*again, *(["--quick"] if args.quick else [])], check=True)
    else:
        _on_a_network(ring_parts, plan)


def _on_loopback(parts: list[str], plan: Plan) -> None:
    print("Three nodes on one Cassandra node (commitlog_sync: batch) and Redis")
    with _folder() as place, running_nodes(place, "bench_cluster") as nodes:
        failover.make_queues(nodes[0])
        for name in parts:
            print(name, flush=True)
            PARTS[name](nodes, plan)


def _on_a_network(parts: list[str], plan: Plan) -> None:
    print("Three nodes on a ring of three Cassandra nodes and Redis, each on a host of its own")
    with _folder() as place, running_ground(place, "bench_cluster") as ground:
        for name in parts:
            print(name, flush=True)
            RING_PARTS[name](ground, plan.rounds)


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pushlane-bench-", dir=".") as place:
        yield Path(place).resolve()


if __name__ == "__main__":
    main()
