"""What befalls a cluster. Each fault leaves all nodes there, and every client at home."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pushlane_history import event as history
from tests.crash.load import LEASE_MS
from tests.crash.node import milliseconds
from tests.outages.cluster.ground import Way
from tests.outages.cluster.member import JUDGE_MS, Member
from tests.outages.cluster.stage import ClusterStage
from tests.outages.fault import Fault, Told
from tools.services.cassandra import Node

SLACK = 3
"""Bars are held on machines that are busy."""
SOON_MS = SLACK * 5_000
"""After a death that others notice by themselves, or after the fault is over."""
JUDGED_S = JUDGE_MS / 1000 + 2
"""So long that a node is surely judged to be dead."""
SHORT_S = 1.5 * LEASE_MS / 1000
"""Longer than a lease, and too short to be judged."""
AWAY_S = 4.0
"""How long something is cut off or gone."""
JUMP_S, JUMPED_S = 300.0, 1.5
"""How far a clock is off, and for how long."""
STILL_S, GOING_S = 0.5, 0.25
"""How a slow Cassandra spends its time."""
SLOW_S = 10.0
FENCINGS = "pushlane_cluster_fencings"
SETTLED_S = 5.0
"""So that a node that joins gets slots."""


def held_ms(seconds: float) -> int:
    """A bar, where nothing can go on during the fault."""
    return SOON_MS + SLACK * round(1000 * seconds)


def kill(stage: ClusterStage) -> Told:
    """And start it again at once: another process has its address."""
    member = stage.choose()
    crash(stage, member)
    return back(stage, member)


def kill_for_long(stage: ClusterStage) -> Told:
    member = stage.choose()
    crash(stage, member)
    stage.wait_until_busy()
    return back(stage, member)


def kill_two(stage: ClusterStage) -> Told:
    one, two = stage.rng.sample(stage.members, 2)
    crash(stage, one, two)
    stage.wait_until_busy()
    back(stage, one)
    return back(stage, two)


def pause(stage: ClusterStage) -> None:
    """Until it is judged to be dead; its clients are sent elsewhere. Then it goes on."""
    member = stage.choose()
    stage.send_away(member)
    _paused(stage, member, JUDGED_S)
    member.serves = True
    stage.send_home()


def pause_with_clients(stage: ClusterStage) -> None:
    """Its clients wait for it, and have their deliveries from it when it goes on."""
    member = stage.choose()
    member.serves = False
    _paused(stage, member, JUDGED_S)
    member.serves = True


def pause_shortly(stage: ClusterStage) -> None:
    member = stage.choose()
    member.serves = False
    _paused(stage, member, SHORT_S)
    member.serves = True


def hide(stage: ClusterStage) -> None:
    """No other node reaches it; it reaches them, and its heart beats."""
    with held(stage.choose().site.peer_ways):
        time.sleep(AWAY_S)


def part(stage: ClusterStage) -> None:
    """No node reaches another."""
    with held(way for member in stage.members for way in member.site.peer_ways):
        time.sleep(AWAY_S)


def cut_from_store(stage: ClusterStage) -> None:
    """One node from Cassandra: it is fenced by the others."""
    member = stage.choose()
    member.serves = False
    with held(member.site.store_ways):
        time.sleep(JUDGED_S)
    member.serves = True


def cut_from_leases(stage: ClusterStage) -> None:
    with held(stage.choose().site.lease_ways):
        time.sleep(AWAY_S)


def cut_from_clients(stage: ClusterStage) -> None:
    with held(stage.client_ways(stage.rng.choice(stage.homes))):
        time.sleep(AWAY_S)


def pause_store(stage: ClusterStage) -> None:
    """All nodes' hearts stand still: nobody may be fenced for it."""
    with sparing(stage), standing(stage.ring.nodes):
        time.sleep(AWAY_S)


def flush_leases(stage: ClusterStage) -> None:
    with stage.redis.client() as client:
        client.flushall()


def restart_leases(stage: ClusterStage) -> None:
    stage.redis.kill()
    time.sleep(1)
    stage.redis.start()


def restart_one_by_one(stage: ClusterStage) -> None:
    """In good order."""
    for member in list(stage.members):
        stage.send_away(member)
        assert member.end() == 0, f"{member.name} did not end in good order"
        back(stage, member)


