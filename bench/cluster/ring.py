"""What only a network and a ring of three can bring: a node that is cut off from everything, and
one that dies together with a Cassandra node.

Each part has a host of its own, in a network namespace, so this needs Linux and root. Clients are
on the router between them; nodes judge each other with their default settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path

from bench.cluster.failover import HANG_S, make_queues, measured, median_of, turned
from bench.cluster.nodes import SHARE_S, SIZE, TENURE_MS, Node
from bench.cluster.saying import tell
from tests.outages.cluster.namespaces import Namespaces, running_namespaces
from tests.outages.cluster.network import cuts, leave_the_world

Undo = Callable[[], None]
BOTH_S = 15.0
HEAL_S = 30.0
"""How long the other Cassandra nodes take until they send everything to one that came back."""


class Ground:
    """Nodes on hosts of their own, and what they stand on."""

    def __init__(self, namespaces: Namespaces, nodes: list[Node]) -> None:
        self.nodes = nodes
        self._namespaces = namespaces
        self._cassandras = cycle(namespaces.ring.nodes)

    def cut_off(self, node: Node) -> Undo:
        """From all other hosts; what ends that."""
        there = self._namespaces
        host = there.nodes[node.name]
        others = [other for other in there.nodes.values() if other is not host]
        ways = cuts([host], [*others, *there.ring_hosts, there.redis_host])
        for way in ways:
            way.hold()

        def let_go() -> None:
            for way in ways:
                way.let_go()

        return let_go

    def kill_with_cassandra(self, node: Node) -> Undo:
        """With another Cassandra node each time; what brings both back."""
        cassandra = next(self._cassandras)
        cassandra.kill()
        node.kill()

        def bring_back() -> None:
            cassandra.start()
            self._namespaces.ring.wait()
            node.start()

        return bring_back


@contextmanager
def running_ground(folder: Path, keyspace: str) -> Iterator[Ground]:
    leave_the_world()
    with running_namespaces() as namespaces:
        nodes = [_node(namespaces, f"node-{n + 1}", folder, keyspace) for n in range(SIZE)]
        try:
            for node in nodes:
                node.start()
            make_queues(nodes[0])
            yield Ground(namespaces, nodes)
        finally:
            for node in nodes:
                node.close()


def _node(namespaces: Namespaces, name: str, folder: Path, keyspace: str) -> Node:
    site = namespaces.site(name)
    settings = {**site.settings, "cluster.tenure_ms": str(TENURE_MS)}
    backing = ["--store", f"{site.store}/{keyspace}", "--leases", site.leases]
    backing += [word for each in settings.items() for word in ("--set", "=".join(each))]
    return Node(name, folder, backing, site.host, site.within)


def cut(ground: Ground, rounds: int) -> None:
    times = _rounds(ground, rounds, ground.cut_off, "cut off from everything", SHARE_S)
    median_of("cut off: all queues go on after, s (median)", times, HANG_S)


def both(ground: Ground, rounds: int) -> None:
    times = _rounds(ground, rounds, ground.kill_with_cassandra, "with a Cassandra node", HEAL_S)
    median_of("with a Cassandra node: all queues go on after, s (median)", times, BOTH_S)


def _rounds(
    ground: Ground, rounds: int, strike: Callable[[Node], Undo], name: str, after_s: float
) -> list[float]:
    """Each node in turn is struck; `after_s` later all is as it was."""
    times = []
    for turn in range(rounds):
        victim, *others = turned(ground.nodes, turn)
        undo: list[Undo] = []
        times.append(measured(others, partial(_keep, undo, strike, victim)))
        tell(f"  {name}, s", f"{times[-1]:.2f}")
        undo[0]()
        time.sleep(after_s)
    return times


def _keep(undo: list[Undo], strike: Callable[[Node], Undo], victim: Node) -> None:
    undo.append(strike(victim))


RING_PARTS: dict[str, Callable[[Ground, int], None]] = {"cut": cut, "both": both}
