"""The clock: monotonic milliseconds, and a wall time that does not step.

Monotonic time is trio's, so that a mock clock moves leases, backoff and time-outs alike. Wall time
is the system's clock as it was when the process began, plus what was measured since. So delays,
retries and TTLs take as long as they should, whatever is done to the system's clock meanwhile, and
only a restart relies on it. Differences of less than a minute are followed slowly.

Where the store has a clock of its own, wall time begins with that one if the two are further apart:
all owners of a shard then stamp by the same time, whoever's clock is wrong. When the system's
clock, or the store's, is more than a minute from wall time, nobody knows who is right: the clock is
*doubted*. Log and metrics say so, and nothing ends for its age that another process stored (see
`Shard`).
"""

import logging
import time
from collections import deque
from collections.abc import Callable

import trio

from pushlane_dispatcher.core.bounds import CLOCK_TOLERANCE_MS
from pushlane_storage.interface import Backend

log = logging.getLogger(__name__)

_EARLY = 0.001
"""Milliseconds: a timer set to a whole millisecond must not find the clock just before it."""

FOLLOW = 100
"""Of the time that passed, the part by which wall time may go faster or slower to catch up."""

ANSWERS = 5
"""How many of the store's answers count: of several nodes, one may have a clock that is wrong."""


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds that passed, also those for which the machine slept."""
    return time.clock_gettime(_BOOT)


class Clock:
    __slots__ = (
        "_answers", "_base", "_elapsed", "_looked_at", "_system", "doubted", "system_ahead",
    )  # fmt: skip

    def __init__(
        self,
        system: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = trio.current_time,
    ) -> None:
        """`system` answers Unix seconds and may step; `elapsed` answers seconds and never does."""
        self._system = system
        self._elapsed = elapsed
        self._looked_at = _ms(elapsed())
        self._base = self.system() - self._looked_at
        self.system_ahead = 0
        """How many milliseconds the system's clock is ahead of `wall`, at the last look."""
        self._answers: deque[int] = deque(maxlen=ANSWERS)
        self.doubted = False

    def now(self) -> int:
        """Monotonic milliseconds."""
        return int(trio.current_time() * 1000 + _EARLY)

    def wall(self) -> int:
        """Unix milliseconds, without steps. Whatever is stored is stamped with these."""
        return int(self._elapsed() * 1000 + _EARLY) + self._base

    def offset(self) -> int:
        """What to add to monotonic time to get wall time."""
        return self.wall() - self.now()

    def system(self) -> int:
        """What the system's clock says: for people, and for what others have signed."""
        return _ms(self._system())

    @property
    def store_ahead(self) -> int:
        """How many milliseconds the store's clock is ahead of `wall`: the median of its answers."""
        return sorted(self._answers)[len(self._answers) // 2] if self._answers else 0

    # Doubts

    def adopt(self) -> None:
        """Begin with the store's time, if that is another one. Nothing is stamped yet."""
        if abs(self.store_ahead) > CLOCK_TOLERANCE_MS:
            self._base += self.store_ahead
            self._answers.clear()
        self.look()

    def look(self) -> None:
        """Compare with the system's clock, and follow it if it is near."""
        at = _ms(self._elapsed())
        self.system_ahead = ahead = self.system() - self.wall()
        if abs(ahead) <= CLOCK_TOLERANCE_MS:
            most = (at - self._looked_at) // FOLLOW
            self._base += max(-most, min(ahead, most))
        self._looked_at = at
        self._judge()

    def compare(self, told: int, asked_at: int) -> None:
        """The store says what time it is; it was asked at this wall time."""
        self._answers.append(told - min(max(told, asked_at), self.wall()))

    def _judge(self) -> None:
        apart = max(abs(self.system_ahead), abs(self.store_ahead))
        if self.doubted == (apart > CLOCK_TOLERANCE_MS):
            return
        self.doubted = not self.doubted
        if not self.doubted:
            log.warning("the clocks agree again: expiry, retention and drops go on")
            return
        log.error(
            "the clocks disagree: by the time that passed, the system's is %+d s off, the store's "
            "%+d s. Expiry of what was stored before, retention and drops pause, and all dedup "
            "marks are kept, until they agree again. Set the clock right; if it was wrong when "
            "this process began, restart it then",
            self.system_ahead // 1000,
            self.store_ahead // 1000,
        )


async def adopt_time(clock: Clock, store: Backend) -> None:
    """Begin with the right time, before anything is served."""
    for _ in range(ANSWERS):
        await _ask(clock, store)
    clock.adopt()


async def compare_clocks(clock: Clock, store: Backend) -> None:
    """Whether all of them still agree: with every opening, and now and then."""
    await _ask(clock, store)
    clock.look()


async def _ask(clock: Clock, store: Backend) -> None:
    asked_at = clock.wall()
    told = await store.time()
    if told is not None:
        clock.compare(told, asked_at)


def _ms(seconds: float) -> int:
    return int(seconds * 1000 + _EARLY)
