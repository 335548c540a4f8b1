"""A campaign: faults under load, in an order that the seed decides; then calm, a drain, a verdict.

Clients are real SDKs in processes of their own, servers real processes. What clients saw is
judged by the checker, with the bars on outages among its events.
"""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from random import Random

import msgspec

from pushlane_history import event as history
from tests.crash.crew import Say
from tests.crash.judge import Verdict, judge
from tests.crash.recorder import Recorder, merged
from tests.outages.faults import FAULTS, Told
from tests.outages.gaps import Confirmations, Window
from tests.outages.stage import Stage
from tools.services.cassandra import Ring
from tools.services.redis import Redis

PAUSE_S = (0.0, 1.0)
"""Between one fault and the next."""
IMPATIENT = "i"
"""How the names of producers end that do (`tests.crash.producing`)."""
BARS = 999
"""The number of the history's part with the bars."""


class Plan(msgspec.Struct, frozen=True):
    seed: int
    times: int = 1
    """How often each fault comes."""
    kinds: tuple[str, ...] = tuple(FAULTS)
    plant: str = ""

    def rounds(self) -> list[str]:
        rounds = [kind for kind in self.kinds for _ in range(self.times)]
        Random(self.seed).shuffle(rounds)
        return rounds


class Campaign:
    def __init__(
        self, plan: Plan, folder: Path, ring: Ring, redis: Redis, say: Say = lambda _: None
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._say = say
        self._rng = Random(f"campaign {plan.seed}")
        keyspace = f"outages_{secrets.token_hex(4)}"
        self._stage = Stage(folder, plan.seed, ring, redis, keyspace, plan.plant, say)
        self.windows: list[Window] = []
        self.seconds = 0.0

    def run(self) -> Verdict:
        """What the checker says. The histories stay in the folder; no process is left."""
        began = time.monotonic()
        try:
            self._stage.begin()
            rounds = self._plan.rounds()
            for number, kind in enumerate(rounds, 1):
                window = self._round(kind)
                took = (window.ended - window.began) / 1000
                self._say(f"{number}/{len(rounds)} {kind}: {took:.1f} s {window.note}")
                time.sleep(self._rng.uniform(*PAUSE_S))
            self._stage.finish()
        finally:
            self._stage.close()
        self.seconds = time.monotonic() - began
        return judge([*self._stage.crew.histories, self._bars()])

    def _round(self, kind: str) -> Window:
        recorder, fault = self._stage.recorder, FAULTS[kind]
        window = Window(kind, fault.bar_ms, recorder.at)
        if self.windows:
            self.windows[-1].next = window.began
        recorder.add(history.Fault(recorder.at, kind))
        told = fault.run(self._stage) or Told()
        window.note = told.note
        window.bar_ms += told.start_ms
        self._stage.wait_until_busy()
        window.ended = recorder.at
        window.load = os.getloadavg()[0]
        self.windows.append(window)
        return window

    def _bars(self) -> Path:
        """The outages, measured and held against their bars."""
        confirmations = Confirmations(merged(self._stage.crew.histories))
        bars = Recorder(BARS)
        for window in self.windows:
            confirmations.measure(window, self._counts)
            name = f"outage by {window.kind}"
            bars.add(history.Bound(window.ended, name, window.outage_ms, window.bar_ms))
        path = self._folder / "bars.jsonl"
        bars.write(path)
        return path

    def _counts(self, producer: str) -> bool:
        """Not strays: theirs hangs for longer. Nor who gives up sooner than an answer may take."""
        strays = tuple(map(str, self._stage.strays))
        return not producer.startswith(strays) and not producer.endswith(IMPATIENT)
