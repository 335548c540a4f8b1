"""Departures: the one way in which a message goes to another queue.

Dead letters, redrive and overflow all go this way: a durable `leaving` row here (no more
grants; a new owner resumes it), an append there, then the settle here. The row gives the message
its number, and the other queue takes the numbers of a shard in order, each once: so it is never
lost, and stored there once however often it is repeated.

What goes to one queue stands in line: one batch is under way at a time, and one that is refused
stops those behind it. So order is kept, and a queue that takes nothing now costs one try after
each backoff, however long the line is.

A message that its queue refuses for good leaves the line, durably, before any behind it goes: its
number is not used again. Redriven, it comes back and is ready again, with the reason. A dead letter
can't come back: it is parked, and offered again later, to whatever queue is configured then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice

from pushlane.wire.errors import PushlaneError, Unavailable
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Effect, Transfer
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.life import Event, Life, State
from pushlane_dispatcher.core.log import Log
from pushlane_dispatcher.core.window import Window
from pushlane_storage.message import TRANSFER, Dead, Message
from pushlane_storage.seq import make_seq

REDRIVEN = "redriven"
"""The cause of a departure that is no death: back to where the message came from."""

NOWHERE = ""
"""Where a parked message goes."""


class Unsent(Unavailable):
    """Try again; and nothing was sent, so this try has no outcome that could be unknown."""


class Line:
    """What goes to one queue, in order. It is able to send, held up, or busy."""

    __slots__ = ("bodiless", "deciding", "error", "failures", "retry_at", "since", "to", "waiting")

    def __init__(self, to: str) -> None:
        self.to = to
        self.waiting: deque[Entry] = deque()
        self.bodiless = 0
        """Those whose bodies are being read again; then it goes on."""
        self.deciding = 0
        """Those that were refused for good, until that is durable; then it goes on."""
        self.failures = 0
        """How often in a row the queue took nothing."""
        self.since = 0
        """Monotonic: when it first did."""
        self.retry_at = 0
        self.error: PushlaneError | None = None
        """Why, the last time."""


class Departures:
    __slots__ = (
        "_able", "_bodiless", "_bounds", "_deciding", "_effects", "_first", "_flying", "_held",
        "_life", "_log", "_next", "_order", "_parked", "_queue_id", "_queue_name", "_shard",
        "_source", "_unknown", "_window", "dead_letter", "lines", "parked_until",
    )  # fmt: skip

    def __init__(
        self,
        bounds: Bounds,
        effects: list[Effect],
        life: Life,
        log: Log,
        window: Window,
        place: tuple[str, str, int],
        epoch: int,
    ) -> None:
        self._bounds = bounds
        self._effects = effects
        self._life = life
        self._log = log
        self._window = window
        self._queue_name, self._queue_id, self._shard = place
        self._source = f"{TRANSFER}{self._queue_id}/{self._shard}"
        """The name under which messages are numbered."""
        self.dead_letter: str | None = None
        """Where dead letters go now; None: they end."""
        self.lines: dict[str, Line] = {}
        """By the queue that they lead to; only those with something in them."""
        self._able: deque[Line] = deque()
        self._held: list[tuple[int, int, Line]] = []
        """Lines whose queue takes nothing, by when to try again."""
        self._bodiless: dict[Entry, Line] = {}
        self._deciding: dict[Entry, Line] = {}
        self._flying = 0
        """Messages under way, those included that wait for their bodies."""
        self._parked: dict[Entry, str] = {}
        """Dead letters that no queue takes, and why."""
        self.parked_until: int | None = None
        """Monotonic: when parked messages are offered again."""
        self._order = 0
        self._first = self._next = make_seq(epoch, 1)
        """The next one's number: above all that older owners gave."""
        self._unknown: set[Entry] = set()
        """Redriven, and a try had an unknown outcome: they may be stored there."""

    # Leaving

    def leave(self, entry: Entry, cause: str, to: str, now: int, wall: int) -> None:
        """Decide that a message leaves; it goes once that is durable."""
        entry.cause = cause
        self._life.move((entry,), Event.LEAVE, now)
        self._number(entry, to, wall)

    def _number(self, entry: Entry, to: str, wall: int) -> None:
        entry.to = to
        entry.number = self._next
        self._next += 1
        self._log.leave(entry, wall)

    def decided(self, entry: Entry, now: int) -> None:
        """The `leaving` row is durable, or was found by a new owner."""
        if entry.to == NOWHERE:
            self._park(entry, now)
            return
        line = self.lines.get(entry.to)
        if line is None:
            line = self.lines[entry.to] = Line(entry.to)
            self._able.append(line)
        line.waiting.append(entry)
        if len(line.waiting) > self._bounds.transfers:
            # Its turn may be far off: the window is for those that consumers can get.
            self._window.bodies.thin(entry)

    def fetched(self, entries: Sequence[Entry]) -> set[Entry]:
        """Bodies were read again, or not found. Which were for messages that are to go?"""
        mine = [entry for entry in entries if entry in self._bodiless]
        for entry in mine:  # in their order: a set's order is another one in every run
            line = self._bodiless.pop(entry)
            self._flying -= 1
            line.bodiless -= 1
            if entry.message is None:
                line.waiting.remove(entry)  # it ends here: the store has lost it
            if not line.bodiless:
                self._go_on(line)
        return set(mine)

    def pump(self, now: int, wall: int) -> None:
        """Send off what can go."""
        while self._held and self._held[0][0] <= now:
            self._able.append(heappop(self._held)[2])
        if self.parked_until is not None and self.parked_until <= now:
            self._offer_again(now, wall)
        while self._able and self._flying < self._bounds.transfers:
            self._begin(self._able.popleft(), now, wall)

    def next_retry(self) -> int | None:
        """Monotonic: when `pump` has something to do because time passed."""
        times = [held[0] for held in self._held[:1]]
        if self.parked_until is not None:
            times.append(self.parked_until)
        return min(times, default=None)

    def _begin(self, line: Line, now: int, wall: int) -> None:
        """Send the next batch, or have the bodies read that it needs."""
        count = self._bounds.transfers - self._flying
        if line.failures and not (self._late(line, now) and line.waiting[0].cause == REDRIVEN):
            count = 1  # one is enough to see whether the queue takes them again
        batch = list(islice(line.waiting, count))
        bare = [entry for entry in batch if entry.message is None]
        self._flying += len(bare) or len(batch)
        if not bare:
            messages = [self._message(entry, wall) for entry in batch]
            self._effects.append(Transfer(line.to, batch, messages))
            return
        line.bodiless = len(bare)
        for entry in bare:
            self._bodiless[entry] = line
            self._window.bodies.want(entry)

    def _message(self, entry: Entry, wall: int) -> Message:
        message = entry.message
        assert message is not None
        message_id = make_id(self._queue_id, self._shard, entry.lane.number, entry.seq)
        dead = None
        if entry.cause != REDRIVEN:
            dead = Dead(
                entry.cause, self._queue_name, message_id, entry.attempts, entry.error, wall
            )
        return Message(
            message.body,
            wall,
            message.is_data,
            message.key,
            message.headers,
            TRANSFER + message_id,
            self._source if entry.number else None,
            entry.number,
            event_at=message.event_at,
            dead=dead,
        )

    # Outcomes

    def transferred(
        self, transfer: Transfer, errors: Sequence[PushlaneError | None], now: int, wall: int
    ) -> None:
        """What the other queue said of each: None: it is stored there."""
        line = self.lines[transfer.to]
        self._flying -= len(errors)
        late = self._late(line, now)
        if None in errors:
            line.failures = 0
        kept: list[Entry] = []
        for entry, error in zip(transfer.entries, errors, strict=True):
            line.waiting.popleft()
            if error is not None and not self._for_good(entry, error, late):
                kept.append(entry)
                continue
            self._unknown.discard(entry)
            if error is None:
                self._moved(entry, now)
            else:
                self._refused(line, entry, error, now, wall)
        line.waiting.extendleft(reversed(kept))
        if line.deciding:
            return
        error = next((error for error in errors if error is not None), None)
        if error is None:
            self._go_on(line)
        else:
            self._hold(line, error, now)

    def _for_good(self, entry: Entry, error: PushlaneError, late: bool) -> bool:
        """Whether trying again is of no use; `late`: or has been for too long.

        Then what is redriven comes back, if it is certain that it is not stored there.
        """
        if not error.info.retry:
            return True
        if entry.cause != REDRIVEN:
            return False
        if isinstance(error, Unsent):  # it says nothing of earlier tries, or of older owners'
            return late and entry not in self._unknown and entry.number >= self._first
        if error.info.outcome_unknown:
            self._unknown.add(entry)
            return False
        return late

    def _moved(self, entry: Entry, now: int) -> None:
        self._life.move((entry,), Event.MOVE, now)
        self._window.bodies.thin(entry)
        if entry.cause != REDRIVEN:
            entry.cause = f"dead:{entry.cause}"
        self._log.end(entry)

    def _refused(self, line: Line, entry: Entry, error: PushlaneError, now: int, wall: int) -> None:
        self._deciding[entry] = line
        line.deciding += 1
        line.error = error
        if entry.cause != REDRIVEN:
            self._parked[entry] = f"{entry.to} refuses it: {error}"
            entry.to, entry.number = NOWHERE, 0
            self._log.leave(entry, wall)
            return
        assert entry.message is not None
        entry.key = entry.message.key  # a bare position did not know it
        entry.error = f"{entry.to} refused it: {error}"
        entry.not_before = 0
        self._life.move((entry,), Event.REFUSE, now)
        self._log.void(entry)

    def returned(self, entry: Entry, now: int) -> bool:
        """A void is durable. Whether it is that of a message that was refused: it is back."""
        line = self._deciding.pop(entry, None) if self._deciding else None
        if line is None:
            return False
        entry.cause = entry.to = ""
        self._window.come_back(entry, now)
        self._decided_one(line)
        return True

    def _decided_one(self, line: Line) -> None:
        line.deciding -= 1
        if not line.deciding:
            self._go_on(line)

    def _go_on(self, line: Line) -> None:
        if line.waiting:
            self._able.append(line)
        else:
            del self.lines[line.to]

    def _hold(self, line: Line, error: PushlaneError, now: int) -> None:
        """Its queue takes nothing now: try again later, and longer from time to time."""
        bounds = self._bounds
        if not line.failures:
            line.since = now
        line.failures += 1
        line.error = error
        doubled = bounds.transfer_retry_ms << min(line.failures - 1, 30)
        line.retry_at = now + min(doubled, bounds.transfer_retry_max_ms)
        self._order += 1
        heappush(self._held, (line.retry_at, self._order, line))
        if self._window.bodies.tight:  # it may be for long, and others need the room
            for entry in islice(line.waiting, bounds.transfers):
                self._window.bodies.thin(entry)

    def _late(self, line: Line, now: int) -> bool:
        return line.failures > 0 and now - line.since >= self._bounds.redrive_wait_ms

    # Parking

    def _park(self, entry: Entry, now: int) -> None:
        self._window.bodies.thin(entry)
        line = self._deciding.pop(entry, None)
        if line is not None:
            if self.parked_until is None:
                self.parked_until = now + self._bounds.parked_ms
            self._decided_one(line)
        else:  # a new owner sees at once whether it is taken now
            self._parked[entry] = "no queue took it"
            self.parked_until = now

    def configure(self, dead_letter: str | None) -> None:
        if dead_letter != self.dead_letter and self.parked_until is not None:
            self.parked_until = 0
        self.dead_letter = dead_letter

    def _offer_again(self, now: int, wall: int) -> None:
        """Send parked messages to where dead letters go now."""
        self.parked_until = None
        offered = [entry for entry in self._parked if entry not in self._deciding]
        for entry in offered:
            del self._parked[entry]
            if self.dead_letter is None:
                entry.cause = f"dead:{entry.cause}"
                self._life.move((entry,), Event.END, now)
                self._log.end(entry)
            else:
                self._number(entry, self.dead_letter, wall)

    # Looking

    @property
    def stuck(self) -> int:
        """Messages that wait because no queue takes them."""
        held = sum(len(line.waiting) for line in self.lines.values() if line.failures)
        return held + len(self._parked)

    @property
    def room(self) -> int:
        """How many more may be on their way out at once."""
        return self._bounds.leaving - self._life.leaving()

    @property
    def held_up(self) -> bool:
        """Where dead letters go, nothing is taken now."""
        line = self.lines.get(self.dead_letter or NOWHERE)
        return line is not None and line.failures > 0

    @property
    def flowing(self) -> int:
        """Messages that are as good as gone: where dead letters go, they are taken."""
        return 0 if self.held_up else self._life.counts[State.LEAVING] - len(self._parked)

    def explain(self, entry: Entry) -> tuple[str, int | None]:
        """Why a message is still here, and until when (monotonic)."""
        if entry in self._parked:
            return f"it can't leave: {self._parked[entry]}", self.parked_until
        line = self.lines.get(entry.to)
        if line is not None and line.failures:
            return f"it waits for {entry.to}: {line.error}", line.retry_at
        return f"it leaves: {entry.cause}", None
