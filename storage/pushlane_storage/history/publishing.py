"""Rules for publishes: phantom, unacked_unknown, dedup.

A request that may have stored something explains one id. So a uid is never seen under more ids
than it had requests that were not refused; with a dedup id or a producer sequence, under one.
"""

from pushlane_storage.history.event import (
    UNKNOWN_CODES,
    Event,
    Publish,
    Published,
    PublishFailed,
)
from pushlane_storage.history.ledger import NAMELESS, Identity, Ledger, Msg, Pub, Queue

PRODUCER_WINDOW = 1_024
"""A shard remembers that many of a producer's sequences."""
LONG_AGO = -(1 << 62)
TRANSFERS = frozenset({"redriven", "moved", "overflow", "late", "fanout"})
"""What must have been asked for before a message may go to another queue than the dead letters."""


class Publishing:
    __slots__ = ("_ledger", "_ops", "_pubs", "_queues")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ops = ledger.publish_ops
        self._pubs = ledger.pubs
        self._queues = ledger.queues

    def publish(self, e: Publish) -> None:
        pub = self._pubs.get(e.uid)
        if pub is None:
            pub = self._pubs[e.uid] = Pub(e, self._ledger.answers)
        pub.requests += 1
        pub.pending += 1
        self._ops[e.op] = pub
        if e.dedup is not None:
            self._ask(self._queues[e.queue], e)

    def published(self, e: Published) -> None:
        pub = self._ops.pop(e.op, None)
        if pub is None:
            self._ledger.violate("malformed", "an answer to no publish", None, e)
            return
        ledger = self._ledger
        ledger.answers += 1
        pub.pending -= 1
        first = pub.first
        q = self._queues[first.queue]
        m = q.live.get(e.id)
        if m is None:
            if e.id in q.gone:
                self._answered_after_end(q, pub, e)
                ledger.forget(pub)
                return
            m = Msg(e.id, first.queue, first.queue, seq=e.seq, trail=[first, e])
            if e.duplicate:
                q.live[e.id] = m
                ledger.report.note("duplicate")
                self._identify(q, pub, e.id, e)
            else:
                self._bind(q, m, pub, e)
        else:
            self._answered_known(q, m, pub, e)
        m.acked = True
        m.answered = ledger.answers
        m.crashes = len(ledger.crashes)

    def failed(self, e: PublishFailed) -> None:
        pub = self._ops.pop(e.op, None)
        if pub is None:
            self._ledger.violate("malformed", "an answer to no publish", None, e)
            return
        pub.pending -= 1
        if e.code in UNKNOWN_CODES:
            pub.unknown += 1
            self._ledger.report.note("publish_unknown")
            return
        pub.requests -= 1
        if pub.ids > pub.requests:
            self._ledger.violate("phantom", "refused, but stored", None, pub.first, e)
        self._ledger.forget(pub)

    def meet(self, q: Queue, id: str, uid: str, seq: int, event: Event) -> Msg | None:
        """A message of which neither an answer nor a transfer told: can a publish explain it?"""
        pub = self._pubs.get(uid)
        if pub is None:
            self._ledger.violate("phantom", f"no publish explains {uid!r}", None, event)
            return None
        home = pub.first.queue
        m = Msg(id, q.name, home, seq=seq, trail=[pub.first])
        if home == q.name:
            self._bind(q, m, pub, event)
            return m
        return self._arrived(q, m, pub, event)

    def name(self, q: Queue, m: Msg, uid: str, event: Event) -> bool:
        """A delivery or a dump says whose body a message has. False when that can't be."""
        if m.uid:
            message = f"id {m.id} is {m.uid!r}, not {uid!r}"
            self._ledger.violate("phantom", message, m, event)
            return False
        pub = self._pubs.get(uid)
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
        m.crashes = len(ledger.crashes)
        q.live[m.id] = m
        pub.live += 1
        if m.key is not None and ledger.server:
            ledger.enqueue(q, m)
        if m.home != m.queue or (pub.moved and ledger.redriven):
            return  # it came by a transfer: no request stored it here
        pub.ids += 1
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
        if pub.moved and pub.requests == 1 and not ledger.redriven:
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
        elif m.acked:
            ledger.violate("dedup", "a repeat, but answered as new", m, e)
        self._identify(q, pub, e.id, e)

    def _answered_after_end(self, q: Queue, pub: Pub, e: Published) -> None:
        """The answer names a message that has ended: is it this publish's, or was it swallowed?"""
        first = pub.first
        known = self._known(q, first)
        if not self._identify(q, pub, e.id, e) or known == e.id or q.gone[e.id] & NAMELESS:
            return
        own = q.pruned if e.duplicate else pub.ids
        if not own:
            rule = "dedup" if e.duplicate else "phantom"
            about = self._ledger.ended(q, e.id)[1]
            self._ledger.violate(rule, "answered with another message's id", about, first, e)

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

    def _known(self, q: Queue, first: Publish) -> str:
        """The id that an equal publish was seen to get; empty when none was."""
        if first.dedup is not None:
            known = q.dedups.get((first.key, first.dedup))
            if known is not None and known.id:
                return known.id
        if first.producer_seq is not None:
            return q.producers.get(first.producer, {}).get(first.producer_seq, "")
        return ""

    def _identify(self, q: Queue, pub: Pub, id: str, event: Event) -> bool:
        """Publishes with equal dedup ids or producer sequences have one id."""
        first = pub.first
        duplicate = type(event) is Published and event.duplicate
        if first.dedup is not None:
            key = (first.key, first.dedup)
            known = q.dedups.get(key)
            # A duplicate's message was stored before the publish that shows it to us.
            since = LONG_AGO if duplicate else first.at
            if known is None:
                q.dedups[key] = Identity(id, since)
            elif not known.id:
                known.id = id
            elif known.id != id:
                if event.at - known.at < q.config.dedup_window_ms:
                    return self._two_ids(q, first, id, known.id, event)
                known.id, known.at = id, since
        if first.producer_seq is not None:
            ids = q.producers.setdefault(first.producer, {})
            other = ids.setdefault(first.producer_seq, id)
            if other != id:
                return self._two_ids(q, first, id, other, event)
            if len(ids) > PRODUCER_WINDOW:
                del ids[next(iter(ids))]
                q.pruned = True
        elif duplicate and first.dedup is None:
            message = "a duplicate, but it has nothing to be recognised by"
            self._ledger.violate("dedup", message, None, first, event)
            return False
        return True

    def _two_ids(self, q: Queue, first: Publish, id: str, other: str, event: Event) -> bool:
        message = f"{first.uid!r} is {id}, an equal publish was {other}"
        self._ledger.violate("dedup", message, q.live.get(other), first, event)
        return False


def _same(a: Publish, b: Publish) -> bool:
    """Whether the server must take them for one message."""
    by_dedup = a.dedup is not None and (a.key, a.dedup) == (b.key, b.dedup)
    by_seq = a.producer_seq is not None and a.producer_seq == b.producer_seq
    return by_dedup or (by_seq and a.producer == b.producer)
