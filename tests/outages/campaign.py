"""A campaign: faults under load, in an order that the seed decides; then calm, a drain, a verdict.

Clients are real SDKs in processes of their own, servers real processes. What clients saw is
judged by the checker, with the bars on outages among its events.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

import msgspec

from pushlane_history import event as history
from tests.crash.crew import Crew, Say
from tests.crash.judge import Verdict, judge
from tests.crash.recorder import Recorder, merged
from tests.outages.fault import Fault, Told
from tests.outages.faults import FAULTS
from tests.outages.gaps import Confirmations, Window

PAUSE_S = (0.0, 1.0)
"""Between one fault and the next."""
BARS = 999
"""The number of the history's part with the bars."""


class Plan(msgspec.Struct, frozen=True):
    seed: int
    times: int = 1
    """How often each fault comes."""
    kinds: tuple[str, ...] = tuple(FAULTS)
    plant: str = ""
    minutes: float = 0.0
    """All of them come again until so much time has gone by."""

    def rounds(self, turn: int = 0) -> list[str]:
        rounds = [kind for kind in self.kinds for _ in range(self.times)]
        Random(self.seed + turn).shuffle(rounds)
        return rounds


class Place(Protocol):
    """What a campaign is held on: `Stage`, or the cluster's."""

    crew: Crew

    def begin(self) -> None: ...

    def wait_until_busy(self) -> None:
        """Until all clients are back and at work."""
        ...

    def finish(self) -> None:
        """Calm, a drain, and an end in good order."""
        ...

    def close(self) -> None: ...

    def counts(self, producer: str) -> bool:
        """Whether the bars on outages hold for a producer."""
        ...


S = TypeVar("S", bound=Place)


class Campaign:
    def __init__(
        self, plan: Plan, folder: Path, stage: S, faults: Mapping[str, Fault[S]],
        say: Say = lambda _: None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._folder = folder
        self._stage: Place = stage
        self._run = {kind: partial(fault.run, stage) for kind, fault in faults.items()}
        self._bar_ms = {kind: fault.bar_ms for kind, fault in faults.items()}
        self._say = say
        self._rng = Random(f"campaign {plan.seed}")
        self.windows: list[Window] = []
        self.seconds = 0.0

    def run(self) -> Verdict:
        """What the checker says. The histories stay in the folder; no process is left."""
        began = time.monotonic()
        try:
            self._stage.begin()
            self._rounds(0)
            for turn in count(1):
                if time.monotonic() - began > 60 * self._plan.minutes:
                    break
                self._rounds(turn)
            self._stage.finish()
        finally:
            self._stage.close()
        self.seconds = time.monotonic() - began
        return judge([*self._stage.crew.histories, self._bars()])

    def _rounds(self, turn: int) -> None:
        rounds = self._plan.rounds(turn)
        for number, kind in enumerate(rounds, 1):
            window = self._round(kind)
            took = (window.ended - window.began) / 1000
            self._say(f"{number}/{len(rounds)} {kind}: {took:.1f} s {window.note}")
            time.sleep(self._rng.uniform(*PAUSE_S))

    def _round(self, kind: str) -> Window:
        recorder = self._stage.crew.recorder
        window = Window(kind, self._bar_ms[kind], recorder.at)
        if self.windows:
            self.windows[-1].next = window.began
        recorder.add(history.Fault(recorder.at, kind))
        told = self._run[kind]() or Told()
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
            confirmations.measure(window, self._stage.counts)
            name = f"outage by {window.kind}"
            bars.add(history.Bound(window.ended, name, window.outage_ms, window.bar_ms))
        path = self._folder / "bars.jsonl"
        bars.write(path)
        return path
