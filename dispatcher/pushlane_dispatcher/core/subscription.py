"""A subscription: who may hold how many messages of this shard, and which it holds.

Two semaphores decide what it may get. *Credit*: a grant takes a permit, a settle or return gives
it back. *Backoff*: the permit of a delivery that failed comes back only after the consumer's own
backoff, so that a failing consumer slows itself down; success resets it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.places import Claims
from pushlane_storage.ranges import Ranges

FIRST = 1
"""The generation of who attached."""
ANYBODY = 0
"""The generation of those that nobody holds: of requests, and of what only the lease cache knew,
until its session resumes. Whoever has a receipt may settle."""
REQUEST = "http:"
"""How subscriptions of requests are called, which have no session. No session is called so."""


class Subscription:
    __slots__ = (
        "ack_none", "adopt_until", "away_until", "brief", "broken", "check_at", "claims", "client",
        "closed", "credit", "explicit", "failures", "generation", "held", "lazy", "lease_ms",
        "loose", "next_n", "penalties", "prefix", "session", "settled", "shared", "stamp", "taking",
        "term", "token", "turn", "untold",
    )  # fmt: skip

    def __init__(
        self,
        prefix: str,
        session: str,
        credit: int,
        lease_ms: int,
        *,
        explicit: bool,
        ack_none: bool,
        shared: bool = False,
        token: Any = None,
        client: str = "",
        claims: Claims = (),
    ) -> None:
        self.prefix = prefix
        """The P of its receipts P.N: unguessable, made by the caller."""
        self.session = session
        self.brief = session.startswith(REQUEST)
        """It is a request's: it is told whenever nothing is left for it here, and ends with its
        last lease."""
        self.client = client
        """What its client calls itself."""
        self.claims = claims
        """Of whose share of all subscriptions it is one."""
        self.credit = credit
        self.lease_ms = lease_ms
        self.explicit = explicit
        self.ack_none = ack_none
        self.shared = shared
        """Its credit is a share of one for several shards: it is told when it is missed here."""
        self.token = token
        """The caller's own handle."""
        self.generation = ANYBODY if self.brief else FIRST
        """One more with every detach and resume. It is told to who attached or resumed, and comes
        back with every settle: one with another number no longer counts."""
        self.held: dict[int, Entry] = {}
        """Receipt number → what it stands for."""
        self.untold = 0
        """Messages that it has lost, of which its client was not told yet."""
        self.next_n = 1
        self.settled = Ranges()
        """Receipt numbers that were acked, or sent to the dead letters on request …"""
        self.loose = Ranges()
        """… and which of them by somebody else, while its session was not back: to its client they
        are lost."""
        self.failures = 0
        self.penalties: list[tuple[int, int]] = []
        """(when, permits): a heap of permits in backoff, in monotonic time."""
        self.taking = 0
        """Messages of `ack: "none"` whose settlement is being written."""
        self.closed = False
        """Unsubscribed: gets nothing more, but may settle what it has leased."""
        self.away_until: int | None = None
        """Its session is not there and may resume until then."""
        self.term = 0
        """Of its session, as far as this owner knows: what has a lesser one is refused."""
        self.broken = False
        """… because its client's connection broke: its owner's end is no fault of a message."""
        self.lazy = False
        """It let a reservation lie, and has not started or settled anything since."""
        self.adopt_until: int | None = None
        """Only the lease cache knew it: until then what it reserved waits for its session."""
        self.check_at: int | None = None
        """Monotonic: the next time that something of it may run out."""
        self.stamp = 0
        self.turn = 0

    @property
    def waiting(self) -> int:
        """Permits in backoff."""
        return sum(permits for _, permits in self.penalties)

    def free(self, bounds: Bounds) -> int:
        """How many messages it may get now."""
        if self.closed or self.away_until is not None:
            return 0
        if self.ack_none:
            return bounds.taken - self.taking if self.credit else 0
        free = self.credit - len(self.held)
        return free - self.waiting if self.penalties else free

    def penalize(self, until: int, permits: int) -> None:
        heappush(self.penalties, (until, permits))

    def pardon(self, now: int) -> bool:
        """Permits whose backoff is over are usable again. Whether there were any."""
        before = len(self.penalties)
        while self.penalties and self.penalties[0][0] <= now:
            heappop(self.penalties)
        return len(self.penalties) < before

    def remember(self, low: int, high: int, bounds: Bounds, *, loose: bool = False) -> None:
        """These receipts were settled: a repeat is a duplicate, not a loss."""
        for ranges in (self.settled, self.loose) if loose else (self.settled,):
            ranges.add(low, high)
            if len(ranges) > bounds.settled_runs:
                ranges.drop_first()

    def next_check(self) -> int | None:
        """Monotonic: when the first lease, reservation, backoff or resume wait runs out."""
        times = [entry.deadline for entry in self.held.values()]
        if self.penalties:
            times.append(self.penalties[0][0])
        times += [at for at in (self.away_until, self.adopt_until) if at is not None]
        return min(times, default=None)

    def late(self, now: int) -> list[Entry]:
        """What has run out, and reservations for which nobody came."""
        deserted = self.adopt_until is not None and self.adopt_until <= now
        if deserted:
            self.adopt_until = None
        return [
            entry
            for entry in self.held.values()
            if entry.deadline <= now or (deserted and entry.state is State.RESERVED)
        ]


