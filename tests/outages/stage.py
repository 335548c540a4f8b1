"""The stage: a ring of three, a Redis, gateways on both, and the doors that lead to them."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

from tests.crash.crew import Crew, Say
from tests.crash.load import CONFIGS, QUEUES, WORK
from tests.crash.node import Node
from tests.outages.door import Door
from tools.services.cassandra import Ring
from tools.services.redis import Redis

PATIENCE_S = 90.0
"""For anything that must come, however slow the machine: bars are judged elsewhere."""
BUSY = 30
"""So many acks show that the clients are at work."""
IMPATIENT = "i"
"""How the names of producers end that give up soon (`tests.crash.producing`)."""
PACE, STRAY_PACE = 4.0, 8.0
"""How much more slowly than usual is published: a message of a key waits for the one before it, and
a ring of three that shares a small machine with everything else takes its time."""


class Stage:
    """Clients come through `door`; strays through `stray_door`, which is led elsewhere late."""

    def __init__(
        self, folder: Path, seed: int, ring: Ring, redis: Redis, keyspace: str,
        plant: str = "", say: Say = lambda _: None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._plant = plant
        self.ring = ring
        self.redis = redis
        self.rng = Random(f"stage {seed}")
        self.crew = Crew(folder, seed, say)
        self.recorder = self.crew.recorder
        self.redis_door = Door(redis.port)
        self.door, self.stray_door = Door(), Door()
        self._doors = (self.redis_door, self.door, self.stray_door)
        self._backing = [
            *("--store", ring.url(keyspace)),
            *("--leases", f"redis://{redis.host}:{self.redis_door.port}"),
        ]
        self._names = count(1)
        self._gateways: list[Node] = []
        self._retired: list[Node] = []
        self.gateway = self.new_gateway()
        """The one that serves."""
        self.strays: set[int] = set()
        """The numbers of workers that are strays."""

    def new_gateway(self) -> Node:
        """Another one on the same keyspace and Redis. It is not started yet."""
        name = f"gateway-{next(self._names)}"
        gateway = Node(
            self._folder, self._plant, backing=self._backing, name=name,
            planted="tests.outages.plants",
        )  # fmt: skip
        self._gateways.append(gateway)
        return gateway

    def begin(self) -> None:
        self.gateway.spawn()
        self.gateway.wait_until_ready()
        for name in QUEUES:
            self.gateway.ask("PUT", f"/v1/queues/{name}", CONFIGS.get(name, {}))
        self.lead_to(self.gateway)
        self.stray_door.lead_to(self.gateway.port)
        for role in ("producers", "consumers"):
            self.crew.hire(role, self.door.url, pace=PACE)
            self.strays.add(self.crew.hire(role, self.stray_door.url, pace=STRAY_PACE))
        self.crew.wait_until_begun()
        self.wait_until_busy()

    def lead_to(self, gateway: Node) -> None:
        self.gateway = gateway
        self.door.lead_to(gateway.port)

    # Looking

    def wait_until_busy(self) -> None:
        """Until all are back and at work."""
        before = self._acked()
        until(lambda: self._acked() >= before + BUSY, "no load")

    def _acked(self) -> int:
        return self.ask(lambda: self.gateway.acked(WORK))

    def left(self) -> int:
        return self.ask(lambda: sum(map(self.gateway.left, QUEUES)))

    def ask(self, question: Callable[[], int]) -> int:
        """Of a gateway that may have no answer for now."""
        answers: list[int] = []

        def answered() -> bool:
            try:
                answers.append(question())
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                return False
            return True

        until(answered, "the gateway doesn't answer")
        return answers[0]

    def counts(self, producer: str) -> bool:
        """Not strays: theirs hangs for longer. Nor who gives up sooner than an answer may take."""
        strays = tuple(map(str, self.strays))
        return not producer.startswith(strays) and not producer.endswith(IMPATIENT)

    # The end

    def retire(self, gateway: Node) -> None:
        """It is to end, in good order and in its own time."""
        gateway.ask_to_end()
        self._retired.append(gateway)

    def finish(self) -> None:
        self.crew.finish(self.left)
        self.retire(self.gateway)
        for gateway in self._retired:
            assert gateway.end() == 0, f"{gateway.name} did not end in good order"
        self.crew.write()

    def close(self) -> None:
        self.crew.kill()
        for gateway in self._gateways:
            gateway.close()
        for door in self._doors:
            door.close()


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"{what} within {PATIENCE_S:g} s"
        time.sleep(0.1)
