"""The long form: what only a ring of three and a real network can bring, beside all else.

`python -m tests.outages --cluster --long --minutes 60`; the shorter faults are in `faults.py`.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from tests.crash.crew import Say
from tests.outages.cluster.faults import (
    AWAY_S,
    FAULTS,
    JUDGED_S,
    JUMP_S,
    SETTLED_S,
    SLACK,
    SOON_MS,
    back,
    crash,
    held,
    held_ms,
    slow_store,
    standing,
)
from tests.outages.cluster.member import Member
from tests.outages.cluster.namespaces import Namespaces
from tests.outages.cluster.network import Cut, Host, cuts
from tests.outages.cluster.stage import ClusterStage
from tests.outages.fault import Fault, Told
from tools.services.cassandra import Node

RING_MS, BOTH_MS = SLACK * 10_000, SLACK * 15_000
"""When a Cassandra node dies, alone and with a node."""
HANG_S = 15.0
"""How long a Cassandra node hangs, or is cut off."""
SETTLE_S = 30.0
"""How long the other Cassandra nodes take until they send everything to one that came back."""
MINUTE_S = 60.0


class LongStage(ClusterStage):
    def __init__(
        self, folder: Path, seed: int, namespaces: Namespaces, keyspace: str,
        plant: str = "", say: Say = lambda _: None,
    ) -> None:  # fmt: skip
        super().__init__(folder, seed, namespaces, keyspace, plant, say)
        self.namespaces = namespaces

    def host_of(self, member: Member) -> Host:
        return self.namespaces.nodes[member.name]

    def others(self, member: Member) -> list[Host]:
        return [self.host_of(other) for other in self.members if other is not member]

    def heal(self) -> None:
        """Until a Cassandra node that was away is back for good."""
        self.ring.wait()
        self.wait_until_busy()
        time.sleep(SETTLE_S)


# Nodes and the network


def part_two(stage: LongStage) -> None:
    """Both reach Cassandra and everybody else."""
    one, two = (stage.host_of(member) for member in stage.rng.sample(stage.members, 2))
    with held(cuts([one], [two])):
        time.sleep(AWAY_S)


def deaf(stage: LongStage) -> None:
    """A node gets nothing from other nodes, which get everything from it: for longer than links
    stand it, so that they are dialled again meanwhile."""
    member = stage.choose()
    with held([Cut(stage.others(member), [stage.host_of(member)])]):
        time.sleep(JUDGED_S)


def mute(stage: LongStage) -> None:
    member = stage.choose()
    with held([Cut([stage.host_of(member)], stage.others(member))]):
        time.sleep(JUDGED_S)


def cut_from_all(stage: LongStage) -> None:
    """Its clients are sent elsewhere, and come back to the node that it is then."""
    member = stage.choose()
    host, there = stage.host_of(member), stage.namespaces
    stage.send_away(member)
    rest = [*stage.others(member), *there.ring_hosts, there.redis_host, *there.clients]
    with held(cuts([host], rest)):
        time.sleep(JUDGED_S)
    member.serves = True
    stage.send_home()


def mute_to_clients(stage: LongStage) -> None:
    """What clients send arrives, and they have no answer."""
    member = stage.choose()
    with held([Cut([stage.host_of(member)], stage.namespaces.clients)]):
        time.sleep(AWAY_S)


def mute_leases(stage: LongStage) -> None:
    """What Redis is told is done, and the node doesn't know."""
    with held([Cut([stage.namespaces.redis_host], [stage.host_of(stage.choose())])]):
        time.sleep(AWAY_S)


def cut_all_from_leases(stage: LongStage) -> None:
    nodes = [stage.host_of(member) for member in stage.members]
    with held(cuts(nodes, [stage.namespaces.redis_host])):
        time.sleep(AWAY_S)


def drain(stage: LongStage) -> None:
    """It gives its slots away, keeps its clients, and takes slots again."""
    member = stage.choose()
    for undo in (False, True):
        stage.ask("POST", "/v1/cluster/drain", {"node": member.name, "undo": undo})
        time.sleep(SETTLED_S)


