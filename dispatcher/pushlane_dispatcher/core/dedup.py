"""Idempotent publish: dedup ids within their window, and producers' sequences.

An id is *pending* while its message's flush is under way and *stored* after it. A repeat of a
pending one waits for the first one's outcome: answering earlier would promise what may not come.
Time here is monotonic, so a clock that steps forgets nothing early.
"""

from __future__ import annotations

from collections import deque

from pushlane.wire.errors import Conflict, PushlaneError, Throttled
from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_storage.message import Message
from pushlane_storage.segment import DedupMark

TRANSFER = "pushlane:transfer:"
"""How dedup ids of transfers begin; they are remembered longer than a queue's own window."""

Waiters = list[tuple[PublishTicket, int]]


class First:
    """The first message with some id: where it stands, and who waits for its outcome."""

    __slots__ = ("lane", "seq", "stored", "waiters")

    def __init__(self, lane: int, seq: int, stored: bool) -> None:
        self.lane = lane
        self.seq = seq
        self.stored = stored
        self.waiters: Waiters | None = None

    def wait(self, ticket: PublishTicket, index: int) -> None:
        if self.waiters is None:
            self.waiters = []
        self.waiters.append((ticket, index))


class Producer:
    """One producer's newest sequence numbers."""

    __slots__ = ("firsts", "floor", "last_at")

    def __init__(self, now: int) -> None:
        self.firsts: dict[int, First] = {}
        self.floor = 0
        """The greatest number that was forgotten; what is not above it can't be judged."""
        self.last_at = now


IdKey = tuple[str, str | None]


class Dedup:
    __slots__ = ("_bounds", "_own", "_producers", "_transfers", "ids", "window_ms")

    def __init__(self, bounds: Bounds, window_ms: int) -> None:
        self._bounds = bounds
        self.window_ms = window_ms
        self.ids: dict[IdKey, First] = {}
        self._producers: dict[str, Producer] = {}
        self._own: deque[tuple[int, IdKey, First]] = deque()
        self._transfers: deque[tuple[int, IdKey, First]] = deque()

    @property
    def producers(self) -> int:
        return len(self._producers)

    def find(self, message: Message, now: int) -> First | PushlaneError | None:
        """The first message with the same id, or why it can't be told."""
        if message.dedup is not None:
            self.expire(now)
            first = self.ids.get((message.dedup, message.key))
            if first is not None:
                return first
            if len(self.ids) >= self._bounds.dedup_ids:
                return Throttled("too many dedup ids are remembered", retry_ms=1_000)
        if message.producer is not None:
            return self._find_seq(message.producer, message.producer_seq, now)
        return None

    def _find_seq(self, name: str, seq: int, now: int) -> First | PushlaneError | None:
        producer = self._producers.get(name)
        if producer is None:
            if len(self._producers) >= self._bounds.producers:
                self._forget_producers(now)
                if len(self._producers) >= self._bounds.producers:
                    return Throttled("too many producers are remembered", retry_ms=1_000)
            return None
        first = producer.firsts.get(seq)
        if first is None and seq <= producer.floor:
            return Conflict(f"producer sequence {seq} is too old to tell whether it was stored")
        return first

    def pending(self, message: Message, lane: int, seq: int, now: int) -> None:
        """A message with an id was accepted; its flush is still to come."""
        self._enter(First(lane, seq, False), message.dedup, message.key, message, now)

    def restore(self, mark: DedupMark, lane: int, now: int, wall: int) -> None:
        """Recovery: a stored message that was published `wall - published_at` ago."""
        at = now - max(0, wall - mark.published_at)
        first = First(lane, mark.seq, True)
        self._enter(first, mark.dedup, mark.key, mark, at)

    def _enter(
        self, first: First, dedup: str | None, key: str | None, of: Message | DedupMark, at: int
    ) -> None:
        if dedup is not None:
            id_key = (dedup, key)
            self.ids[id_key] = first
            if dedup.startswith(TRANSFER):
                self._transfers.append((at + TRANSFER_WINDOW_MS, id_key, first))
            else:
                self._own.append((at + self.window_ms, id_key, first))
        if of.producer is not None:
            producer = self._producers.get(of.producer)
            if producer is None:
                producer = self._producers[of.producer] = Producer(at)
            producer.last_at = max(producer.last_at, at)
            producer.firsts[of.producer_seq] = first
            self._trim(producer)

    def _trim(self, producer: Producer) -> None:
        """Keep the highest numbers. Twice as many may stand before they are sorted out."""
        keep = self._bounds.producer_seqs
        if len(producer.firsts) < 2 * keep:
            return
        numbers = sorted(producer.firsts)
        for number in numbers[:-keep]:
            if not producer.firsts[number].stored:
                break  # its flush is under way: numbers from here on wait for the next time
            producer.floor = max(producer.floor, number)
            del producer.firsts[number]

    def stored(self, message: Message) -> Waiters:
        """The message's flush is stored: its id is known from now on. Who waited for that?"""
        waiters: Waiters = []
        for first in self._firsts(message):
            first.stored = True
            waiters += self._release(first)
        return waiters

    def failed(self, message: Message, seq: int) -> Waiters:
        """The message's flush was refused: it was never here. Who waited for it?"""
        waiters: Waiters = []
        for first in self._firsts(message):
            assert first.seq == seq
            assert not first.stored
            waiters += self._release(first)
        self._remove(message)
        return waiters

    def _firsts(self, message: Message) -> list[First]:
        found = []
        if message.dedup is not None:
            found.append(self.ids.get((message.dedup, message.key)))
        if message.producer is not None and message.producer in self._producers:
            found.append(self._producers[message.producer].firsts.get(message.producer_seq))
        return [first for first in found if first is not None]

    def _remove(self, message: Message) -> None:
        if message.dedup is not None:
            self.ids.pop((message.dedup, message.key), None)
        if message.producer is not None:
            self._producers[message.producer].firsts.pop(message.producer_seq, None)

    @staticmethod
    def _release(first: First) -> Waiters:
        waiters, first.waiters = first.waiters, None
        return waiters or []

    def expire(self, now: int) -> None:
        """Forget ids whose window is over; pending ones stay until they are decided."""
        for queue in (self._own, self._transfers):
            while queue and queue[0][0] <= now:
                _, id_key, first = queue[0]
                if self.ids.get(id_key) is first:
                    if not first.stored:
                        break
                    del self.ids[id_key]
                queue.popleft()

    def _forget_producers(self, now: int) -> None:
        horizon = now - self.window_ms
        self._producers = {
            name: producer
            for name, producer in self._producers.items()
            if producer.last_at > horizon
            or not all(first.stored for first in producer.firsts.values())
        }
