"""What the checker remembers: a record for each live message, and one integer for an ended one.

Records never point back to what holds them, so they need no garbage collector (`gc=False`): with
millions of events, tracking them costs more than checking them.
"""

from collections import deque
from collections.abc import Iterator
from itertools import islice

import msgspec

from pushlane_history.event import (
    EPOCH_SHIFT,
    Crash,
    Deleted,
    Event,
    Leaving,
    Open,
    Publish,
    QueueSet,
    Quiesce,
    Settle,
    shard_of_id,
)
from pushlane_history.owners import Owners
from pushlane_history.rule import Report

RECENT = 1_000
"""Ended messages whose events are kept as evidence for what may still be said of them."""
TRAIL = 40
"""Events kept of one message: its first ones and the latest."""
PRUNE = 10_000
"""Dedup ids of a queue before those past their window are looked for and forgotten."""

MANY = 1 << 40
"""Starts and the like of a message that may have had any number of them."""

CODES = (
    "settled",
    "acked",
    "delivered",
    "dead",
    "redriven",
    "moved",
    "expired",
    "dropped",
    "purged",
)
"""How a message ended. `settled` is acked, perhaps for a delivery that needs no ack and was not
seen yet; `delivered` is by such a delivery."""
SETTLED, ACKED, DELIVERED = 0, 1, 2
CODE_MASK, NAMELESS, TOMB_SHIFT = 15, 16, 5
"""A tombstone is fence << TOMB_SHIFT | NAMELESS (its uid was never known) | code."""


class Sub(msgspec.Struct, gc=False):
    session: str
    credit: int
    held: int = 0
    """Granted, and nothing sent or decided since that could have given the permit back."""
    unlimited: bool = False
    """What it gets needs no ack: its credit says nothing."""


class Pub(msgspec.Struct, gc=False):
    """A logical message as its producer sees it: one uid, one or more requests."""

    first: Publish
    asked: int
    """How many publishes had been answered when this one was first asked for."""
    last_at: int = 0
    """When it was last asked for: its delay may count from then."""
    requests: int = 0
    """Those that may have stored it: all but the refused ones."""
    pending: int = 0
    unknown: int = 0
    ids: int = 0
    """Ids under which it was seen; never more than requests."""
    live: int = 0
    moved: str = ""
    """Clients' histories: its id in another queue."""


class Msg(msgspec.Struct, gc=False):
    """A message that is known to exist and has not ended (or only just)."""

    id: str
    queue: str
    home: str
    """The queue that it was published to."""
    transferred: bool = False
    """It came here from another queue."""
    uid: str = ""
    """Empty while only its id is known."""
    pub: Pub | None = None
    key: str | None = None
    seq: int = 0
    acked: bool = False
    """Its publish was acknowledged."""
    fresh: bool = False
    """… and not as a duplicate."""
    answered: int = 0
    """Its publish was the n-th one answered."""
    crashes: int = 0
    """How many crashes there had been when it last was seen to exist."""
    # The newest grant. `out` until it is settled or voided.
    out: bool = False
    fence: int = 0
    receipt: str = ""
    session: str = ""
    holder: str = ""
    """The label of its sub …"""
    sub: Sub | None = None
    """… which counts it, until its permit may have come back."""
    started: bool = False
    opens: int = 0
    """How many owners there had been at the last grant or void."""
    settles: int = 0
    nacks: int = 0
    doubt: int = 0
    """Acks of the newest grant that may have been taken: asked for, not refused."""
    # Counts over all grants.
    grants: int = 0
    starts: int = 0
    attempts: int = 0
    """Attempts before the next grant, as the server counts."""
    deliveries: int = 0
    """As the server counts."""
    breaks: int = 0
    """Grants that were not started when the connection of their client was broken."""
    ready_at: int = 0
    """No later than this it may be granted, unless its key or a consumer holds it back."""
    delayed: bool = False
    """… by what the clocks said."""
    reject_asked: bool = False
    rejected: bool = False
    passed: bool = False
    """A later message of its key was granted: its ack in doubt must have been taken."""
    overtaken: bool = False
    """… and there was none: it ended or left unseen, or its key's order is broken."""
    leaving: Leaving | None = None
    targets: dict[str, str] | None = None
    """Where it is leaving to, and its id there (empty until it is stored there)."""
    returned: bool = False
    """It was leaving and came back: others of its key may have overtaken it."""
    stored: bool = False
    unsure: bool = False
    """Older than what the history knows, which has a gap: its counts are not known."""
    ended: int = -1
    trail: list[Event] = []


class KeyOrder(msgspec.Struct, gc=False):
    """The messages of one key of one queue."""

    waiting: deque[Msg]
    """Not ended, by seq; in clients' histories by when they were answered."""
    high: int = 0
    """The greatest seq that was granted."""
    asked: int = 0
    """The greatest `Pub.asked` of those granted."""
    epoch: int = 0
    """The greatest epoch that granted any of them."""
    freed_at: int = 0
    """When one of them last ended or left: then it was the next one's turn."""
    orders: dict[str, int] = {}
    """By producer: the greatest `Publish.order` of those granted that were asked for once."""


