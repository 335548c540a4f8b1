"""Departures: the one way in which a message goes to another queue.

Dead letters, redrive and overflow all go this way: a durable `leaving` row here (no more
grants; a new owner resumes it), an append there under a dedup id derived from the message's id,
then the settle here. So it is never lost, and stored there once however often it is repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.dedup import TRANSFER
from pushlane_dispatcher.core.effects import Effect, Transfer
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.life import Event, Life
from pushlane_dispatcher.core.log import Log
from pushlane_dispatcher.core.window import Window
from pushlane_storage.message import Dead, Message

REDRIVEN = "redriven"
"""The cause of a departure that is no death: back to where the message came from."""


class Departures:
    __slots__ = (
        "_bodiless", "_bounds", "_effects", "_flying", "_life", "_log", "_order", "_queue",
        "_queue_id",
        "_queue_name", "_retries", "_shard", "_window",
    )  # fmt: skip

    def __init__(
        self,
        bounds: Bounds,
        effects: list[Effect],
        life: Life,
        log: Log,
        window: Window,
        place: tuple[str, str, int],
    ) -> None:
        self._bounds = bounds
        self._effects = effects
        self._life = life
        self._log = log
        self._window = window
        self._queue_name, self._queue_id, self._shard = place
        self._queue: deque[Entry] = deque()
        self._bodiless: set[Entry] = set()
        """Decided, but their bodies are being read again."""
        self._flying = 0
        """Transfers under way, those included that wait for their bodies."""
        self._retries: list[tuple[int, int, Entry]] = []
        self._order = 0

    def leave(self, entry: Entry, cause: str, to: str, now: int, wall: int) -> None:
        """Decide that a message leaves; it goes once that is durable."""
        entry.cause = cause
        entry.to = to
        self._life.move((entry,), Event.LEAVE, now)
        self._log.leave(entry, wall)

    def decided(self, entry: Entry) -> None:
        """The `leaving` row is durable, or was found by a new owner."""
        self._queue.append(entry)

    def fetched(self, entries: Sequence[Entry]) -> set[Entry]:
        """Bodies were read again, or not found. Which were for messages that are to go?"""
        mine = [entry for entry in entries if entry in self._bodiless]
        self._bodiless.difference_update(mine)
        self._flying -= len(mine)
        self._queue.extendleft(entry for entry in reversed(mine) if entry.message is not None)
        return set(mine)

    def next_retry(self) -> int | None:
        return self._retries[0][0] if self._retries else None

    def pump(self, now: int, wall: int) -> None:
        """Send off what can go."""
        while self._retries and self._retries[0][0] <= now:
            self._queue.append(heappop(self._retries)[2])
        while self._queue and self._flying < self._bounds.transfers:
            entry = self._queue.popleft()
            self._flying += 1
            if entry.message is None:
                self._bodiless.add(entry)
                self._window.want(entry)
            else:
                self._effects.append(self._transfer(entry, entry.message, wall))

    def _transfer(self, entry: Entry, message: Message, wall: int) -> Transfer:
        message_id = make_id(self._queue_id, self._shard, entry.lane.number, entry.seq)
        dedup = TRANSFER + message_id
        dead = None
        if entry.cause != REDRIVEN:
            dead = Dead(
                entry.cause, self._queue_name, message_id, entry.attempts, entry.error, wall
            )
        moved = Message(
            message.body,
            wall,
            message.is_data,
            message.key,
            message.headers,
            dedup,
            event_at=message.event_at,
            dead=dead,
        )
        return Transfer(entry, entry.to, moved, dedup)

    def transferred(self, transfer: Transfer, stored: bool, now: int) -> None:
        """The other queue stored it, or could not now: it is full, paused by a fault, gone."""
        self._flying -= 1
        entry = transfer.entry
        if not stored:
            self._order += 1
            retry_at = now + self._bounds.transfer_retry_ms
            heappush(self._retries, (retry_at, self._order, entry))
            if self._window.tight:  # it may wait for long, and others need the room
                self._window.thin(entry)
            return
        self._life.move((entry,), Event.MOVE, now)
        self._window.thin(entry)
        if entry.cause != REDRIVEN:
            entry.cause = f"dead:{entry.cause}"
        self._log.end(entry)
