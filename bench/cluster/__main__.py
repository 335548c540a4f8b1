"""A cluster of three nodes on one machine, with one Cassandra (commitlog_sync: batch) and Redis.

    python -m bench.cluster                 everything: about 10 minutes
    python -m bench.cluster --quick         a short run, to see that everything works
    python -m bench.cluster --only NAME …   cost, latency, idle, crowd, kill, hang, stop

Nodes, services and load share the cores: what is measured of time says something on a machine that
has nothing else to do.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.cluster import failover, speed
from bench.cluster.crowd import crowd
from bench.cluster.nodes import Node, running_nodes
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", default=list(PARTS))
    args = parser.parse_args()
    raise_limits()
    print("Three nodes on one Cassandra node (commitlog_sync: batch) and Redis")
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-bench-", dir=".") as place,
        running_nodes(Path(place).resolve(), "bench_cluster") as nodes,
    ):
        failover.make_queues(nodes[0])
        for name in args.only:
            print(name, flush=True)
            PARTS[name](nodes, QUICK if args.quick else WHOLE)


if __name__ == "__main__":
    main()
