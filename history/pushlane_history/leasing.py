"""Rules for leases: two_leases, fence, stale_settle, grant_after_ack, attempts, credit, stalled.

`Ledger.receipts` holds the valid receipts only, so a settle with any other is stale by not being
found. An ack that was confirmed proves that no newer grant can exist, before or after: were there
one earlier, the receipt was stale; were there one later, it is a grant after an ack. A nack, a
reject and an extension may be overtaken by the next grant on their way back, so they are judged
by what was true when they were sent.
"""

from pushlane_history.event import (
    EPOCH_SHIFT,
    Credit,
    Detach,
    Grant,
    Idle,
    LeaseLost,
    Resume,
    SessionEnd,
    Settle,
    Start,
    Subscribe,
    Unsubscribe,
    Verdict,
    Void,
    shard_of_id,
)
from pushlane_history.ledger import (
    ACKED,
    CODE_MASK,
    DELIVERED,
    SETTLED,
    TOMB_SHIFT,
    Ledger,
    Msg,
    Queue,
    Sub,
)
from pushlane_history.ordering import Ordering
from pushlane_history.publishing import Publishing

KEPT_LOST = 10_000
"""Lost receipts kept before those that were voided are sorted out."""


class Leasing:
    __slots__ = (
        "_ledger",
        "_lost",
        "_ops",
        "_ordering",
        "_publishing",
        "_queues",
        "_receipts",
        "_subs",
    )

    def __init__(self, ledger: Ledger, publishing: Publishing) -> None:
        self._ledger = ledger
        self._ordering = Ordering(ledger)
        self._publishing = publishing
        self._queues = ledger.queues
        self._receipts = ledger.receipts
        self._ops = ledger.settle_ops
        self._subs = ledger.subs
        self._lost: dict[str, Msg] = {}
        """Receipts called lost under the present owner."""

    # Grants

    def grant(self, e: Grant) -> None:
        q = self._queues[e.queue]
        m = q.live.get(e.id)
        if m is None:
            if e.id in q.gone:
                self._after_end(q, e)
                return
            m = self._publishing.meet(q, e.id, e.uid, e.seq, e)
            if m is None:
                return
        elif m.uid != e.uid and not self._publishing.name(q, m, e.uid, e):
            return
        ledger = self._ledger
        owners = ledger.owners(e.id)
        if q.deleted is not None and not owners.outdated(e.fence):
            ledger.violate("deleted", "granted after that", m, q.deleted, e)
        trail = m.trail
        trail.append(e)
        m.crashes = len(ledger.crashes)
        if e.ack_none:
            self._at_most_once(q, m, e)
            return
        fence = e.fence
        again = e.again and not ledger.is_older(e.receipt)
        foreign = m.unsure and owners.outdated(fence)
        if again or foreign or fence <= m.fence or m.leaving is not None or m.rejected:
            self._unusual(m, e)
            return
        if m.out:
            self._supersede(m, e)
        attempt = e.attempt
        if ledger.server:
            if fence >> EPOCH_SHIFT not in owners.nodes and not ledger.is_partial(q):
                ledger.violate("fence", f"fence {fence} is of an epoch that nobody opened", m)
            if attempt != m.attempts + 1:
                self._miscounted(m, e)
            m.attempts = attempt - 1
        config = q.config
        over = attempt > config.max_attempts or m.deliveries >= config.max_deliveries
        if over and (q.configured or not ledger.is_partial(q)):
            message = f"attempt {attempt} after {m.deliveries} deliveries is above the limit"
            ledger.violate("attempts", message, m)
        if m.key is not None:
            self._ordering.granted(q, m, m.key, e)
        receipt = e.receipt
        if ledger.since_gap is not None:
            ledger.since_gap.add(receipt)
        if receipt == m.receipt or self._receipts.setdefault(receipt, m) is not m:
            ledger.violate("two_leases", f"receipt {receipt} was used before", m)
        m.out = True
        m.fence = fence
        m.receipt = receipt
        m.session, m.holder = e.session, e.sub
        m.started = started = not e.reserved
        m.starts += started
        m.grants += 1
        m.opens = owners.count
        m.settles = m.nacks = m.doubt = 0
        sub = self._subs.get(e.sub)
        if sub is not None:
            m.sub = sub
            sub.held += 1
            if sub.held > sub.credit:
                message = f"{e.sub} holds {sub.held}, its credit is {sub.credit}"
                ledger.violate("credit", message, m)

    def void(self, e: Void) -> None:
        q = self._queues[e.queue]
        m = q.live.get(e.id)
        if m is None:
            if e.id in q.gone:
                rules = "confirmed_settle_lost", "ended_twice"
                self._ledger.after_end(q, e.id, "voided", *rules, e)
            return
        m.trail.append(e)
        counted = m.attempts
        if m.out and e.fence >= m.fence:
            counted += m.started
            self._ledger.close_grant(m)
        self._recount(m, e, counted)
        m.ready_at, m.delayed = e.at + e.delay_ms, e.delay_ms > 0
        m.fence = max(m.fence, e.fence)
        m.crashes = len(self._ledger.crashes)
        if not m.out:
            m.opens = self._ledger.owners(m.id).count

    def start(self, e: Start) -> None:
        m = self._receipts.get(e.receipt)
        if m is not None:
            m.trail.append(e)
            if not m.started:
                m.started = True
                m.starts += 1
        elif self._ledger.server and not self._ledger.is_older(e.receipt):
            self._ledger.violate("stale_settle", "started under an invalid receipt", None, e)

    def lease_lost(self, e: LeaseLost) -> None:
        m = self._receipts.pop(e.receipt, None)
        if m is not None:
            m.trail.append(e)
            m.started = m.started and not e.unseen
            self._ledger.release(m)
            self._lost[e.receipt] = m
            if len(self._lost) > KEPT_LOST:
                self._lost = {r: m for r, m in self._lost.items() if m.out and m.receipt == r}

    def opened(self, shard: str) -> None:
        """A new owner serves. It knows no permits, and of leases what is durable or cached.

        So a lease that its predecessor called lost, without living to void it, may be good again.
        """
        for receipt, m in self._lost.items():
            if m.out and m.receipt == receipt and _is_of(m, shard):
                self._receipts[receipt] = m
        if shard:
            self._opened_one(shard)
            return
        self._lost.clear()
        for name, sub in self._subs.items():
            self._subs[name] = Sub(sub.session, sub.credit, unlimited=sub.unlimited)

    def _opened_one(self, shard: str) -> None:
        self._lost = {r: m for r, m in self._lost.items() if not _is_of(m, shard)}
        for m in self._receipts.values():
            if _is_of(m, shard):
                self._ledger.release(m)

    # Settles

    def settle(self, e: Settle) -> None:
        m = self._receipts.get(e.receipt)
        if m is None:
            self._ops[e.op] = (None, e)
            if self._ledger.is_older(e.receipt):
                self._ledger.older_ops.add(e.op)
            return
        if e.session and e.session != m.session and not self._is_cut_off(m):
            self._ledger.report.note("foreign_settle")
            self._ops[e.op] = (None, e)
            return
        self._ops[e.op] = (m, e)
        kind = e.kind
        if kind == "extend":
            return
        m.trail.append(e)
        m.settles += 1
        if kind == "ack":
            m.doubt += 1
        else:
            m.nacks += 1
            if kind == "reject":
                m.reject_asked = True
        if m.sub is not None:
            m.sub.held -= 1
            m.sub = None

    def _is_cut_off(self, m: Msg) -> bool:
        """Its shard has another owner by now, who may only know it from the lease cache: then it is
        good for whoever has the receipt, as its session may be gone."""
        return m.opens != self._ledger.owners(m.id).count

    def verdict(self, e: Verdict) -> None:
        asked = self._ops.pop(e.op, None)
        if asked is None:
            self._ledger.unasked("an answer to no settle", e)
            return
        m, settle = asked
        older = e.op in self._ledger.older_ops
        self._ledger.older_ops.discard(e.op)
        result = e.result
        if result == "ok":
            if m is None and older:
                return
            if m is None:
                self._ledger.violate("stale_settle", "its receipt was not valid", None, settle, e)
                return
            if self._is_cut_off(m):
                self._ledger.report.note("honoured")
            if settle.kind == "ack":
                self._acked(m, settle.receipt, e)
            elif settle.kind != "extend":
                self._returned(m, settle, e)
        elif result == "duplicate":
            self._ledger.report.note("duplicate_settle")
            if m is not None and m.receipt == settle.receipt:
                self._repeated(m, settle, e)
        elif result == "lease_lost":
            self._ledger.report.note("lease_lost")
            if m is not None and m.receipt == settle.receipt and settle.kind == "ack" and m.doubt:
                m.doubt -= 1
        else:
            self._ledger.report.note("settle_unknown")

    # Subscriptions

    def subscribe(self, e: Subscribe) -> None:
        if e.ack_none:
            self._queues[e.queue].at_most_once = True
        self._subs[e.sub] = Sub(e.session, e.credit, unlimited=e.ack_none)

    def credit(self, e: Credit) -> None:
        sub = self._subs.get(e.sub)
        if sub is not None:
            # A client can't know when the server takes a lower credit.
            sub.credit = e.credit if self._ledger.server else max(sub.credit, e.credit)

    def detach(self, e: Detach) -> None:
        self._ledger.away[e.sub] = set()

    def resume(self, e: Resume) -> None:
        if not e.prefix:
            self._ledger.away.pop(e.sub, None)
        elif e.sub in self._ledger.away:
            self._ledger.away[e.sub].add(e.prefix)

    def unsubscribe(self, e: Unsubscribe) -> None:
        self._subs.pop(e.sub, None)

    def session_end(self, e: SessionEnd) -> None:
        for name in [name for name, sub in self._subs.items() if sub.session == e.session]:
            del self._subs[name]

    def idle(self, e: Idle) -> None:
        """Nothing may have been ready all the time that a consumer with credit got nothing."""
        sub = self._subs.get(e.sub)
        if sub is None or (sub.held >= sub.credit and not sub.unlimited):
            return
        q = self._queues[e.queue]
        for m in q.live.values():
            if self._ledger.owners(m.id).at > e.since:
                continue
            if self._ordering.waits(q, m, e.since - e.slack_ms * m.delayed):
                message = f"{e.sub} could hold more, and {m.uid!r} waits since {m.ready_at}"
                self._ledger.violate("stalled", message, m, e)
                return

    # What is rare

    def _after_end(self, q: Queue, e: Grant) -> None:
        """A grant of a message that has ended."""
        ledger = self._ledger
        tomb = q.gone[e.id]
        code, fence = tomb & CODE_MASK, tomb >> TOMB_SHIFT
        if e.ack_none:
            if code == SETTLED:
                q.gone[e.id] = tomb | DELIVERED
                return
        elif not ledger.server and (e.fence <= fence or code == DELIVERED):
            ledger.report.note("late")
            return
        elif ledger.owners(e.id).zombie(e.fence, fence):
            ledger.report.note("zombie")
            return
        ledger.after_end(q, e.id, "granted", "grant_after_ack", "grant_after_end", e)

    def _at_most_once(self, q: Queue, m: Msg, e: Grant) -> None:
        """A delivery that needs no ack: settled before it left."""
        if self._ledger.holds(m):
            self._ledger.violate("two_leases", "delivered while another holds it", m)
        if m.leaving is not None:
            self._ledger.violate("transfer", "granted while it is leaving", m)
        if m.key is not None:
            self._ordering.granted(q, m, m.key, e)
        self._ledger.end_by_owner(q, m, DELIVERED)

    def _unusual(self, m: Msg, e: Grant) -> None:
        """What is no new grant: sent again, overtaken by a newer one, a zombie's, or wrong."""
        ledger = self._ledger
        server, owners = ledger.server, ledger.owners(m.id)
        if e.fence == m.fence and self._receipts.get(e.receipt) is m and (e.again or not server):
            ledger.report.note("again")
        elif not server and (e.again or e.fence < m.fence):
            ledger.report.note("late")
        elif owners.zombie(e.fence, m.fence) or (
            (m.leaving or m.unsure) and owners.outdated(e.fence)
        ):
            ledger.report.note("zombie")
        elif e.again:
            ledger.violate("two_leases", "sent again under a receipt that is not valid", m)
        elif e.fence <= m.fence:
            ledger.violate("fence", f"fence {e.fence} after {m.fence}", m)
        elif m.leaving is not None:
            ledger.violate("transfer", "granted while it is leaving", m)
        else:
            ledger.violate("confirmed_settle_lost", "granted after a confirmed reject", m)

    def _supersede(self, m: Msg, e: Grant) -> None:
        """A grant while the one before is neither settled nor voided."""
        ledger = self._ledger
        epoch = e.fence >> EPOCH_SHIFT
        if ledger.server:
            if epoch > m.fence >> EPOCH_SHIFT:
                ledger.report.note("takeover")
            else:
                message = f"granted again while fence {m.fence} is neither settled nor voided"
                ledger.violate("two_leases", message, m)
                m.opens = -1  # counts mean nothing from here on
        ledger.close_grant(m)

    def _miscounted(self, m: Msg, e: Grant) -> None:
        """An attempt number other than that of the last durable count."""
        known = (
            m.opens != self._ledger.owners(m.id).count
        )  # then the lease cache may have known more
        if not (known and m.attempts < e.attempt <= m.starts + 1):
            message = f"attempt {e.attempt} after {m.attempts} counted and {m.starts} started"
            self._ledger.violate("attempts", message, m)

    def _recount(self, m: Msg, e: Void, counted: int) -> None:
        """The counts of a void: exact within one owner's time, else perhaps too low."""
        new = m.opens != self._ledger.owners(m.id).count
        low = m.attempts if new else counted
        if e.attempts < 0:
            m.attempts = counted
        else:
            if not low <= e.attempts <= m.starts:
                message = f"{e.attempts} attempts counted, {m.starts} started, {low} known"
                self._ledger.violate("attempts", message, m)
            m.attempts = e.attempts
        if e.deliveries >= 0:
            if not m.deliveries <= e.deliveries <= m.breaks:
                message = (
                    f"{e.deliveries} deliveries counted, {m.breaks} connections broke before it "
                    f"was started, {m.deliveries} known"
                )
                self._ledger.violate("attempts", message, m)
            m.deliveries = e.deliveries

    def _acked(self, m: Msg, receipt: str, e: Verdict) -> None:
        ledger = self._ledger
        if m.ended > ACKED:
            ledger.violate("ended_twice", "acked after it ended another way", m, e)
        elif m.receipt != receipt or (m.ended < 0 and not m.out):
            ledger.violate("stale_settle", "acked under a voided or superseded receipt", m, e)
        elif m.ended < 0:  # else the server's own event, or another answer, came first
            m.trail.append(e)
            if m.overtaken and not ledger.redriven_unseen:
                ledger.violate("key_order", "a later one of its key was granted before its ack", m)
            ledger.end(self._queues[m.queue], m, ACKED)

    def _returned(self, m: Msg, settle: Settle, e: Verdict) -> None:
        """A confirmed nack or reject: what follows from it must be durable already."""
        m.trail.append(e)
        if m.ended >= 0:
            return
        reject = settle.kind == "reject"
        if m.receipt != settle.receipt:
            if reject:  # like an ack, it is the last word on a message
                self._ledger.violate("stale_settle", "rejected under a superseded receipt", m)
            return
        m.rejected = m.rejected or reject
        if self._ledger.server and (m.leaving is None if reject else m.out):
            self._ledger.violate("confirmed_settle_lost", "confirmed, but nothing is durable", m)

    def _repeated(self, m: Msg, settle: Settle, e: Verdict) -> None:
        """`duplicate` confirms an earlier settle with this receipt."""
        if m.ended >= 0:
            return
        if m.settles < (1 if settle.kind == "extend" else 2):
            self._ledger.violate("stale_settle", "a duplicate of nothing", m, e)
        elif m.out and not m.nacks:
            m.trail.append(e)
            self._ledger.end(self._queues[m.queue], m, ACKED)


def _is_of(m: Msg, shard: str) -> bool:
    return not shard or shard_of_id(m.id) == shard
