"""The world of a replicated store: the same as any other, but its time is trio's.

The code under test sleeps and waits in trio. When everybody waits, the clock jumps to what comes
next: a deadline of trio's, or what the world has planned itself (a request that arrives, an
answer). The latter is done on the spot, without a task: that saves half the work of a run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

import msgspec
import trio
from trio._core._run_context import GLOBAL_RUN_CONTEXT
from trio.testing import MockClock

from tests.simulation.profile import Profile
from tests.simulation.world import World

LOOK_MS = 25
"""How often somebody looks whether what they wait for has come to pass."""
_EARLY = 1e-3
"""Milliseconds: a deadline must not be found just before its time."""


class RingChances(msgspec.Struct, kw_only=True):
    """How likely each fault of Cassandra, Redis and processes is, per occasion."""

    refused: float = 0.0
    unknown: float = 0.0
    slow: float = 0.0
    lagging: float = 0.0
    read_error: float = 0.0
    change_unknown: float = 0.0
    replica_down: float = 0.0
    no_quorum: float = 0.0
    cache_error: float = 0.0
    cache_slow: float = 0.0
    cache_late: float = 0.0
    cache_flush: float = 0.0
    cache_evict: float = 0.0
    cache_stale: float = 0.0
    cache_outage: float = 0.0
    kill: float = 0.0
    kill_request: float = 0.0
    pause: float = 0.0
    pause_request: float = 0.0
    late_write: float = 0.5
    cache_trouble: float = 0.0
    stop: float = 0.0
    clock_jump: float = 0.0

    @classmethod
    def draw(cls, rng: random.Random) -> RingChances:
        def pick(most: float) -> float:
            return rng.choice((0.0, most / 4, most, most * 2))

        return cls(
            refused=pick(0.01),
            unknown=pick(0.03),
            slow=pick(0.06),
            lagging=pick(0.15),
            read_error=pick(0.02),
            change_unknown=pick(0.15),
            replica_down=pick(0.003),
            no_quorum=pick(0.0006),
            cache_error=pick(0.03),
            cache_slow=pick(0.02),
            cache_late=pick(0.02),
            cache_flush=pick(0.002),
            cache_evict=pick(0.006),
            cache_stale=pick(0.006),
            cache_outage=pick(0.001),
            kill=pick(0.0015),
            kill_request=pick(0.008),
            pause=pick(0.003),
            pause_request=pick(0.012),
            cache_trouble=pick(0.4),
            stop=pick(0.003),
            clock_jump=pick(0.004),
        )


class TrioWorld(World):
    def __init__(self, seed: int, keep: bool = False) -> None:
        self.failure: Exception | None = None
        super().__init__(seed, keep, "cassandra")
        self.profile = msgspec.structs.replace(Profile.draw(seed), quiet=False)
        self.ring_chances = RingChances.draw(self.rng)
        if self.profile.sound:
            self.ring_chances = RingChances()
        self.chances.stale *= 4
        self.chances.failing *= 2

    @property
    def now(self) -> int:
        return int(trio.current_time() * 1000 + _EARLY)

    @now.setter
    def now(self, _: int) -> None:
        """Time is trio's."""

    def is_valid(self, receipt: str) -> bool:
        return receipt in self.checker._ledger.receipts

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for something, or for a rule to be broken; raises what went wrong meanwhile."""
        over = trio.Event()

        def look() -> None:
            if self.failure is not None or self.checker.violated or done():
                over.set()
            else:
                self.after(LOOK_MS, look)

        look()
        await over.wait()
        if self.failure is not None:
            raise self.failure

    def go_on(self, deadline: float) -> bool:
        """Let the next thing happen, if it is planned for no later than a deadline."""
        if not self._heap or self._heap[0][0] > deadline * 1000 + _EARLY:
            return False
        try:
            self.step()
        except Exception as error:  # there is no task to raise it in
            self.failure = self.failure or error
        return True

    @property
    def planned(self) -> float:
        """When the next thing is to happen, in seconds."""
        return self._heap[0][0] / 1000 if self._heap else inf


def make_clock(world: TrioWorld) -> MockClock:
    """Time that stands still while anybody has something to do, and then jumps to what is next."""
    clock = MockClock(autojump_threshold=0)

    def jump() -> None:
        runner = GLOBAL_RUN_CONTEXT.runner
        while not runner.runq and not runner.entry_queue.size():
            deadline = runner.deadlines.next_deadline()
            next_at = min(deadline, world.planned)
            if next_at < inf:
                clock._virtual_base = max(clock._virtual_base, next_at)
            if not world.go_on(deadline):
                return

    clock._autojump = jump  # type: ignore[method-assign]  # trio's own looks at its deadlines only
    clock.current_time = lambda: clock._virtual_base  # type: ignore[method-assign]
    return clock