def join_and_leave(stage: ClusterStage) -> None:
    """A fourth node gets its share, has clients, and leaves."""
    new, home = stage.new_member(), stage.rng.randrange(len(stage.homes))
    new.start()
    old, stage.homes[home] = stage.homes[home], new
    stage.send_home()
    time.sleep(SETTLED_S)
    stage.homes[home] = old
    stage.send_home()
    new.serves = False
    assert new.end() == 0, f"{new.name} did not end in good order"
    stage.remove(new)


def jump_clock(stage: ClusterStage) -> None:
    """A node's wall clock is wrong by minutes, one way and the other, and right again."""
    member = stage.choose()
    with sparing(stage):
        for ahead in (JUMP_S, -JUMP_S, 0):
            member.clock.set_ahead(ahead)
            time.sleep(JUMPED_S)


def slow_store(stage: ClusterStage, seconds: float) -> None:
    """Cassandra stands still most of the time: whatever it is asked takes long."""
    end = time.monotonic() + seconds
    with sparing(stage):
        while time.monotonic() < end:
            with standing(stage.ring.nodes):
                time.sleep(STILL_S)
            time.sleep(GOING_S)


@contextmanager
def sparing(stage: ClusterStage) -> Iterator[None]:
    """Nobody may be fenced in the block: all nodes are there and well."""
    before = _fencings(stage)
    yield
    stage.wait_until_busy()  # who judged the others meanwhile has said so by now
    told = history.Bound(stage.recorder.at, "fenced in vain", _fencings(stage) - before, 0)
    stage.recorder.add(told)


def _fencings(stage: ClusterStage) -> int:
    return sum(round(member.node.number(FENCINGS)) for member in stage.members)


@contextmanager
def standing(nodes: Sequence[Node]) -> Iterator[None]:
    """Nodes of Cassandra: none of them goes on until the end of the block."""
    for node in nodes:
        node.pause()
    try:
        yield
    finally:
        for node in nodes:
            node.resume()


@contextmanager
def held(ways: Iterable[Way]) -> Iterator[None]:
    closed = list(ways)
    for way in closed:
        way.hold()
    try:
        yield
    finally:
        for way in closed:
            way.let_go()


def crash(stage: ClusterStage, *members: Member) -> None:
    for member in members:
        member.kill()
        stage.crashed(member)
    stage.send_away(*members)


def back(stage: ClusterStage, member: Member) -> Told:
    began = time.monotonic()
    member.start()
    stage.send_home()
    return Told(f"{member.name} ready after {milliseconds(began)} ms")


def _paused(stage: ClusterStage, member: Member, seconds: float) -> None:
    member.node.pause()
    time.sleep(seconds)
    member.node.go_on()


FAULTS: dict[str, Fault[ClusterStage]] = {
    "kill -9 of a node": Fault(kill, SOON_MS),
    "kill -9 of a node for long": Fault(kill_for_long, SOON_MS),
    "kill -9 of two nodes": Fault(kill_two, held_ms(JUDGED_S)),
    "a node hangs": Fault(pause, held_ms(JUDGED_S)),
    "a node hangs with its clients": Fault(pause_with_clients, held_ms(JUDGED_S)),
    "a node hangs for a lease": Fault(pause_shortly, held_ms(SHORT_S)),
    "a node that no other reaches": Fault(hide, held_ms(AWAY_S)),
    "no node reaches another": Fault(part, held_ms(AWAY_S)),
    "a node cut off from Cassandra": Fault(cut_from_store, held_ms(JUDGED_S)),
    "a node cut off from Redis": Fault(cut_from_leases, SOON_MS),
    "a node cut off from its clients": Fault(cut_from_clients, held_ms(AWAY_S)),
    "Cassandra hangs": Fault(pause_store, held_ms(AWAY_S)),
    "Cassandra is slow": Fault(partial(slow_store, seconds=SLOW_S), SOON_MS),
    "FLUSHALL of Redis": Fault(flush_leases, SOON_MS),
    "kill -9 of Redis": Fault(restart_leases, SOON_MS),
    "a node's clock jumps": Fault(jump_clock, SOON_MS),
    "restarted one by one": Fault(restart_one_by_one, SOON_MS),
    "a node joins and leaves": Fault(join_and_leave, SOON_MS),
}