# Cassandra


def mute_store(stage: LongStage) -> None:
    """What a node writes is stored, and it has no answer: it is fenced meanwhile or later."""
    member = stage.choose()
    member.serves = False
    with held([Cut(stage.namespaces.ring_hosts, [stage.host_of(member)])]):
        time.sleep(JUDGED_S)
    member.serves = True


def cut_from_one(stage: LongStage) -> None:
    """A node from one Cassandra node: the two others are there."""
    host, store = stage.host_of(stage.choose()), stage.rng.choice(stage.namespaces.ring_hosts)
    with held(cuts([host], [store])):
        time.sleep(HANG_S)


def part_ring(stage: LongStage) -> None:
    """A Cassandra node from the other two: it answers, and has no quorum."""
    alone = stage.rng.choice(stage.namespaces.ring_hosts)
    with held(cuts([alone], [host for host in stage.namespaces.ring_hosts if host is not alone])):
        time.sleep(HANG_S)
    stage.heal()


def hang_store_node(stage: LongStage) -> None:
    with standing([stage.rng.choice(stage.ring.nodes)]):
        time.sleep(HANG_S)
    stage.heal()


def kill_store_node(stage: LongStage) -> None:
    node = _killed(stage)
    time.sleep(AWAY_S)
    node.start()
    stage.heal()


def kill_both(stage: LongStage) -> Told:
    """The takeover reads what only two of three still have."""
    node, member = _killed(stage), stage.choose()
    crash(stage, member)
    stage.wait_until_busy()
    told = back(stage, member)
    node.start()
    stage.heal()
    return told


def _killed(stage: LongStage) -> Node:
    node = stage.rng.choice(stage.ring.nodes)
    node.kill()
    return node


# Clocks


def wrong_clock_takes_over(stage: LongStage) -> Told:
    """A clock is wrong while its node takes over what another one had; then that one starts with
    a clock that is wrong the other way."""
    wrong, dead = stage.rng.sample(stage.members, 2)
    ahead = stage.rng.choice((JUMP_S, -JUMP_S))
    wrong.clock.set_ahead(ahead)
    crash(stage, dead)
    stage.wait_until_busy()
    dead.clock.set_ahead(-ahead)
    told = back(stage, dead)
    stage.wait_until_busy()
    for member in (wrong, dead):
        member.clock.set_ahead(0)
    return told


LONG_FAULTS: dict[str, Fault[LongStage]] = {
    **FAULTS,
    "two nodes cut off from each other": Fault(part_two, held_ms(AWAY_S)),
    "a node that hears no other": Fault(deaf, held_ms(JUDGED_S)),
    "a node that no other hears": Fault(mute, held_ms(JUDGED_S)),
    "a node cut off from everything": Fault(cut_from_all, held_ms(JUDGED_S)),
    "a node that no client hears": Fault(mute_to_clients, held_ms(AWAY_S)),
    "a node that doesn't hear Redis": Fault(mute_leases, SOON_MS),
    "Redis cut off from all nodes": Fault(cut_all_from_leases, SOON_MS),
    "a node is drained for a while": Fault(drain, SOON_MS),
    "a node that doesn't hear Cassandra": Fault(mute_store, held_ms(JUDGED_S)),
    "a node cut off from one Cassandra node": Fault(cut_from_one, RING_MS),
    "a Cassandra node cut off from the others": Fault(part_ring, RING_MS),
    "a Cassandra node hangs": Fault(hang_store_node, RING_MS),
    "kill -9 of a Cassandra node": Fault(kill_store_node, RING_MS),
    "kill -9 of a node and a Cassandra node": Fault(kill_both, BOTH_MS),
    "Cassandra is slow": Fault(partial(slow_store, seconds=MINUTE_S), SOON_MS),
    "a node takes over with a wrong clock": Fault(wrong_clock_takes_over, SOON_MS),
}