class Identity(msgspec.Struct, gc=False):
    """What is known of a dedup id."""

    id: str
    at: int
    """No later than when its message was stored."""
    before: str = ""
    """The id that it stood for before: an answer that names it may come late."""


class Queue(msgspec.Struct, gc=False):
    name: str
    config: QueueSet
    configured: bool
    fewest_attempts: int
    fewest_deliveries: int
    live: dict[str, Msg] = {}
    gone: dict[str, int] = {}
    keys: dict[str, KeyOrder] = {}
    left: dict[tuple[str, str], int] = {}
    """By target and key: the number of the last one that arrived there."""
    dedups: dict[tuple[str | None, str], Identity] = {}
    producers: dict[str | None, dict[int | None, str]] = {}
    prune_at: int = PRUNE
    pruned: bool = False
    """Some dedup ids were forgotten."""
    allowed: set[str] = set()
    at_most_once: bool = False
    """There was a subscription that needs no acks."""
    partial: bool = False
    """It may hold messages that the history doesn't know."""
    dumped: bool = False
    drained: bool = False
    deleted: Deleted | None = None

    @property
    def dead_letter(self) -> str:
        to = self.config.dead_letter
        return f"{self.name}.dead" if to is None else to


class Queues(dict[str, Queue]):
    def __missing__(self, name: str) -> Queue:
        config = QueueSet(0, name)
        queue = Queue(name, config, False, config.max_attempts, config.max_deliveries)
        self[name] = queue
        return queue


Asked = tuple[Msg | None, Settle]
"""A settle under way, and the message whose valid receipt it had (None: it had none)."""


