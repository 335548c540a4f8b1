"""Rules for ends: lost, ended_twice, dead_cause, transfer, in_flight, drain."""

from pushlane_history.event import (
    Drained,
    Ended,
    Event,
    Leaving,
    Moved,
    Quiesce,
    Stored,
    Void,
)
from pushlane_history.ledger import (
    CODE_MASK,
    CODES,
    DELIVERED,
    SETTLED,
    Ledger,
    Msg,
    Queue,
)
from pushlane_history.publishing import Publishing

TRANSFER_WINDOW_MS = 24 * 60 * 60 * 1000
"""A transfer that takes longer may store its message twice."""
CLOCKS_MS = 120_000
"""How much too early a message may expire: two owners' clocks may be wrong by a minute each."""

_NOT_OUT = frozenset({"expired", "dropped", "purged", "overflow", "late", "redriven"})
_TRANSFERRED = frozenset({"dead", "redriven", "moved"})


class Ending:
    __slots__ = ("_ledger", "_publishing", "_queues", "_refusals")

    def __init__(self, ledger: Ledger, publishing: Publishing) -> None:
        self._ledger = ledger
        self._publishing = publishing
        self._queues = ledger.queues
        self._refusals: list[tuple[Msg, str]] = []
        """Messages that another queue is said to have refused, though they were stored there."""

    def leaving(self, e: Leaving) -> None:
        q = self._queues[e.queue]
        if e.id in q.gone:
            self._again(q, e.id, "leaving", e)
            return
        m = q.live.get(e.id) or self._unmet(q, e.id)
        m.trail.append(e)
        self._not_out(m, e.cause)
        if m.out:
            self._ledger.close_grant(m)
        self._cause(q, m, e.cause, e.at)
        m.leaving, m.targets = e, m.targets or {}
        if not e.to:
            self._refused(m)
            return
        if e.cause == "redriven":  # one at a time, which may be another than before
            m.targets = {e.to: m.targets.get(e.to, "")}
        m.targets.setdefault(e.to, "")
        m.crashes = len(self._ledger.crashes)
        if m.key is not None and m.key in q.keys:
            q.keys[m.key].freed_at = e.at

    def _refused(self, m: Msg) -> None:
        """What is stored in another queue can't have been refused by it, unless that is deleted."""
        self._refusals += [(m, to) for to, id in (m.targets or {}).items() if id]
        m.targets = {}

    def returned(self, e: Void) -> None:
        """A void of a message that was leaving: it came back."""
        m = self._queues[e.queue].live.get(e.id)
        if m is not None and m.leaving is not None:
            m.trail.append(e)
            self._refused(m)
            m.leaving = m.targets = None
            m.returned = True

    def moved(self, e: Moved) -> None:
        q, to = self._queues[e.queue], self._queues[e.to]
        m = q.live.get(e.id)
        known = e.new_id in to.live or e.new_id in to.gone
        if m is None and e.id not in q.gone and self._ledger.is_partial(q):
            m = self._ledger.adopt(q, e.id)
        if m is None:
            if not known:  # else repeated by a new owner
                self._ledger.violate("transfer", "stored there after it ended here", None, e)
            return
        if m.uid != e.uid:
            self._publishing.name(q, m, e.uid, e)
        m.trail.append(e)
        targets = m.targets or {}
        before = targets.get(e.to)
        if before == e.new_id:
            return
        if m.unsure and m.leaving is None:
            pass  # it was leaving before the gap
        elif before is None or m.leaving is None:
            self._ledger.violate("transfer", "stored there, but it is not leaving for it", m)
        elif known or (before and e.at - m.leaving.at <= TRANSFER_WINDOW_MS):
            self._ledger.violate("transfer", f"stored there as {before or 'another message'}", m)
        self._in_order(q, to, m)
        m.targets = {**targets, e.to: e.new_id}
        if not known:
            self._arrive(m, to, e)

    def _in_order(self, q: Queue, to: Queue, m: Msg) -> None:
        """Messages of one key arrive in the order in which they left."""
        if m.key is None or m.leaving is None or not m.leaving.number:
            return
        way, number = (to.name, m.key), m.leaving.number
        if number < q.left.get(way, 0):
            message = f"one of its key that left later is in {to.name} already"
            self._ledger.violate("key_order", message, m)
        q.left[way] = max(number, q.left.get(way, 0))

    def ended(self, e: Ended) -> None:
        q = self._queues[e.queue]
        m = q.live.get(e.id)
        if e.id in q.gone:
            if e.how != "acked" or q.gone[e.id] & CODE_MASK > DELIVERED:
                self._again(q, e.id, e.how, e)
            return
        m = m or self._unmet(q, e.id)
        m.trail.append(e)
        self._not_out(m, e.how)
        code = CODES.index(e.how)
        if e.how == "acked":
            if q.at_most_once:
                code = SETTLED
            elif not m.doubt and not m.unsure:
                self._ledger.violate("lost", "acked, but nobody acked it", m)
        elif e.how in _TRANSFERRED:
            self._transferred(q, m, e)
        else:
            self._asked_for(q, m, e)
        self._ledger.end_by_owner(q, m, code)

    def stored(self, e: Stored) -> None:
        q = self._queues[e.queue]
        q.dumped = True
        for id, uid in zip(e.ids, e.uids, strict=True):
            if id in q.gone:
                self._again(q, id, "still stored", e)
                continue
            m = q.live.get(id)
            if m is None:
                m = self._publishing.meet(q, id, uid, 0, e)
            elif m.uid != uid:
                self._publishing.name(q, m, uid, e)
            if m is None:
                continue
            m.stored = True
            if m.passed and self._ledger.server:  # else it may be leaving
                self._ledger.violate("key_order", "a later message of its key was granted", m)
            if q.drained:
                self._ledger.violate("drain", "stored in a queue that is said to be empty", m)

    def quiesce(self, e: Quiesce) -> None:
        self._ledger.quiesce = e

    def drained(self, e: Drained) -> None:
        ledger = self._ledger
        quiesce = ledger.quiesce
        if quiesce is None:
            self._of_all("malformed", "drained, but nothing asked for it", e)
            return
        ledger.quiesce = None
        if e.left or e.at > quiesce.deadline:
            self._of_all("drain", f"{e.left} messages are left", quiesce, e)
        if not e.left:
            for name in quiesce.queues:
                self._queues[name].dumped = self._queues[name].drained = True

    def finish(self) -> None:
        ledger = self._ledger
        if ledger.quiesce is not None:
            self._of_all("drain", "never drained", ledger.quiesce)
        for m, to in self._refusals:
            if self._queues[to].deleted is None:
                ledger.violate("transfer", f"refused, but stored in {to}", m)
        letters = {q.dead_letter for q in ledger.queues.values()}
        for q, m in ledger.live():
            if q.dumped and not m.stored and not self._excused(q, m, letters):
                crash = list(ledger.suspect(m))
                rule = "ack_before_durable" if crash and not m.grants and m.acked else "lost"
                message = f"{m.uid or m.id!r} is neither stored nor ended"
                ledger.violate(rule, message, m, *crash)

    def _of_all(self, rule: str, message: str, *events: Event) -> None:
        """What is said of all queues is held against the history once, not in each part of it."""
        if not self._ledger.part:
            self._ledger.violate(rule, message, None, *events)

    # How a message may end

    def _again(self, q: Queue, id: str, what: str, e: Event) -> None:
        self._ledger.after_end(q, id, what, "confirmed_settle_lost", "ended_twice", e)

    def _unmet(self, q: Queue, id: str) -> Msg:
        """Of a publish with an unknown outcome, never granted; or from before a gap."""
        if self._ledger.is_partial(q):
            return self._ledger.adopt(q, id)
        m = q.live[id] = Msg(id, q.name, q.name)
        return m

    def _not_out(self, m: Msg, why: str) -> None:
        if why in _NOT_OUT and not m.settles and self._ledger.holds(m):
            self._ledger.violate("in_flight", f"{why}, but a consumer holds it", m)

    def _transferred(self, q: Queue, m: Msg, e: Ended) -> None:
        if m.unsure and m.leaving is None:
            return
        if m.targets is not None:
            missing = [to for to, id in m.targets.items() if not id]
            if missing:
                message = f"ended here before it was stored in {', '.join(missing)}"
                self._ledger.violate("transfer", message, m)
        elif e.how == "dead" and not q.dead_letter:
            self._cause(q, m, e.cause, e.at)
        else:
            self._ledger.violate("transfer", f"{e.how}, but it never was leaving", m)

    def _asked_for(self, q: Queue, m: Msg, e: Ended) -> None:
        asked = e.how in q.allowed
        if e.how == "dropped":
            asked = asked or q.config.overflow == "drop_oldest"
        elif e.how == "expired":
            asked = asked or _expires(m, e.at)
        if not asked:
            self._ledger.violate("lost", f"{e.how}, but nobody asked for that", m)

    def _cause(self, q: Queue, m: Msg, cause: str, at: int) -> None:
        if m.unsure:
            return
        if cause == "max_attempts":
            legal = m.starts >= q.fewest_attempts
        elif cause == "max_deliveries":
            legal = m.breaks >= q.fewest_deliveries
        elif cause == "expired":
            legal = _expires(m, at) or "expired" in q.allowed
        elif cause == "rejected":
            legal = m.reject_asked
        elif cause == "overflow":
            legal = q.config.overflow == "dead_letter" or "overflow" in q.allowed
        elif cause == "damaged":
            legal = "damage" in self._ledger.report.faults
        else:
            legal = cause in ("no_queue", "late", "redriven", "fanout") and cause in q.allowed
        if not legal:
            message = (
                f"{cause!r} after {m.starts} starts of {m.grants} grants, and {m.breaks} "
                "connections that broke before a start"
            )
            self._ledger.violate("dead_cause", message, m)

    def _arrive(self, m: Msg, to: Queue, e: Moved) -> None:
        there = Msg(e.new_id, to.name, m.home, True, m.uid, m.pub, m.key, e.seq)
        there.acked = True
        there.ready_at = e.at
        there.trail = list(m.trail)
        there.crashes = len(self._ledger.crashes)
        to.live[e.new_id] = there
        if m.pub is not None:
            m.pub.live += 1
        self._ledger.enqueue(to, there)

    def _excused(self, q: Queue, m: Msg, letters: set[str]) -> bool:
        """Whether a message may be gone though the history doesn't say how it ended."""
        if m.unsure or m.doubt or (m.targets is not None and all(m.targets.values())):
            return True
        if self._ledger.server:
            return False
        dead = self._queues.get(q.dead_letter)
        if not q.dead_letter or q.name in letters:  # it has no dead letters to look into
            unseen = m.grants > 0
        else:
            unseen = dead is None or not dead.dumped or _forgets(dead)
        return bool(_forgets(q) or _expires(m) or (m.pub is not None and m.pub.moved) or unseen)


def _forgets(q: Queue) -> bool:
    """Whether messages may end there without anybody's ack."""
    return bool(q.allowed) or q.at_most_once or q.config.overflow != "reject"


def _expires(m: Msg, at: int | None = None) -> bool:
    """Whether it may have expired: ever, or by this time."""
    if m.pub is None or at is None or not m.pub.first.ttl_ms:
        return m.pub is None or m.pub.first.expires
    return at >= m.pub.first.at + m.pub.first.ttl_ms - CLOCKS_MS
