"""The messages of one queue on their way out, in order, and their sequence numbers.

A message gets its number when it is first sent, so a call that is given up before leaves no gap.
From then on it keeps it: `unanswered` holds it in order of number until its fate is known, and
what has to be sent again goes first. So a queue's messages are sent in the order of the calls, and
repeated in that order. A repeat that the server asked for (throttled, unavailable) blocks its
queue until it is due: only what was under way already can overtake it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pushlane.wire.limits import MAX_INT

from .publication import Publication


class Outbox:
    """One queue's outgoing messages."""

    __slots__ = ("blocked_until", "next_seq", "queue", "repeats", "unanswered", "waiting")

    def __init__(self, queue: str, next_seq: int) -> None:
        self.queue = queue
        self.next_seq = next_seq
        self.waiting: deque[Publication] = deque()
        """Never sent, without a number."""
        self.repeats: deque[Publication] = deque()
        """Sent before and to be sent again, in order of number; all of them in `unanswered` too."""
        self.unanswered: dict[int, Publication] = {}
        """Sent at least once, by number, in order."""
        self.blocked_until = 0.0

    @property
    def is_idle(self) -> bool:
        """Nothing to send and nothing to wait for."""
        return not (self.waiting or self.unanswered)

    @property
    def has_more(self) -> bool:
        return bool(self.waiting or self.repeats)

    def take(self, most: int, room: int, window: int) -> tuple[list[Publication], int, int]:
        """The next messages to send, their cost, and how many of them are new."""
        batch: list[Publication] = []
        cost = fresh = 0
        limit = next(iter(self.unanswered), self.next_seq) + window
        while len(batch) < most:
            is_repeat = bool(self.repeats)
            if is_repeat:
                publication = self.repeats[0]
            elif self.waiting and self.next_seq < limit:
                publication = self.waiting[0]
            else:
                break
            if cost + publication.cost > room:
                break
            if is_repeat:
                self.repeats.popleft()
                if publication.is_over:
                    continue
                publication.repeated = True
            else:
                self.waiting.popleft()
                self._number(publication)
                fresh += 1
            cost += publication.cost
            batch.append(publication)
        return batch, cost, fresh

    def _number(self, publication: Publication) -> None:
        assert self.next_seq <= MAX_INT, self.queue
        publication.message.seq = self.next_seq
        self.unanswered[self.next_seq] = publication
        self.next_seq += 1

    def finish(self, publication: Publication) -> None:
        """Its fate is known."""
        assert not publication.is_over
        publication.is_over = True
        if publication.message.seq is not None:
            del self.unanswered[publication.message.seq]

    def repeat(self, publications: Iterable[Publication]) -> None:
        """Send these again, each at its place."""
        again = [*self.repeats, *publications]
        again.sort(key=lambda publication: publication.message.seq or 0)
        self.repeats = deque(again)

    def repeat_all(self) -> None:
        """The connection is gone: everything that was sent and not answered goes again."""
        self.repeats = deque(self.unanswered.values())
