"""The simulated world: one clock, one random source, one history, and what can go wrong.

Nothing in a simulation waits for real time or asks the machine for anything, so a seed and a
commit give the same run, to the last event.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import msgspec

from pushlane_history.checker import Checker
from pushlane_history.event import Event, Fault
from tests.simulation.profile import SMALL_STEPS, Profile
from tests.simulation.tables import StoreKind

EPOCH_MS = 1_800_000_000_000
"""The wall clock when a simulation begins."""

_encode = msgspec.msgpack.Encoder().encode


class Chances(msgspec.Struct, kw_only=True):
    """How likely each fault is, per occasion. Drawn anew for each seed, so that runs differ."""

    crash: float = 0.0
    pause: float = 0.0
    late_write: float = 0.5
    unknown: float = 0.0
    refused: float = 0.0
    read_error: float = 0.0
    disconnect: float = 0.0
    cache_error: float = 0.0
    cache_wipe: float = 0.0
    clock_jump: float = 0.0
    drift: float = 0.0
    slow: float = 0.0
    failing: float = 0.0
    stuck: float = 0.0
    stale: float = 0.0

    @classmethod
    def draw(cls, rng: random.Random) -> Chances:
        def pick(most: float) -> float:
            return rng.choice((0.0, most / 4, most, most * 2))

        return cls(
            crash=pick(0.004),
            pause=pick(0.001),
            unknown=pick(0.05),
            refused=pick(0.03),
            read_error=pick(0.05),
            disconnect=pick(0.01),
            cache_error=pick(0.03),
            cache_wipe=pick(0.003),
            clock_jump=pick(0.004),
            drift=pick(0.5),
            slow=pick(0.06),
            failing=pick(0.15),
            stuck=pick(0.04),
            stale=pick(0.04),
        )

    def only_consumers(self) -> Chances:
        """And connections, and the system's clock: neither is a reason to stand still."""
        return Chances(
            slow=self.slow, failing=self.failing, stuck=self.stuck, stale=self.stale,
            disconnect=self.disconnect, clock_jump=self.clock_jump,
        )  # fmt: skip


class World:
    def __init__(self, seed: int, keep: bool = False, store: StoreKind = "memory") -> None:
        self.seed = seed
        self.store = store
        self.rng = random.Random(seed)
        self.chances = Chances.draw(self.rng)
        self.profile = Profile() if store == "cassandra" else Profile.draw(seed)
        if self.profile.quiet:
            self.chances = self.chances.only_consumers()
        self.now = 0
        self.skew = 0
        """How far the wall clock has been set wrong."""
        self.steps = 0
        self.events = 0
        self.calm = False
        """Faults have stopped."""
        self.traffic = True
        """Producers publish."""
        self.serene_since: int | None = 0 if self.profile.quiet else None
        """Since then nothing has failed but consumers, and what had failed is over."""
        self.farthest = 0
        """How far the wall clock ever was set wrong, when nobody who opens can notice it."""
        self.checker = Checker()
        self.history: list[Event] | None = [] if keep else None
        self.digest = 0
        """A checksum over the history: two runs with the same one were the same."""
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._ops = 0

    def step_clock(self, skew: int) -> None:
        self.skew = skew
        if skew in SMALL_STEPS:
            self.farthest = max(self.farthest, abs(skew))

    @property
    def time(self) -> int:
        """What a clock says that is right."""
        return EPOCH_MS + self.now

    @property
    def wall(self) -> int:
        """What the system's clock says."""
        return self.time + self.skew

    def op(self) -> int:
        self._ops += 1
        return self._ops

    def record(self, event: Event) -> None:
        self.events += 1
        self.digest = zlib.crc32(_encode(event), self.digest)
        if self.history is not None:
            self.history.append(event)
        self.checker.feed(event)

    def after(self, delay: int, action: Callable[..., None], *args: Any) -> None:
        self._order += 1
        heappush(self._heap, (self.now + delay, self._order, action, args))

    def step(self) -> bool:
        """Let the next thing happen; False when nothing is left to happen."""
        if not self._heap:
            return False
        at, _, action, args = heappop(self._heap)
        self.now = at
        self.steps += 1
        action(*args)
        return True

    def happens(self, chance: float) -> bool:
        """Whether a fault of this chance strikes now."""
        return not self.calm and chance > 0 and self.rng.random() < chance

    def fault(self, kind: str) -> None:
        self.record(Fault(self.now, kind))

    def latency(self) -> int:
        """A store's or a network's delay: mostly short, sometimes long."""
        draw = self.rng.random()
        if draw < 0.9:
            return int(draw * 6)
        return int(draw * 40) if draw < 0.99 else int(draw * 400)
