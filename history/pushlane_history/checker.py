"""The checker: feed it a history, event by event, and ask for its report.

Which rules apply follows from what the history knows:
- With the server's events (`begin` says `server`, or there is no `begin`) all rules apply. Voids,
  ends, transfers and every `open` must be there: a history that leaves them out is found guilty.
- Clients' histories (`begin` says `client`) obey phantom, unacked_unknown, dedup, stale_settle,
  grant_after_ack, fence (no two grants with one), key_order (as producers know the order, and
  where a message that was overtaken is granted or acked later: it had not ended unseen),
  attempts (the limit), credit, bounds, drain, malformed; and lost, for messages that nothing
  unseen can have ended: queues with `allow`, an overflow policy, subscriptions without acks,
  messages with a time to live, and dead letters that were not dumped are excused.
- lost and ack_before_durable need to know what is left: a `stored` dump of the queue (in as many
  parts as you like), or a `drained` that found nothing.
- credit needs `subscribe`; drain needs `quiesce`; limits without `queue_set` are the defaults.
- After a `gap` unknown messages and receipts may be older than what the history knows. What is said
  of them is believed once, and judged from there on; what had ended has ended.
- A part of a history is all that concerns some of its queues, and what is said to all (`begin`,
  `gap`, `crash`, `open`, `fault`, `quiesce`, `drained`, and `allow` redriven). Whether the whole
  drained in time is judged once, by whoever has it.

Memory: a record for each message that has not ended, one integer for each that has, dedup ids
within their window, and what ended unknown.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pushlane_history.ending import Ending
from pushlane_history.event import (
    FORMAT,
    Allow,
    Begin,
    Bound,
    Crash,
    Credit,
    DamagedHistory,
    Deleted,
    Detach,
    Drained,
    Ended,
    Event,
    Fault,
    Gap,
    Grant,
    Idle,
    LeaseLost,
    Leaving,
    Moved,
    Open,
    Publish,
    Published,
    PublishFailed,
    QueueSet,
    Quiesce,
    Resume,
    SessionEnd,
    Settle,
    Start,
    Stored,
    Subscribe,
    Unsubscribe,
    Verdict,
    Void,
)
from pushlane_history.leasing import Leasing
from pushlane_history.ledger import Ledger
from pushlane_history.publishing import Publishing
from pushlane_history.rule import Report

Handler = Callable[[Any], None]


class Checker:
    __slots__ = ("_counts", "_ending", "_handlers", "_leasing", "_ledger")

    def __init__(self, *, part: bool = False) -> None:
        """`part`: of a history that others judge the rest of."""
        self._ledger = ledger = Ledger(part)
        publishing = Publishing(ledger)
        self._leasing = leasing = Leasing(ledger, publishing)
        self._ending = ending = Ending(ledger, publishing)
        self._handlers: dict[type[Event], Handler] = {
            Begin: self._begin,
            Gap: self._gap,
            QueueSet: self._queue_set,
            Deleted: self._deleted,
            Allow: self._allow,
            Publish: publishing.publish,
            Published: publishing.published,
            PublishFailed: publishing.failed,
            Subscribe: leasing.subscribe,
            Credit: leasing.credit,
            Unsubscribe: leasing.unsubscribe,
            Detach: leasing.detach,
            Resume: leasing.resume,
            SessionEnd: leasing.session_end,
            Idle: leasing.idle,
            Grant: leasing.grant,
            Start: leasing.start,
            Settle: leasing.settle,
            Verdict: leasing.verdict,
            LeaseLost: leasing.lease_lost,
            Void: self._void,
            Leaving: ending.leaving,
            Moved: ending.moved,
            Ended: ending.ended,
            Crash: self._crash,
            Open: self._open,
            Fault: self._fault,
            Bound: self._bound,
            Quiesce: ending.quiesce,
            Drained: ending.drained,
            Stored: ending.stored,
        }
        self._counts = dict.fromkeys(self._handlers, 0)

    def feed(self, event: Event) -> None:
        kind = type(event)
        self._counts[kind] += 1
        self._handlers[kind](event)

    @property
    def violated(self) -> bool:
        """Whether a rule is broken already: a simulator can stop there."""
        return bool(self._ledger.report.broken)

    def finish(self) -> Report:
        """The report. Nothing may be fed after it."""
        self._ending.finish()
        report = self._ledger.report
        for kind, count in self._counts.items():
            if count:
                report.events[str(kind.__struct_config__.tag)] = count
        return report

    def _begin(self, e: Begin) -> None:
        if e.format != FORMAT:
            raise DamagedHistory(f"format {e.format}, this version reads {FORMAT}")
        self._ledger.server = e.sees == "server"

    def _gap(self, e: Gap) -> None:
        ledger = self._ledger
        ledger.since_gap = set()
        ledger.partial = ledger.partial or not e.queue
        for name in [e.queue] if e.queue else list(ledger.queues):
            ledger.forget_live(ledger.queues[name])
        if not e.queue:
            for known in (ledger.publish_ops, ledger.settle_ops, ledger.pubs, ledger.subs):
                known.clear()

    def _queue_set(self, e: QueueSet) -> None:
        q = self._ledger.queues[e.queue]
        before = q.config if q.configured else e
        q.config, q.configured = e, True
        q.fewest_attempts = min(before.max_attempts, e.max_attempts)
        q.fewest_deliveries = min(before.max_deliveries, e.max_deliveries)

    def _deleted(self, e: Deleted) -> None:
        self._ledger.queues[e.queue].deleted = e

    def _allow(self, e: Allow) -> None:
        self._ledger.queues[e.queue].allowed.add(e.what)
        if e.what == "redriven":
            self._ledger.redriven_unseen = not self._ledger.server

    def _crash(self, e: Crash) -> None:
        self._ledger.crashed(e)

    def _open(self, e: Open) -> None:
        self._ledger.opened(e)
        self._leasing.opened(e.shard)

    def _void(self, e: Void) -> None:
        self._ending.returned(e)
        self._leasing.void(e)

    def _fault(self, e: Fault) -> None:
        faults = self._ledger.report.faults
        faults[e.kind] = faults.get(e.kind, 0) + 1

    def _bound(self, e: Bound) -> None:
        if e.value > e.limit:
            self._ledger.violate("bounds", f"{e.name} is {e.value} of {e.limit}", None, e)


def check(events: Iterable[Event]) -> Report:
    """The report on a whole history."""
    checker = Checker()
    for event in events:
        checker.feed(event)
    return checker.finish()
