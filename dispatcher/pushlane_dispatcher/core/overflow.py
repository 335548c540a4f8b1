"""Overflow: what happens when a queue is full.

`reject` refuses the publish. `drop_oldest` and `dead_letter` take it and make room by the oldest
ready messages. Those may stand in the store, or be about to be stored; then room is owed, and made
as they come in. What is in flight, or waits for its time or its key, is never taken away: a queue
full of that refuses, too.

The limits are the queue's; each shard has a share of them (`pushlane_dispatcher.shard.shares`).
"""

from __future__ import annotations

from typing import NamedTuple

from pushlane.wire.errors import PushlaneError, QueueFull
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.departures import Departures
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.journal import Journal
from pushlane_dispatcher.core.lane import LiveBucket
from pushlane_dispatcher.core.life import HELD, Life, State
from pushlane_dispatcher.core.verdicts import Verdicts
from pushlane_dispatcher.core.window import Window

_LEAVING = int(State.LEAVING)
"""Asked for with every publish, and names of an enumeration are looked up slowly."""


class Use(NamedTuple):
    """What counts against the limits."""

    messages: int
    bytes: int
    held_messages: int
    """What of it can't be let go."""
    held_bytes: int


class Overflow:
    __slots__ = (
        "_bounds", "_departures", "_journal", "_life", "_verdicts", "_window", "allotted", "bytes",
        "limit", "limit_bytes", "messages", "owing",
    )  # fmt: skip

    def __init__(
        self,
        bounds: Bounds,
        life: Life,
        journal: Journal,
        window: Window,
        verdicts: Verdicts,
        departures: Departures,
    ) -> None:
        self._bounds = bounds
        self._departures = departures
        self._life = life
        self._journal = journal
        self._window = window
        self._verdicts = verdicts
        self.messages = 0
        """Stored and not settled."""
        self.bytes = 0
        """The same in bytes."""
        self.limit = 0
        """This shard's share of `max_messages` …"""
        self.limit_bytes: int | None = None
        """… and of `max_bytes`."""
        self.allotted = False
        """These are its share, not a guess."""
        self.owing = False
        """More was taken than there is room for: the oldest are to go."""

    def recount(self, bucket: LiveBucket) -> None:
        """A bucket has other messages, or other ends, than before."""
        before, now = bucket.noted, bucket.unsettled()
        self.messages += now[0] - before[0]
        self.bytes += now[1] - before[1]
        bucket.noted = now

    def configured(self) -> None:
        """Until it gets its share, a shard has an equal part of the queue's limits.

        Its share may be greater, as other shards may hold less: until then nothing is let go. Only
        in a queue of one shard, whose limits never grow, the part is the share.
        """
        config = self._verdicts.config
        self.allotted = config.shards == 1 and not config.auto_expand
        self.limit = config.max_messages // config.shards
        self.limit_bytes = None if config.max_bytes is None else config.max_bytes // config.shards

    def allot(self, messages: int, size: int | None, now: int, wall: int) -> bool:
        """From now on this is its share. When it holds more, the oldest go, if they may.

        Whether anything changed by it: near its limit a queue deals with every publish.
        """
        same = self.allotted and (self.limit, self.limit_bytes) == (messages, size)
        if same and self.owing:
            return False  # the oldest go already, as they come to hand
        self.limit, self.limit_bytes = messages, size
        self.allotted = True
        self.owing = self._verdicts.config.overflow != "reject" and not self.has_room(0, 0)
        if self.owing:
            self.pay(now, wall)
            return True
        return False

    @property
    def used(self) -> int:
        """Messages that count: stored or about to be, and not about to go."""
        return self.messages + self._journal.pending_messages - self._going

    @property
    def used_bytes(self) -> int:
        """Bytes that count. Messages that are about to go are taken to be of average size."""
        return self.bytes - self._average(self._going) + self._journal.pending_size

    @property
    def held(self) -> int:
        """Messages that nobody may take away to make room."""
        held = self._window.delays.far + self._window.keys.passed + self._stuck
        return held + sum(self._life.counts[state] for state in HELD)

    @property
    def use(self) -> Use:
        held = self.held
        return Use(self.used, self.used_bytes, held, self._average(held))

    def _average(self, count: int) -> int:
        """What so many stored messages take, by their average."""
        return self.bytes * count // self.messages if self.bytes else 0

    @property
    def _going(self) -> int:
        """What is about to go. What leaves counts until it is gone, but where the policy is to
        make room that way: then it does as long as the other queue takes it."""
        going = self._life.going()
        leaving = self._life.counts[_LEAVING]
        return going + leaving - self._stuck if leaving else going

    @property
    def _stuck(self) -> int:
        """Those that leave and count."""
        leaving = self._life.counts[_LEAVING]
        if leaving and self._verdicts.config.overflow == "dead_letter":
            leaving -= self._departures.flowing
        return leaving

    def has_room(self, count: int, size: int) -> bool:
        if self.limit_bytes is not None and self.used_bytes + size > self.limit_bytes:
            return False
        used = self.messages + self._journal.pending_messages + count
        return used <= self.limit or used - self._going <= self.limit

    def make_room(self, count: int, size: int, now: int, wall: int) -> PushlaneError | None:
        """Room for messages of this size in all, or why there is none; then nothing changes."""
        if self.has_room(count, size):
            return None
        full = self._full(count, size)
        if full is None:
            self.owing = True
            self.pay(now, wall, count, size)
        return full

    def pay(self, now: int, wall: int, count: int = 0, size: int = 0) -> None:
        """Let the oldest go until there is room; what is not at hand goes later."""
        if not self.allotted:
            return
        policy = self._verdicts.config.overflow
        for _ in range(self._bounds.dropped_messages):
            if policy == "reject" or self.has_room(count, size):
                self.owing = False
                return
            victim = self._victim(policy)
            if victim is None:
                return
            if policy == "drop_oldest":
                self._verdicts.end(victim, "dropped", now)
            else:
                self._verdicts.kill(victim, "overflow", now, wall)

    def _victim(self, policy: str) -> Entry | None:
        """Take out the message that goes next; None when none can go now."""
        leaving = self._life.counts[_LEAVING]
        enough = leaving >= self._bounds.leaving or self._departures.held_up
        if policy == "dead_letter" and enough:
            return None
        entry = self._window.oldest_ready()
        if entry is not None:
            entry.lane.take(1)
        return entry

    def _full(self, count: int, size: int) -> PushlaneError | None:
        """Why these messages can't be taken, whatever may go; None: they can."""
        policy = self._verdicts.config.overflow
        held, owed = self.used, self.used + count - self.limit
        if policy != "reject":
            held = self.held
        if self.limit_bytes is not None:
            taken = self.used_bytes if policy == "reject" else self._average(held)
            if taken + size > self.limit_bytes:
                return _queue_full("max_bytes")
        if held + count > self.limit:
            return _queue_full("max_messages")
        if policy == "dead_letter":
            leaving = self._life.counts[_LEAVING]
            if leaving + owed > self._bounds.leaving or self._departures.held_up:
                return _queue_full("leaving")
        return None


def _queue_full(limit: str) -> QueueFull:
    return QueueFull("the queue is full", retry_ms=1_000, limit=limit)