class Fair:
    """Chooses who gets the next run: most free permits first, ties in turn."""

    __slots__ = ("_heap", "_offers", "_turns", "takers")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, Subscription]] = []
        """(-free, turn, order of offers, stamp, who): what has an old stamp is void."""
        self._offers = 0
        self._turns = 0
        self.takers: set[Subscription] = set()

    def offer(self, subscription: Subscription, free: int) -> None:
        """A subscription's free permits changed."""
        subscription.stamp += 1
        if free <= 0:
            self.takers.discard(subscription)
            return
        self.takers.add(subscription)
        self._offers += 1
        item = (-free, subscription.turn, self._offers, subscription.stamp, subscription)
        heappush(self._heap, item)
        if len(self._heap) > 4 * len(self.takers) + 64:
            self._heap = [item for item in self._heap if item[4].stamp == item[3]]
            heapify(self._heap)

    def best(self) -> Subscription | None:
        """Whose turn it is; None when nobody has a free permit."""
        heap = self._heap
        while heap:
            stamp, subscription = heap[0][3:]
            if stamp == subscription.stamp:
                return subscription
            heappop(heap)
        return None

    def served(self, subscription: Subscription) -> None:
        self._turns += 1
        subscription.turn = self._turns


class Timers:
    """When to look at which subscription: one lower bound each, found again when it is due.

    Leases end, are extended and settled far more often than they run out, so no timer is kept
    per lease: a subscription is looked at when its earliest deadline may have come.
    """

    __slots__ = ("_heap", "_order", "_watched")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Subscription]] = []
        """What is not a subscription's `check_at` is void."""
        self._order = 0
        self._watched = 0

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, subscription: Subscription, at: int) -> None:
        if subscription.check_at is None or at < subscription.check_at:
            self._watched += subscription.check_at is None
            subscription.check_at = at
            self._order += 1
            heappush(self._heap, (at, self._order, subscription))
            self._clear()

    def forget(self, subscription: Subscription) -> None:
        """It is over: it must not stay in memory until its last deadline."""
        if subscription.check_at is not None:
            subscription.check_at = None
            self._watched -= 1
            self._clear()

    def _clear(self) -> None:
        if len(self._heap) > 4 * self._watched + 64:
            self._heap = [item for item in self._heap if item[2].check_at == item[0]]
            heapify(self._heap)

    def next(self) -> int | None:
        while self._heap and self._heap[0][2].check_at != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> list[Subscription]:
        """Subscriptions to look at now; watch them again afterwards."""
        found = []
        while (at := self.next()) is not None and at <= now:
            subscription = heappop(self._heap)[2]
            subscription.check_at = None
            self._watched -= 1
            found.append(subscription)
        return found
