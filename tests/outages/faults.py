"""The faults. Each leaves the stage as it found it, with another gateway perhaps."""

from __future__ import annotations

import time

from pushlane_history import event as history
from tests.crash.node import Node, milliseconds
from tests.outages.fault import Fault, Told
from tests.outages.stage import Stage

SOON_MS = 5_000
OWNER_MS = 15_000
"""With a change of owner: an old one that hangs is judged for 10 s before it is fenced."""
HANG_S = 20.0
"""How long a Cassandra node hangs."""
AWAY_S = 3.0
"""How long something is gone before it is started again."""
SLOW_S, DELAY_S = 4.0, 0.5
"""How long Redis is slow, and by how much: more than a call may take."""
STRAYING_S, AWARE_S = 2.0, 30.0
"""How long strays talk to a gateway that was fenced, and until when it must have noticed."""


def kill_node(stage: Stage) -> None:
    node = stage.rng.choice(stage.ring.nodes)
    node.kill()
    time.sleep(AWAY_S)
    node.start()
    _heal(stage)


def _heal(stage: Stage) -> None:
    """Until a node that was killed is back. Were the next one to fail before, two of three would be
    missing, and nobody could serve."""
    stage.ring.wait()
    stage.wait_until_busy()


def pause_node(stage: Stage) -> None:
    node = stage.rng.choice(stage.ring.nodes)
    node.pause()
    time.sleep(HANG_S)
    node.resume()


def restart_nodes(stage: Stage) -> None:
    """One by one, each in good order and only when all are there."""
    for node in stage.rng.sample(stage.ring.nodes, len(stage.ring.nodes)):
        node.stop()
        node.start()
        stage.ring.wait()  # it sees the others; now they must see it


def flush_redis(stage: Stage) -> None:
    with stage.redis.client() as client:
        client.flushall()


def kill_redis(stage: Stage) -> None:
    stage.redis.kill()
    time.sleep(AWAY_S)
    stage.redis.start()


def slow_redis(stage: Stage) -> None:
    stage.redis_door.delay_s = DELAY_S
    time.sleep(SLOW_S)
    stage.redis_door.delay_s = 0.0


def kill_gateway(stage: Stage) -> Told:
    """And start it again at once. To the others it is another one: the one before is judged, faster
    when its address refuses."""
    stage.gateway.kill()
    began = time.monotonic()
    stage.recorder.add(history.Crash(stage.recorder.at, stage.gateway.name))
    stage.gateway.spawn()
    stage.gateway.wait_until_ready()
    took = milliseconds(began)
    return Told(f"ready after {took} ms, {stage.gateway.cpu_ms()} of them computing", took)


def kill_both(stage: Stage) -> Told:
    """The takeover reads tables that nobody has read for long, and a replica doesn't answer."""
    node = stage.rng.choice(stage.ring.nodes)
    node.kill()
    told = kill_gateway(stage)
    stage.wait_until_busy()
    node.start()
    _heal(stage)
    return told


def replace_gateway(stage: Stage) -> Told:
    """It hangs, another one takes over. Then it goes on, with strays that still talk to it."""
    old, new = stage.gateway, stage.new_gateway()
    new.spawn()
    new.wait_until_ready()
    old.pause()
    stage.lead_to(new)
    stage.wait_until_busy()
    old.go_on()
    knows = _knows(old)
    unaware = history.Bound(stage.recorder.at, "fenced and not aware of it", int(not knows), 0)
    stage.recorder.add(unaware)
    stage.stray_door.lead_to(new.port)
    stage.retire(old)
    return Told("the old one noticed" if knows else "the old one did not notice")


def _knows(gateway: Node) -> bool:
    """Whether it has noticed that it was fenced, with strays that ask it for things."""
    deadline = time.monotonic() + AWARE_S
    time.sleep(STRAYING_S)
    while not gateway.number("pushlane_store_fenced"):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


FAULTS: dict[str, Fault[Stage]] = {
    "kill -9 of a Cassandra node": Fault(kill_node, SOON_MS),
    "a Cassandra node hangs": Fault(pause_node, SOON_MS),
    "Cassandra restarted one by one": Fault(restart_nodes, SOON_MS),
    "FLUSHALL of Redis": Fault(flush_redis, SOON_MS),
    "kill -9 of Redis": Fault(kill_redis, SOON_MS),
    "Redis is slow": Fault(slow_redis, SOON_MS),
    "kill -9 of the gateway": Fault(kill_gateway, OWNER_MS),
    "kill -9 of the gateway and a Cassandra node": Fault(kill_both, OWNER_MS),
    "the gateway hangs, another takes over": Fault(replace_gateway, OWNER_MS),
}
