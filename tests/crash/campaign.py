"""A campaign: a server under load is killed and stopped again and again; then calm, and a drain.

Rounds come in an order that the seed decides. A kill is followed by a restart at once, now and
then by another kill before the server is ready. A stop lasts longer than a lease: of the server,
or of a process with consumers. Afterwards producers stop, consumers are well, and everything must
drain; the histories of all processes together are the judge's.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from random import Random

import msgspec

from pushlane_history import event as history
from tests.crash.crew import Crew, Say
from tests.crash.load import CONFIGS, LEASE_MS, QUEUES, WORK
from tests.crash.node import Node, milliseconds

READY_MS = 3_000
"""On a machine with a core to spare: the time in which the server waited for one doesn't count."""
STOP_S = 2.5 * LEASE_MS / 1000
BUSY, BUSY_S = 50, 120.0
"""So many acks show that the clients are at work; they must come within that time."""
PAUSE_S = (0.0, 0.6)
UNAWARES = 0.15
"""The share of rounds that don't wait for that."""
EARLY = 0.1
"""The share of kills that are followed by another one before the server is ready."""
EARLY_S = 1.0


class Plan(msgspec.Struct, frozen=True):
    kills: int
    stops: int
    seed: int
    plant: str = ""

    def rounds(self) -> list[str]:
        stops = ["server", "consumers"] * (self.stops // 2 + 1)
        rounds = ["kill"] * self.kills + [f"stop {who}" for who in stops[: self.stops]]
        Random(self.seed).shuffle(rounds)
        return rounds


class Figures(msgspec.Struct):
    """What was measured."""

    kills: int = 0
    early_kills: int = 0
    stops: dict[str, int] = {}
    ready_ms: list[int] = []
    """From each kill until the server answered that it was ready, without waiting for a core."""
    seconds: float = 0.0


class Campaign:
    def __init__(self, plan: Plan, folder: Path, say: Say = lambda _: None) -> None:
        self._plan = plan
        self._say = say
        self._rng = Random(f"campaign {plan.seed}")
        self._crew = Crew(folder, plan.seed, say)
        self._recorder = self._crew.recorder
        self._node = Node(folder, plan.plant)
        self.figures = Figures()

    @property
    def histories(self) -> list[Path]:
        return self._crew.histories

    def run(self) -> None:
        """Leaves the parts of the history in the folder; no process is left."""
        began = time.monotonic()
        try:
            self._begin()
            rounds = self._plan.rounds()
            for number, what in enumerate(rounds, 1):
                self._let_work()
                self._say(f"{number}/{len(rounds)} {what}: {self._round(what)}")
            self._finish()
        finally:
            self._crew.kill()
            self._node.close()
        self.figures.seconds = time.monotonic() - began

    # The load

    def _let_work(self) -> None:
        """Until all are back and busy, and a little longer; now and then it hits them before."""
        if self._rng.random() < UNAWARES:
            return
        deadline = time.monotonic() + BUSY_S
        before = self._node.acked(WORK)
        while self._node.acked(WORK) < before + BUSY:
            assert time.monotonic() < deadline, f"no load within {BUSY_S} s"
            time.sleep(0.05)
        time.sleep(self._rng.uniform(*PAUSE_S))

    def _begin(self) -> None:
        self._node.spawn()
        self._node.wait_until_ready()
        for name in QUEUES:
            self._node.ask("PUT", f"/v1/queues/{name}", CONFIGS.get(name, {}))
        for role in ("producers", "consumers", "consumers"):
            self._crew.hire(role, self._node.url)
        self._crew.wait_until_begun()

    # Rounds

    def _round(self, what: str) -> str:
        if what == "kill":
            return self._kill()
        stops = self.figures.stops
        stops[what] = stops.get(what, 0) + 1
        if what == "stop server":
            self._node.pause()
            time.sleep(STOP_S)
            self._node.go_on()
        else:
            stopped = self._rng.choice(self._crew.consumers)
            stopped.signal(signal.SIGSTOP)
            time.sleep(STOP_S)
            stopped.signal(signal.SIGCONT)
        self._recorder.add(history.Fault(self._recorder.at, what))
        return "went on"

    def _kill(self) -> str:
        began = self._crash()
        self.figures.kills += 1
        if self._rng.random() < EARLY:
            self._node.spawn()
            time.sleep(self._rng.uniform(0, EARLY_S))
            began = self._crash()
            self.figures.early_kills += 1
        self._node.spawn()
        self._node.wait_until_ready()
        took = milliseconds(since=began) - self._node.queued_ms()
        self.figures.ready_ms.append(took)
        self._recorder.add(history.Bound(self._recorder.at, "ready_ms", took, READY_MS))
        load = os.getloadavg()[0]
        return f"ready after {took} ms, {self._node.cpu_ms()} of them computing (load {load:.1f})"

    def _crash(self) -> float:
        began = time.monotonic()
        self._node.kill()
        self._recorder.add(history.Crash(self._recorder.at, "server"))
        return began

    # The end

    def _finish(self) -> None:
        self._crew.finish(lambda: sum(map(self._node.left, QUEUES)))
        assert self._node.terminate() == 0, "the server did not drain"
        self._crew.write()
