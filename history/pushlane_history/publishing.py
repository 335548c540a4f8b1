"""Rules for publishes: phantom, unacked_unknown, dedup.

A request that may have stored something explains one id. So a uid is never seen under more ids
than it had requests that were not refused; with a dedup id or a producer sequence, under one.
"""

from pushlane_history.event import (
    UNKNOWN_CODES,
    Event,
    Publish,
    Published,
    PublishFailed,
)
from pushlane_history.ledger import NAMELESS, Identity, Ledger, Msg, Pub, Queue

PRODUCER_WINDOW = 1_024
"""A shard remembers that many of a producer's sequences."""
LONG_AGO = -(1 << 62)
TRANSFERS = frozenset({"redriven", "moved", "overflow", "late", "fanout"})
"""What must have been asked for before a message may go to another queue than the dead letters."""


class Publishing:
    __slots__ = ("_late_ops", "_ledger", "_ops", "_pubs", "_queues")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ops = ledger.publish_ops
        self._pubs = ledger.pubs
        self._queues = ledger.queues
        self._late_ops: set[int] = set()
        """Publishes to queues that were deleted before."""

    def publish(self, e: Publish) -> None:
        pub = self._pubs.get(e.uid)
        if pub is None:
            pub = self._pubs[e.uid] = Pub(e, self._ledger.answers)
        pub.requests += 1
        pub.last_at = e.at
        pub.pending += 1
        self._ops[e.op] = pub
        q = self._queues[e.queue]
        if q.deleted is not None:
            self._late_ops.add(e.op)
        if e.dedup is not None:
            self._ask(q, e)

    def published(self, e: Published) -> None:
        pub = self._ops.pop(e.op, None)
        if pub is None:
            self._ledger.unasked("an answer to no publish", e)
            return
        ledger = self._ledger
        ledger.answers += 1
        pub.pending -= 1
        first = pub.first
        q = self._queues[first.queue]
        if e.op in self._late_ops and q.deleted is not None:
            ledger.violate("deleted", "acknowledged after that", None, q.deleted, first, e)
        if not e.id:
            self._answered_nameless(q, pub, e)
            return
        m = q.live.get(e.id)
        if m is None:
            if e.id in q.gone:
                self._answered_after_end(q, pub, e)
                ledger.forget(pub)
                return
            m = Msg(e.id, first.queue, first.queue, seq=e.seq, trail=[first, e])
            if e.duplicate:
                q.live[e.id] = m
                if ledger.is_partial(q):
                    ledger.believe(m)
                ledger.report.note("duplicate")
                self._identify(q, pub, e.id, e)
            else:
                self._bind(q, m, pub, e)
        else:
            self._answered_known(q, m, pub, e)
        if not ledger.server:
            ledger.enqueue_answered(q, m)
        m.acked = True
        m.fresh = m.fresh or not e.duplicate
        m.answered = ledger.answers
        m.crashes = len(ledger.crashes)

    def failed(self, e: PublishFailed) -> None:
        pub = self._ops.pop(e.op, None)
        if pub is None:
            self._ledger.unasked("an answer to no publish", e)
            return
        pub.pending -= 1
        if e.code in UNKNOWN_CODES:
            pub.unknown += 1
            self._ledger.report.note("publish_unknown")
            return
        pub.requests -= 1
        if pub.ids > pub.requests and not self._ledger.redriven_unseen:
            self._ledger.violate("phantom", "refused, but stored", None, pub.first, e)
        self._ledger.forget(pub)

    def meet(self, q: Queue, id: str, uid: str, seq: int, event: Event) -> Msg | None:
        """A message of which neither an answer nor a transfer told: can a publish explain it?"""
        pub = self._pubs.get(uid)
        if pub is None and self._ledger.is_partial(q):
            return self._ledger.adopt(q, id, seq)
        if pub is None:
            self._ledger.violate("phantom", f"no publish explains {uid!r}", None, event)
            return None
        home = pub.first.queue
        m = Msg(id, q.name, home, home != q.name, seq=seq, trail=[pub.first])
        if home == q.name:
            self._bind(q, m, pub, event)
            return m
        return self._arrived(q, m, pub, event)

    def name(self, q: Queue, m: Msg, uid: str, event: Event) -> bool:
        """A delivery or a dump says whose body a message has. False when that can't be."""
        if not uid or m.unsure:
            return True
        if m.uid:
            message = f"id {m.id} is {m.uid!r}, not {uid!r}"
            self._ledger.violate("phantom", message, m, event)
            return False
        pub = self._pubs.get(uid)
        if pub is None and self._ledger.is_partial(q):
            self._ledger.believe(m)
            return True
        if pub is None or pub.first.queue != m.home:
            self._ledger.violate("phantom", f"no publish explains {uid!r}", m, event)
            return False
        self._bind(q, m, pub, event)
        return True

    def _bind(self, q: Queue, m: Msg, pub: Pub, event: Event) -> None:
        """This message is that publish's."""
        ledger = self._ledger
        first = pub.first
        m.uid = first.uid
        m.pub = pub
        m.key = first.key
        m.ready_at = max(event.at, pub.last_at + first.delay_ms)
        m.delayed = first.delay_ms > 0
        m.crashes = len(ledger.crashes)
        q.live[m.id] = m
        pub.live += 1
        if m.key is not None and ledger.server:
            ledger.enqueue(q, m)
        if m.transferred:
            return
        pub.ids += 1
        if ledger.redriven_unseen:
            return
        if not self._identify(q, pub, m.id, event):
            return
        if pub.ids > pub.requests:
            rule = "unacked_unknown" if pub.unknown or pub.pending else "phantom"
            message = f"{pub.ids} ids for {pub.requests} publishes of {first.uid!r}"
            ledger.violate(rule, message, m, event)

    def _arrived(self, q: Queue, m: Msg, pub: Pub, event: Event) -> Msg | None:
        """Clients don't see transfers: a message may show itself in its target."""
        ledger = self._ledger
        source = self._queues[m.home]
        if ledger.server or not (q.name == source.dead_letter or source.allowed & TRANSFERS):
            ledger.violate("phantom", f"published to {m.home}, met in {q.name}", m, event)
            return None
        if pub.moved and pub.requests == 1 and not ledger.redriven_unseen:
            ledger.violate("transfer", f"{m.uid or m.id} twice in {q.name}", m, event)
        pub.moved = m.id
        self._bind(q, m, pub, event)
        return m

    def _answered_known(self, q: Queue, m: Msg, pub: Pub, e: Published) -> None:
        """The answer names a message that was met before."""
        ledger = self._ledger
        m.trail.append(e)
        uid = pub.first.uid
        if not m.seq:
            m.seq = e.seq
            if m.uid and ledger.server:
                ledger.enqueue(q, m)
        if e.duplicate:
            ledger.report.note("duplicate")
            if m.pub is not None and not _same(m.pub.first, pub.first):
                ledger.violate("dedup", "answered with another message's id", m, pub.first, e)
                return
        elif not m.uid:
            self.name(q, m, uid, e)
            return
        elif m.uid != uid:
            ledger.violate("phantom", "answered with another message's id", m, pub.first, e)
            return
        elif m.fresh:
            ledger.violate("dedup", "a repeat, but answered as new", m, e)
        self._identify(q, pub, e.id, e)

    def _answered_after_end(self, q: Queue, pub: Pub, e: Published) -> None:
        """The answer names a message that has ended: is it this publish's, or was it swallowed?"""
        first = pub.first
        known = self._knows(q, first, e.id)
        if not self._identify(q, pub, e.id, e) or known or q.gone[e.id] & NAMELESS:
            return
        ledger = self._ledger
        own = q.pruned or ledger.redriven_unseen if e.duplicate else pub.ids
        if not own:
            rule = "dedup" if e.duplicate else "phantom"
            about = ledger.remembered(q, e.id)
            ledger.violate(rule, "answered with another message's id", about, first, e)

    def _answered_nameless(self, q: Queue, pub: Pub, e: Published) -> None:
        """A duplicate of something so old that its id is forgotten: was it ever there?"""
        self._ledger.report.note("duplicate")
        pub.requests -= 1
        number = pub.first.producer_seq or 0
        ids = q.producers.get(pub.first.producer, {})
        if not q.pruned and number not in ids and not pub.requests:
            message = "taken for a repeat, but it is the first"
            self._ledger.violate("dedup", message, None, pub.first, e)
        self._ledger.forget(pub)

    def _ask(self, q: Queue, e: Publish) -> None:
        """A dedup id's window begins no earlier than it is first asked for."""
        assert e.dedup is not None
        q.dedups.setdefault((e.key, e.dedup), Identity("", e.at))
        if len(q.dedups) > q.prune_at:
            horizon = e.at - q.config.dedup_window_ms
            before = len(q.dedups)
            q.dedups = {key: known for key, known in q.dedups.items() if known.at > horizon}
            q.pruned = q.pruned or len(q.dedups) < before
            q.prune_at = max(q.prune_at, 2 * len(q.dedups))

    def _knows(self, q: Queue, first: Publish, id: str) -> bool:
        """Whether an equal publish was seen to get this id."""
        if first.dedup is not None:
            known = q.dedups.get((first.key, first.dedup))
            if known is not None and id in (known.id, known.before):
                return True
        ids = q.producers.get(first.producer)
        return ids is not None and ids.get(first.producer_seq) == id

    def _identify(self, q: Queue, pub: Pub, id: str, event: Event) -> bool:
        """Publishes with equal dedup ids or producer sequences have one id.

        A sequence is remembered with what was stored under it. Of a duplicate nothing is: its
        sequence may be new, and its dedup id another producer's. So a duplicate's id must be
        known by one of them, a new one's must not clash with either.
        """
        first = pub.first
        duplicate = type(event) is Published and event.duplicate
        by_seq = by_dedup = None
        if first.producer_seq is not None:
            by_seq = self._by_seq(q, first, id, duplicate)
        if first.dedup is not None:
            by_dedup = self._by_dedup(q, first, id, duplicate, event)
        elif duplicate and first.producer_seq is None:
            message = "a duplicate, but it has nothing to be recognised by"
            self._ledger.violate("dedup", message, None, first, event)
            return False
        if by_seq is None and by_dedup is None:
            return True
        others = {by_seq, by_dedup} - {None, id}
        if not others or (duplicate and id in (by_seq, by_dedup)):
            return True
        other = min(filter(None, others))
        message = f"{first.uid!r} is {id}, an equal publish was {other}"
        self._ledger.violate("dedup", message, q.live.get(other), first, event)
        return False

    def _by_seq(self, q: Queue, first: Publish, id: str, duplicate: bool) -> str | None:
        """The id that was stored under the producer's sequence, if that is known."""
        assert first.producer_seq is not None
        ids = q.producers.setdefault(first.producer, {})
        known = ids.get(first.producer_seq)
        if known is None and not duplicate:
            ids[first.producer_seq] = id
            if len(ids) > PRODUCER_WINDOW:
                del ids[next(iter(ids))]
                q.pruned = True
        return known

    def _by_dedup(
        self, q: Queue, first: Publish, id: str, duplicate: bool, event: Event
    ) -> str | None:
        """The id that the dedup id stands for, if it still must."""
        assert first.dedup is not None
        key = (first.key, first.dedup)
        known = q.dedups.get(key)
        # A duplicate's message was stored before the publish that shows it to us.
        since = LONG_AGO if duplicate else first.at
        if known is None:
            q.dedups[key] = Identity(id, since)
        elif id in (known.id, known.before):
            return id
        elif not known.id:
            known.id = id
            if duplicate and q.pruned:  # perhaps its window began before we forgot it
                known.at = LONG_AGO
        elif event.at - known.at < q.config.dedup_window_ms:
            return known.id
        else:
            known.before, known.id, known.at = known.id, id, since
        return None


def _same(a: Publish, b: Publish) -> bool:
    """Whether the server must take them for one message."""
    by_dedup = a.dedup is not None and (a.key, a.dedup) == (b.key, b.dedup)
    by_seq = a.producer_seq is not None and a.producer_seq == b.producer_seq
    return by_dedup or (by_seq and a.producer == b.producer)
