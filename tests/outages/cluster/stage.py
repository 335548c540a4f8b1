"""The stage: three nodes on a ground of their own, and clients with a way to each of them.

Each group of clients has a door that leads to a node: its home, for as long as that serves, else
any other, as a load balancer would have it.
"""

from __future__ import annotations

import urllib.error
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from pushlane_history import event as history
from tests.crash.crew import Crew, Say
from tests.crash.load import CONFIGS, DEAD, JOBS, POLLED, QUEUES, WORK
from tests.outages.cluster.clock import WallClock, compile_clock
from tests.outages.cluster.ground import Ground, Way
from tests.outages.cluster.meddler import Meddler
from tests.outages.cluster.member import Member
from tests.outages.cluster.script import hire_script
from tests.outages.stage import BUSY, IMPATIENT, until

NODES = 3
PACE = 6.0
"""How much more slowly than usual is published: all processes share a small machine."""
SHARDS = {WORK: 4, JOBS: 3, POLLED: 2, DEAD[JOBS]: 2}
DRAIN_S = 600.0
"""Consumers over plain HTTP take little at a time, and on a busy machine they fall behind."""
MEDDLER = 90
"""The number of the meddler's part of the history."""


class ClusterStage:
    def __init__(
        self, folder: Path, seed: int, ground: Ground, keyspace: str,
        plant: str = "", say: Say = lambda _: None,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._ground = ground
        self._keyspace = keyspace
        self._plant = plant
        self._clock_library = compile_clock(folder)
        self._names = count(1)
        self.ring = ground.ring
        self.redis = ground.redis
        self.rng = Random(f"cluster {seed}")
        self.crew = Crew(folder, seed, say)
        self.recorder = self.crew.recorder
        self.members: list[Member] = []
        self._gone: list[Member] = []
        self.doors = [ground.door() for _ in range(NODES)]
        self.homes: list[Member] = []
        """Where each door leads."""
        self._urls = [door.url for door in self.doors]
        self.meddler = Meddler(MEDDLER, Random(f"meddler {seed}"), self._urls)
        self._progress = Progress()

    def new_member(self) -> Member:
        name = f"node-{next(self._names)}"
        clock = WallClock(self._folder / f"{name}.clock", self._clock_library)
        site = self._ground.site(name)
        member = Member(self._folder, name, site, self._keyspace, clock, self._plant)
        self.members.append(member)
        return member

    def begin(self) -> None:
        for _ in range(NODES):
            self.new_member().start()  # one after the other: the first one makes the tables
        self.homes = list(self.members)
        self.send_home()
        for name in QUEUES:
            config = {**CONFIGS.get(name, {}), "shards": SHARDS.get(name, 1)}
            self.ask("PUT", f"/v1/queues/{name}", config)
        for door in self.doors[:2]:
            for role in ("producers", "consumers"):
                self.crew.hire(role, door.url, pace=PACE, within=door.place.within)
        hire_script(self.crew, self.doors[2].url, PACE, self.doors[2].place.within)
        self.crew.wait_until_begun()
        self.meddler.start()
        self.wait_until_busy()

    # Who is where

    @property
    def serving(self) -> list[Member]:
        return [member for member in self.members if member.serves]

    def choose(self) -> Member:
        return self.rng.choice(self.members)

    def send_away(self, *members: Member) -> None:
        """Their clients to others, at random."""
        for member in members:
            member.serves = False
        for door, home in zip(self.doors, self.homes, strict=True):
            if home in members:
                door.lead_to(*self.rng.choice(self.serving).address)

    def send_home(self) -> None:
        """All clients whose home serves, if they aren't there."""
        for door, home in zip(self.doors, self.homes, strict=True):
            if home.serves and not door.leads_to(*home.address):
                door.lead_to(*home.address)

    def client_ways(self, member: Member) -> Sequence[Way]:
        """Between a node and the clients whose home it is."""
        doors = [door for door, home in zip(self.doors, self.homes, strict=True) if home is member]
        return self._ground.client_ways(member.site, doors)

    def remove(self, member: Member) -> None:
        """For good."""
        self.members.remove(member)
        self._gone.append(member)

    def crashed(self, member: Member) -> None:
        self.recorder.add(history.Crash(self.recorder.at, member.name))

    # Looking

    def wait_until_busy(self) -> None:
        """Until all are back and at work."""
        self._progress.begin()
        until(lambda: self._progress.see(self._acked()) >= BUSY, "no load")

    def _acked(self) -> int:
        return sum(int(self.ask("GET", f"/v1/queues/{name}/stats")["acked"]) for name in CONFIGS)

    def _left(self) -> int:
        left = 0
        for name in QUEUES:
            stats = self.ask("GET", f"/v1/queues/{name}/stats")
            left += int(stats["stored"]) + int(stats["pending"])
        return left

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Of any node, until one has an answer."""
        answers: list[Any] = []

        def answered() -> bool:
            try:
                answers.append(self.rng.choice(self.serving).node.ask(method, path, body))
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                return False
            return True

        until(answered, f"no node answers {method} {path}")
        return answers[0]

    def counts(self, producer: str) -> bool:
        """Not who gives up sooner than an answer may take, nor the meddler: it tries no more."""
        return not producer.endswith(IMPATIENT) and not producer.startswith(f"{MEDDLER}")

    # The end

    def finish(self) -> None:
        self.meddler.finish()
        self.crew.finish(self._left, DRAIN_S)
        for member in self.members:
            assert member.end() == 0, f"{member.name} did not end in good order"
        self.crew.write()
        path = self._folder / "meddler.jsonl"
        self.meddler.recorder.write(path)
        self.crew.histories.append(path)

    def close(self) -> None:
        self.meddler.stop()
        self.crew.kill()
        for member in (*self.members, *self._gone):
            member.close()
        for door in self.doors:
            door.close()


class Progress:
    """How much more a count is that begins anew whenever a shard has a new owner."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._more = 0

    def begin(self) -> None:
        self._last, self._more = None, 0

    def see(self, value: int) -> int:
        if self._last is not None:
            self._more += max(value - self._last, 0)
        self._last = value
        return self._more
