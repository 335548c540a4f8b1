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
        "endings",
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
        self.endings: dict[str, int] = {}
        """How many messages ended without an ack, by cause."""

    def give_back(self, entry: Entry, now: int, wall: int) -> None:
        """Returned in good order, or taken back before it was started: nobody failed.

        An attempt that was started counts, nothing else does.
        """
        self._retry(entry, 0, now, wall)

    def nack(
        self, entry: Entry, delay_ms: int | None, error: str | None, now: int, wall: int
    ) -> None:
        entry.error = error
        if delay_ms is None and entry.state is State.LEASED:
            delay_ms = self._backoff(entry)
        self._retry(entry, delay_ms or 0, now, wall)

    def fail(self, entry: Entry, error: str, now: int, wall: int) -> None:
        """Its consumer began with it and fell silent: its attempt counts already."""
        entry.error = error
        self._retry(entry, self._backoff(entry), now, wall)

    def break_off(self, entry: Entry, now: int, wall: int) -> None:
        """Its client's connection broke before it was started. Perhaps it killed its consumer, so
        that counts: else it could go round for ever.
        """
        entry.deliveries += 1
        entry.error = "connection lost before it was started"
        if entry.deliveries >= self.config.max_deliveries and self.dead_letter is not None:
            self._leave(entry, "max_deliveries", now, wall)
        else:
            self._retry(entry, self._backoff(entry), now, wall)

    def reject(self, entry: Entry, error: str | None, now: int, wall: int) -> None:
        entry.error = error
        self.kill(entry, "rejected", now, wall)

    def expire(self, entry: Entry, now: int, wall: int) -> None:
        self.kill(entry, "expired", now, wall)

    def kill(self, entry: Entry, cause: str, now: int, wall: int, reason: str = "") -> None:
        """To the dead letters; where there are none, its end. `reason`: what it is counted as."""
        if self.dead_letter is not None:
            self._leave(entry, cause, now, wall, reason)
        else:
            self.end(entry, cause if cause in ENDS else f"dead:{cause}", now, reason)

    def end(self, entry: Entry, cause: str, now: int, reason: str = "") -> None:
        """It ends here, without a transfer."""
        self.count(reason or cause.removeprefix("dead:"))
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
            if self._window.bodies.tight:
                self._window.bodies.thin(entry)
            self._window.delays.add(entry)
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

    def count(self, cause: str, number: int = 1) -> None:
        self.endings[cause] = self.endings.get(cause, 0) + number

    def _leave(self, entry: Entry, cause: str, now: int, wall: int, reason: str = "") -> None:
        assert self.dead_letter is not None
        self.count(reason or cause)
        entry.holder = None
        self._departures.leave(entry, cause, self.dead_letter, now, wall)
