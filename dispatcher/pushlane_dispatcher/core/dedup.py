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

from pushlane.wire.errors import PushlaneError, Throttled
from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.core.numbers import Place
from pushlane_dispatcher.core.producers import Producers
from pushlane_storage.message import TRANSFER, Message, dedup_id
from pushlane_storage.segment import DedupMark

Waiters = list[tuple[PublishTicket, int]]
IdKey = tuple[str, str | None]


class Dedup:
    __slots__ = (
        "_bounds", "_own", "_stored_before", "_transfers", "_waiting", "ids", "producers",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, window_ms: int, stored_before: Callable[[int], int]) -> None:
        """`stored_before` says of a lane below which seq everything is stored."""
        self._bounds = bounds
        self._stored_before = stored_before
        self.ids: dict[IdKey, Place] = {}
        self.producers = Producers(bounds, window_ms, stored_before)
        self._own: deque[tuple[int, IdKey, Place]] = deque()
        self._transfers: deque[tuple[int, IdKey, Place]] = deque()
        self._waiting: dict[Place, Waiters] = {}
        """Repeats of what is pending, by the first one's place."""

    @property
    def window_ms(self) -> int:
        return self.producers.window_ms

    @window_ms.setter
    def window_ms(self, window_ms: int) -> None:
        self.producers.window_ms = window_ms

    def is_stored(self, place: Place) -> bool:
        return place.seq < self._stored_before(place.lane)

    # Looking for the first one

    def find(self, message: Message, now: int) -> Place | PushlaneError | None:
        """Where the first message with the same id stands, or why it can't be told."""
        dedup = dedup_id(message)
        if dedup is not None:
            self.expire(now)
            first = self.ids.get((dedup, message.key))
            if first is not None:
                return first
            if len(self.ids) >= self._bounds.dedup_ids:
                return Throttled(
                    "too many dedup ids are remembered", retry_ms=1_000, limit="dedup_ids"
                )
        if message.producer is not None:
            return self.producers.find(message.producer, message.producer_seq, now)
        return None

    def wait(self, first: Place, ticket: PublishTicket, index: int) -> None:
        """This repeat is answered when the first one is decided."""
        self._waiting.setdefault(first, []).append((ticket, index))

    # Entering

    def pending(self, message: Message, lane: int, seq: int, now: int) -> None:
        """A message with an id was accepted; its flush is still to come."""
        dedup = dedup_id(message)
        if dedup is not None:
            self._enter_id(dedup, message.key, Place(lane, seq), now)
        if message.producer is not None:
            self.producers.add(message.producer, message.producer_seq, 1, lane, seq, now)

    def restore(self, mark: DedupMark, lane: int, now: int, wall: int) -> None:
        """Recovery: what was stored `wall - published_at` ago. Newer marks come later."""
        at = now - max(0, wall - mark.published_at)
        if mark.dedup is not None:
            self._enter_id(mark.dedup, mark.key, Place(lane, mark.seq), at)
        if mark.producer is not None:
            run = mark.producer_seq, mark.count, lane, mark.seq
            self.producers.restore_run(mark.producer, *run, at, now)

    def _enter_id(self, dedup: str, key: str | None, place: Place, at: int) -> None:
        id_key = (dedup, key)
        self.ids[id_key] = place
        if dedup.startswith(TRANSFER):
            self._transfers.append((at + TRANSFER_WINDOW_MS, id_key, place))
        else:
            self._own.append((at + self.window_ms, id_key, place))

    # Outcomes

    def stored(self, lane: int, first: int, count: int) -> list[tuple[Place, Waiters]]:
        """These messages are stored. Who waited for that?"""
        if not self._waiting:
            return []
        places = [Place(lane, seq) for seq in range(first, first + count)]
        return [(place, self._waiting.pop(place)) for place in places if place in self._waiting]

    def failed(self, message: Message, lane: int, seq: int) -> Waiters:
        """The message's flush was refused: it was never here. Who waited for it?"""
        dedup = dedup_id(message)
        if dedup is not None:
            assert self.ids[dedup, message.key] == (lane, seq)
            del self.ids[dedup, message.key]
        if message.producer is not None:
            self.producers.remove(message.producer, message.producer_seq)
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
