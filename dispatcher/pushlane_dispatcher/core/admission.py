"""Admission: how stored messages come into memory, each to its place.

Most are ready at once. One that must wait may find no place, and then stays in the store: a delayed
one that is late, a blocked one of which its key has enough (see `Delays`, `Keys`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pushlane_dispatcher.core.bodies import Bodies
from pushlane_dispatcher.core.delays import Delays
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.expiry import Expiry
from pushlane_dispatcher.core.keys import Keys
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import WAITING, Life, State
from pushlane_dispatcher.core.seeking import Seeking
from pushlane_storage.message import MESSAGE_OVERHEAD, Message, size_of
from pushlane_storage.settlement import Void


class Admission:
    __slots__ = ("_bodies", "_delays", "_expiry", "_keys", "_life", "_seeking")

    def __init__(
        self, life: Life, bodies: Bodies, delays: Delays, expiry: Expiry, keys: Keys,
        seeking: Seeking,
    ) -> None:  # fmt: skip
        self._life = life
        self._bodies = bodies
        self._delays = delays
        self._expiry = expiry
        self._keys = keys
        self._seeking = seeking

    def plain(self, lane: Lane, first: int, messages: list[Message], size: int, now: int) -> None:
        """Enter stored messages that are all ready. `mixed` enters what needs a closer look."""
        lane.cursor = first + len(messages)
        ready = State.READY
        seqs = [*range(first, lane.cursor)]
        entries = [
            Entry(seq, lane, message, MESSAGE_OVERHEAD + len(message.body), ready, now)
            for seq, message in zip(seqs, messages, strict=True)
        ]
        lane.entries.update(zip(seqs, entries, strict=True))
        lane.fresh.extend(entries)
        self._bodies.count(len(entries), size)
        self._life.born(ready, len(entries))

    def page(
        self,
        lane: Lane,
        first: int,
        messages: list[Message],
        bucket: LiveBucket,
        now: int,
        wall: int,
    ) -> None:
        """Most of a backlog was never touched and is plain: then there is nothing to look up."""
        last = first + len(messages) - 1
        size = None
        if (
            not bucket.state.voids
            and next(bucket.state.settled.gaps(first, last), None) == (first, last)
            and lane.entries.keys().isdisjoint(range(first, last + 1))
        ):
            size = _plain_size(messages)
        if size is None:
            self.mixed(lane, first, messages, bucket, True, now, wall)
        else:
            self.plain(lane, first, messages, size, now)

    def mixed(
        self,
        lane: Lane,
        first: int,
        messages: Sequence[Message],
        bucket: LiveBucket,
        past: bool,
        now: int,
        wall: int,
    ) -> None:
        """Enter stored messages; `past`: some of them may have one."""
        lane.cursor = first + len(messages)
        entries, fresh = lane.entries, lane.fresh
        before, total, count = len(fresh), 0, 0
        for seq, message in enumerate(messages, first):
            void = None
            if past:
                if seq in entries or seq in bucket.state.settled:
                    continue
                void = bucket.state.voids.get(seq)
            size = MESSAGE_OVERHEAD + len(message.body)
            if message.headers is not None:
                size = size_of(message)
            entry = Entry(seq, lane, message, size, State.READY, now)
            if (
                message.key is None
                and not message.not_before
                and not message.expires_at
                and void is None
            ):
                fresh.append(entry)
            elif not self._place(entry, message, void, bucket, wall):
                continue
            entries[seq] = entry
            total += size
            count += 1
        self._bodies.count(count, total)
        self._life.counts[State.READY] += len(fresh) - before
        if len(fresh) - before != count:
            self._thin_waiting(lane, first, lane.cursor)
            self._delays.trim()

    def _place(
        self, entry: Entry, message: Message, void: Void | None, bucket: LiveBucket, wall: int
    ) -> bool:
        """Find a message's place; False when it stays in the store for now."""
        _remember(entry, message, void)
        later = void is None and entry.not_before > wall
        if later and self._delays.leave_to_index(bucket, entry.not_before, wall):
            return False
        state = State.READY
        if entry.key is not None:
            claimed = self._keys.claim(entry.key, entry)
            if claimed is None:
                bucket.passed += 1
                return False
            state = claimed
        if state is State.READY and void is None and entry.not_before <= wall:
            self._expiry.watch(entry)
            entry.lane.fresh.append(entry)
        else:
            self._put(entry, state, void, wall)
        return True

    def _put(self, entry: Entry, state: State, void: Void | None, wall: int) -> None:
        """Out of turn: behind its key, for a time, or back among the ready ones."""
        if state is State.READY and entry.not_before > wall:
            state = State.DELAYED if void is None else State.RETRYING
            self._delays.add(entry)
        elif state is State.READY:
            self._expiry.watch(entry)
            entry.lane.put_back(entry)
        entry.state = state
        self._life.born(state)

    def sought(
        self,
        lane: Lane,
        first: int,
        messages: Sequence[Message],
        bucket: LiveBucket,
        start: int,
        now: int,
        wall: int,
    ) -> None:
        """Enter those of these messages whose keys are looking for them."""
        for seq, message in enumerate(messages, first):
            if message.key is None or seq in lane.entries or seq in bucket.state.settled:
                continue
            entry = Entry(seq, lane, message, size_of(message), State.READY, now)
            state = self._seeking.claim(message.key, entry, start)
            if state is not None:
                void = bucket.state.voids.get(seq)
                _remember(entry, message, void)
                self.recall(bucket)
                lane.entries[seq] = entry
                self._bodies.count(1, entry.size)
                self._put(entry, state, void, wall)
        self._thin_waiting(lane, first, first + len(messages))

    def _thin_waiting(self, lane: Lane, first: int, end: int) -> None:
        if self._bodies.tight:
            for seq in range(first, end):
                entry = lane.entries.get(seq)
                if entry is not None and entry.state in WAITING:
                    self._bodies.thin(entry)

    def recall(self, bucket: LiveBucket, far: bool = False) -> None:
        """A message of which memory knew nothing but that it is there comes in.

        Which kind it is of is not always known. When all have come in, the counts are right again.
        """
        if bucket.far and (far or not bucket.passed):
            bucket.far -= 1
            self._delays.far -= 1
        else:
            bucket.passed -= 1
            self._keys.passed -= 1


def _remember(entry: Entry, message: Message, void: Void | None) -> None:
    """What a message and its past say of how it goes on."""
    entry.key = message.key
    entry.expires_at = message.expires_at
    entry.not_before = message.not_before
    if void is not None:
        entry.attempts, entry.deliveries = void.attempts, void.deliveries
        entry.not_before, entry.error, entry.fence = void.not_before, void.error, void.fence


def _plain_size(messages: list[Message]) -> int | None:
    """The size of messages that need no closer look; None when one of them does."""
    size = MESSAGE_OVERHEAD * len(messages)
    for message in messages:
        if (
            message.key is not None
            or message.headers is not None
            or message.not_before
            or message.expires_at
        ):
            return None
        size += len(message.body)
    return size
