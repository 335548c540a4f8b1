"""Idempotent publish: dedup ids within their window, and producers' sequences.

An id is *pending* while its message's flush is under way and *stored* after it. A repeat of a
pending one waits for the first one's outcome: answering earlier would promise what may not come.
Flushes of a lane count in order of seq, so a message is stored when its lane says that everything
up to it is: nothing is kept here for each message.
Time here is monotonic, so a clock that steps forgets nothing early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pushlane.wire.errors import Conflict, PushlaneError, Throttled
from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.core.numbers import Numbers, Place, Run
from pushlane_storage.message import Message
from pushlane_storage.segment import DedupMark

TRANSFER = "pushlane:transfer:"
"""How dedup ids of transfers begin; they are remembered longer than a queue's own window."""

Waiters = list[tuple[PublishTicket, int]]
IdKey = tuple[str, str | None]


class Dedup:
    __slots__ = (
        "_bounds", "_own", "_producers", "_stored_before", "_transfers", "_waiting", "ids",
        "window_ms",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, window_ms: int, stored_before: Callable[[int], int]) -> None:
        """`stored_before` says of a lane below which seq everything is stored."""
        self._bounds = bounds
        self.window_ms = window_ms
        self._stored_before = stored_before
        self.ids: dict[IdKey, Place] = {}
        self._producers: dict[str, Numbers] = {}
        self._own: deque[tuple[int, IdKey, Place]] = deque()
        self._transfers: deque[tuple[int, IdKey, Place]] = deque()
        self._waiting: dict[Place, Waiters] = {}
        """Repeats of what is pending, by the first one's place."""

    @property
    def producers(self) -> int:
        return len(self._producers)

    def is_stored(self, place: Place) -> bool:
        return place.seq < self._stored_before(place.lane)

    # Looking for the first one

    def find(self, message: Message, now: int) -> Place | PushlaneError | None:
        """Where the first message with the same id stands, or why it can't be told."""
        if message.dedup is not None:
            self.expire(now)
            first = self.ids.get((message.dedup, message.key))
            if first is not None:
                return first
            if len(self.ids) >= self._bounds.dedup_ids:
                return Throttled(
                    "too many dedup ids are remembered", retry_ms=1_000, limit="dedup_ids"
                )
        if message.producer is not None:
            return self._find_number(message.producer, message.producer_seq, now)
        return None

    def _find_number(self, name: str, number: int, now: int) -> Place | PushlaneError | None:
        numbers = self._producers.get(name)
        if numbers is None:
            if not self._room_for_producer(now):
                return Throttled(
                    "too many producers are remembered", retry_ms=1_000, limit="producers"
                )
            return None
        first = numbers.find(number)
        if first is None and number <= numbers.floor:
            return Conflict(f"producer sequence {number} is too old to tell whether it was stored")
        return first

    def all_new(self, name: str, low: int, now: int) -> bool:
        """Whether a producer certainly never used the numbers from `low` on."""
        numbers = self._producers.get(name)
        return self._room_for_producer(now) if numbers is None else low >= numbers.end

    def _room_for_producer(self, now: int) -> bool:
        if len(self._producers) >= self._bounds.producers:
            self._forget_producers(now)
        return len(self._producers) < self._bounds.producers

    def wait(self, first: Place, ticket: PublishTicket, index: int) -> None:
        """This repeat is answered when the first one is decided."""
        self._waiting.setdefault(first, []).append((ticket, index))

    # Entering

    def pending(self, message: Message, lane: int, seq: int, now: int) -> None:
        """A message with an id was accepted; its flush is still to come."""
        if message.dedup is not None:
            self._enter_id(message.dedup, message.key, Place(lane, seq), now)
        if message.producer is not None:
            self.pending_run(message.producer, message.producer_seq, 1, lane, seq, now)

    def pending_run(self, name: str, low: int, count: int, lane: int, seq: int, now: int) -> None:
        """Messages that a producer numbered one after the other were accepted."""
        numbers = self._numbers(name, now)
        numbers.add(low, count, lane, seq)
        self._trim(numbers)

    def restore(self, mark: DedupMark, lane: int, now: int, wall: int) -> None:
        """Recovery: what was stored `wall - published_at` ago. Newer marks come later."""
        at = now - max(0, wall - mark.published_at)
        if mark.dedup is not None:
            self._enter_id(mark.dedup, mark.key, Place(lane, mark.seq), at)
        if mark.producer is not None:
            numbers = self._numbers(mark.producer, at)
            for number in range(mark.producer_seq, mark.producer_seq + mark.count):
                numbers.remove(number)
            numbers.add(mark.producer_seq, mark.count, lane, mark.seq)
            self._trim(numbers)

    def restore_floor(self, name: str, number: int) -> None:
        """Recovery: up to this number a producer's messages were not looked at."""
        numbers = self._producers.get(name)
        if numbers is not None:
            numbers.floor = max(numbers.floor, number)

    def restored(self) -> None:
        """Recovery is through. Below its newest numbers a producer may have had others, in buckets
        that were dropped because they were forgotten: so they are forgotten here, too."""
        for numbers in self._producers.values():
            newest = self._newest(numbers)
            if newest is not None:
                numbers.floor = max(numbers.floor, newest - 1)

    def _enter_id(self, dedup: str, key: str | None, place: Place, at: int) -> None:
        id_key = (dedup, key)
        self.ids[id_key] = place
        if dedup.startswith(TRANSFER):
            self._transfers.append((at + TRANSFER_WINDOW_MS, id_key, place))
        else:
            self._own.append((at + self.window_ms, id_key, place))

    def _numbers(self, name: str, at: int) -> Numbers:
        numbers = self._producers.get(name)
        if numbers is None:
            numbers = self._producers[name] = Numbers(at)
        numbers.last_at = max(numbers.last_at, at)
        return numbers

    def _trim(self, numbers: Numbers) -> None:
        """Keep the highest numbers. Twice as many may stand before they are sorted out."""
        keep = self._bounds.producer_seqs
        if numbers.count < 2 * keep:
            return
        while numbers.count > keep:
            lowest = numbers.runs[0]
            stored = self._stored(lowest)
            if not stored:
                return  # its flush is under way: numbers from here on wait for the next time
            numbers.forget_lowest(min(stored, numbers.count - keep))

    # Outcomes

    def stored(self, lane: int, first: int, count: int) -> list[tuple[Place, Waiters]]:
        """These messages are stored. Who waited for that?"""
        if not self._waiting:
            return []
        places = [Place(lane, seq) for seq in range(first, first + count)]
        return [(place, self._waiting.pop(place)) for place in places if place in self._waiting]

    def failed(self, message: Message, lane: int, seq: int) -> Waiters:
        """The message's flush was refused: it was never here. Who waited for it?"""
        if message.dedup is not None:
            assert self.ids[message.dedup, message.key] == (lane, seq)
            del self.ids[message.dedup, message.key]
        if message.producer is not None:
            self._producers[message.producer].remove(message.producer_seq)
        return self._waiting.pop(Place(lane, seq), [])

    # Forgetting

    def expire(self, now: int) -> None:
        """Forget ids whose window is over; pending ones stay until they are decided."""
        for queue in (self._own, self._transfers):
            while queue and queue[0][0] <= now:
                _, id_key, place = queue[0]
                if self.ids.get(id_key) == place:
                    if not self.is_stored(place):
                        break
                    del self.ids[id_key]
                queue.popleft()

    def passed(self, name: str, number: int) -> bool:
        """Whether the next owner forgets a producer's numbers up to this one anyway.

        Our own floor says nothing of that: it may come from a bucket that was not looked at.
        """
        numbers = self._producers.get(name)
        if numbers is None:
            return True
        newest = self._newest(numbers)
        return newest is not None and number < newest

    def _newest(self, numbers: Numbers) -> int | None:
        """Where the newest numbers begin, of those that are stored; None: they are too few."""
        left = self._bounds.producer_seqs
        for run in reversed(numbers.runs):
            stored = self._stored(run)
            if stored >= left:
                return run.low + stored - left
            left -= stored
        return None

    def _stored(self, run: Run) -> int:
        """How many of a run's messages are."""
        return max(0, min(run.count, self._stored_before(run.lane) - run.seq))

    def _forget_producers(self, now: int) -> None:
        horizon = now - self.window_ms
        self._producers = {
            name: numbers
            for name, numbers in self._producers.items()
            if numbers.last_at > horizon or self._has_pending(numbers)
        }

    def _has_pending(self, numbers: Numbers) -> bool:
        return any(
            not self.is_stored(Place(run.lane, run.seq + run.count - 1)) for run in numbers.runs
        )