class Ledger:
    """The state that all rules share."""

    __slots__ = (
        "answers",
        "away",
        "crashes",
        "everywhere",
        "older_ops",
        "part",
        "partial",
        "publish_ops",
        "pubs",
        "queues",
        "quiesce",
        "receipts",
        "recent",
        "redriven_unseen",
        "report",
        "server",
        "settle_ops",
        "shards",
        "since_gap",
        "subs",
    )

    def __init__(self, part: bool = False) -> None:
        self.part = part
        self.partial = False
        """There was a gap in all that is known: every queue is partial."""
        self.since_gap: set[str] | None = None
        """Receipts granted since the last gap; None: there was none."""
        self.older_ops: set[int] = set()
        """Settles under way with receipts that may have been granted before the last gap."""
        self.server = True
        self.report = Report()
        self.queues = Queues()
        self.pubs: dict[str, Pub] = {}
        self.publish_ops: dict[int, Pub] = {}
        self.answers = 0
        self.receipts: dict[str, Msg] = {}
        """The valid ones: newest, not voided, not declared lost."""
        self.settle_ops: dict[int, Asked] = {}
        self.subs: dict[str, Sub] = {}
        self.away: dict[str, set[str]] = {}
        """Subs whose client's connection broke, and that did not resume since; but those receipts
        that begin so, they have again."""
        self.recent: deque[Msg] = deque(maxlen=RECENT)
        self.crashes: list[Crash] = []
        self.everywhere = Owners()
        """Those of all that no shard is told of."""
        self.shards: dict[str, Owners] = {}
        self.redriven_unseen = False
        """A client's history in which messages may have come back from dead letters."""
        self.quiesce: Quiesce | None = None

    def violate(self, rule: str, message: str, about: Msg | None, *events: Event) -> None:
        trail = about.trail if about is not None else []
        early = trail[:2]
        late = [event for event in trail[2:][-TRAIL:] if event not in events]
        self.report.violate(rule, message, (*early, *late, *events))

    def release(self, m: Msg) -> None:
        """Whoever holds the message may have its permit back."""
        if m.sub is not None:
            m.sub.held -= 1
            m.sub = None

    def close_grant(self, m: Msg) -> None:
        """The newest grant is over: its receipt settles nothing from now on."""
        m.out = False
        m.doubt = 0
        # Who was granted it by an owner that was none any more is not known: it may be away.
        m.breaks += not m.started and (not m.holder or self._is_away(m))
        if self.receipts.get(m.receipt) is m:
            del self.receipts[m.receipt]
        if m.sub is not None:
            m.sub.held -= 1
            m.sub = None
        if len(m.trail) > TRAIL:
            del m.trail[2 : TRAIL // 2]

    def _is_away(self, m: Msg) -> bool:
        """The client that holds it did not come back to it."""
        back = self.away.get(m.holder)
        return back is not None and m.receipt.rpartition(".")[0] not in back

    def end(self, q: Queue, m: Msg, code: int) -> None:
        if m.out:
            self.close_grant(m)
        m.ended = code
        del q.live[m.id]
        nameless = 0 if m.uid else NAMELESS
        q.gone[m.id] = m.fence << TOMB_SHIFT | nameless | code
        self.recent.append(m)
        if m.key is not None:
            order = q.keys.get(m.key)
            if order is not None:
                order.freed_at = m.trail[-1].at if m.trail else order.freed_at
                self._shift(order)
        pub = m.pub
        if pub is not None:
            pub.live -= 1
            if not pub.live:
                self.forget(pub)

    def end_by_owner(self, q: Queue, m: Msg, code: int) -> None:
        """An end that needed no grant: its tombstone tells what a zombie may not know of."""
        m.fence = max(m.fence, self.owners(m.id).epoch << EPOCH_SHIFT)
        self.end(q, m, code)

    # After a gap

    def forget_live(self, q: Queue) -> None:
        """Of a queue's messages only those are known any more that have ended."""
        q.partial = q.pruned = True
        for m in q.live.values():
            if m.out:
                self.close_grant(m)
        for known in (q.live, q.keys, q.left, q.dedups, q.producers):
            known.clear()
        for op in [op for op, pub in self.publish_ops.items() if pub.first.queue == q.name]:
            del self.publish_ops[op]
        for uid in [uid for uid, pub in self.pubs.items() if pub.first.queue == q.name]:
            del self.pubs[uid]
        for op, (about, settle) in self.settle_ops.items():
            if about is not None and about.queue == q.name:
                self.settle_ops[op] = None, settle
                self.older_ops.add(op)

    def adopt(self, q: Queue, id: str, seq: int = 0) -> Msg:
        """A message that is older than what the history knows."""
        m = q.live[id] = Msg(id, q.name, q.name, transferred=True, seq=seq)
        self.believe(m)
        return m

    def believe(self, m: Msg) -> None:
        """Its counts are what is next said of them."""
        m.unsure = m.reject_asked = True
        m.opens, m.starts, m.grants, m.breaks = -1, MANY, MANY, MANY

    def unasked(self, message: str, answer: Event) -> None:
        """An answer to nothing, or to what was asked before the last gap."""
        if self.since_gap is None:
            self.violate("malformed", message, None, answer)

    def is_partial(self, q: Queue) -> bool:
        return self.partial or q.partial

    def is_older(self, receipt: str) -> bool:
        """Whether a receipt that is not valid may have been granted before the last gap."""
        return self.since_gap is not None and receipt not in self.since_gap

    # Ends

    def forget(self, pub: Pub) -> None:
        """Drop a logical message of which nothing more can come."""
        if not (pub.live or pub.pending or pub.unknown):
            self.pubs.pop(pub.first.uid, None)

    def enqueue(self, q: Queue, m: Msg) -> None:
        """Give a message its place among those of its key."""
        if m.key is None or not m.seq:
            return
        order = self.order(q, m.key)
        waiting = order.waiting
        if not waiting or waiting[-1].seq < m.seq:
            waiting.append(m)
        else:  # rare: acknowledged, or first seen, out of order
            order.waiting = deque(sorted((*waiting, m), key=lambda m: m.seq))

    def enqueue_answered(self, q: Queue, m: Msg) -> None:
        """Give a message its place where no seq is seen: behind all that were answered before."""
        if m.key is not None and not m.answered and not m.transferred:
            self.order(q, m.key).waiting.append(m)

    def order(self, q: Queue, key: str) -> KeyOrder:
        order = q.keys.get(key)
        if order is None:
            order = q.keys[key] = KeyOrder(deque())
        return order

    def _shift(self, order: KeyOrder) -> None:
        waiting = order.waiting
        while waiting and waiting[0].ended >= 0:
            waiting.popleft()

    def after_end(self, q: Queue, id: str, what: str, acked: str, other: str, e: Event) -> None:
        """Something is said of a message after its end: the rule depends on how it ended."""
        code = q.gone[id] & CODE_MASK
        rule = acked if code <= DELIVERED else other
        message = f"{id} is {what} after it ended as {CODES[code]}"
        self.violate(rule, message, self.remembered(q, id), e)

    def remembered(self, q: Queue, id: str) -> Msg | None:
        """The record of a message that ended a short while ago."""
        records = (m for m in reversed(self.recent) if m.id == id and m.queue == q.name)
        return next(records, None)

    def owners(self, id: str) -> Owners:
        """Those of a message."""
        if not self.shards:
            return self.everywhere
        return self.shards.get(shard_of_id(id), self.everywhere)

    def opened(self, e: Open) -> None:
        if e.shard:
            if e.shard not in self.shards:
                self.shards[e.shard] = self.everywhere.copy()
            self.shards[e.shard].opened(e)
            return
        for owners in (self.everywhere, *self.shards.values()):
            owners.opened(e)

    def crashed(self, e: Crash) -> None:
        if not e.clean:
            self.crashes.append(e)
        for owners in (self.everywhere, *self.shards.values()):
            owners.crashed(e.node)

    def holds(self, m: Msg) -> bool:
        """Whether somebody certainly holds a valid lease, granted by the newest owner."""
        owners = self.owners(m.id)
        return (
            self.server
            and m.out
            and m.opens == owners.count
            and m.fence >> EPOCH_SHIFT >= owners.epoch
            and self.receipts.get(m.receipt) is m
        )

    def live(self) -> Iterator[tuple[Queue, Msg]]:
        for q in self.queues.values():
            for m in q.live.values():
                yield q, m

    def suspect(self, m: Msg) -> Iterator[Event]:
        """The first crash after a message was last seen to exist."""
        return islice(self.crashes, m.crashes, m.crashes + 1)
