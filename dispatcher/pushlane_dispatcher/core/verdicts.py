"""Verdicts: what becomes of a message whose grant ended without an ack.

It is retried after a backoff, given back at once, or leaves for the dead letters. Whatever the
verdict, it is durable before the message can be granted again.
"""

from __future__ import annotations

from collections.abc import Callable

from pushlane_dispatcher.core.backoff import full_jitter
from pushlane_dispatcher.core.departures import Departures
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.life import ENDS, Event, Life, State
from pushlane_dispatcher.core.log import Log
from pushlane_dispatcher.core.meter import Meter
from pushlane_dispatcher.core.window import Window
from pushlane_storage.queue import QueueConfig


class Verdicts:
    __slots__ = (
        "_chance", "_departures", "_life", "_log", "_meter", "_window", "config", "dead_letter",
    )  # fmt: skip

    def __init__(
        self,
        life: Life,
        log: Log,
        window: Window,
        departures: Departures,
        chance: Callable[[], float],
        meter: Meter | None = None,
    ) -> None:
        self._life = life
        self._log = log
        self._window = window
        self._departures = departures
        self._chance = chance
        self._meter = meter
        self.config = QueueConfig()
        self.dead_letter: str | None = None

    def give_back(self, entry: Entry, now: int, wall: int) -> None:
        """Returned in good order: an attempt that was started counts, nothing else does."""
        self._retry(entry, 0, now, wall)

    def nack(
        self, entry: Entry, delay_ms: int | None, error: str | None, now: int, wall: int
    ) -> None:
        entry.error = error
        if delay_ms is None and entry.state is State.LEASED:
            delay_ms = self._backoff(entry)
        self._retry(entry, delay_ms or 0, now, wall)

    def fail(self, entry: Entry, error: str, now: int, wall: int, *, wait: bool = True) -> None:
        """Its consumer fell silent: lease or reservation over, connection lost, taken away."""
        entry.deliveries += 1
        entry.error = error
        if entry.deliveries >= self.config.max_deliveries and self.dead_letter is not None:
            self._leave(entry, "max_deliveries", now, wall)
        else:
            self._retry(entry, self._backoff(entry) if wait else 0, now, wall)

    def reject(self, entry: Entry, error: str | None, now: int, wall: int) -> None:
        entry.error = error
        self.kill(entry, "rejected", now, wall)

    def expire(self, entry: Entry, now: int, wall: int) -> None:
        self.kill(entry, "expired", now, wall)

    def kill(self, entry: Entry, cause: str, now: int, wall: int) -> None:
        """To the dead letters; where there are none, its end."""
        if self.dead_letter is not None:
            self._leave(entry, cause, now, wall)
        else:
            self.end(entry, cause if cause in ENDS else f"dead:{cause}", now)

    def end(self, entry: Entry, cause: str, now: int) -> None:
        """It ends here, without a transfer."""
        entry.cause = cause
        entry.holder = None
        self._life.move((entry,), Event.END, now)
        self._log.end(entry)

    def damaged(self, entry: Entry, now: int) -> None:
        """The store has lost its body: nothing can be delivered or moved."""
        self.end(entry, "dead:damaged", now)

    def voided(self, entry: Entry, now: int, wall: int) -> None:
        """The void is durable: it may go out again, at once or when its backoff is over."""
        if entry.not_before > wall:
            self._life.move((entry,), Event.POSTPONE, now)
            if self._window.tight:
                self._window.thin(entry)
            self._window.delay(entry)
        else:
            self._life.move((entry,), Event.REQUEUE, now)
            self._window.ready(entry)

    def jitter(self, failures: int, base_ms: int, max_ms: int) -> int:
        return full_jitter(failures, base_ms, max_ms, self._chance())

    def _backoff(self, entry: Entry) -> int:
        config = self.config
        return self.jitter(entry.attempts, config.backoff_base_ms, config.backoff_max_ms)

    def _retry(self, entry: Entry, delay_ms: int, now: int, wall: int) -> None:
        started = entry.state is State.LEASED
        exhausted = started and entry.attempts >= self.config.max_attempts
        if exhausted and self.dead_letter is not None:
            self._leave(entry, "max_attempts", now, wall)
            return
        if started and self._meter is not None:
            self._meter.retried()
        entry.holder = None
        entry.not_before = wall + delay_ms if delay_ms else 0
        self._life.move((entry,), Event.RETURN, now)
        self._log.void(entry)

    def _leave(self, entry: Entry, cause: str, now: int, wall: int) -> None:
        assert self.dead_letter is not None
        entry.holder = None
        self._departures.leave(entry, cause, self.dead_letter, now, wall)
