"""The rule key_order."""

from pushlane_history.event import EPOCH_SHIFT, Grant
from pushlane_history.ledger import KeyOrder, Ledger, Msg, Queue


class Ordering:
    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def granted(self, q: Queue, m: Msg, key: str, e: Grant) -> None:
        """A message with a key is granted."""
        ledger = self._ledger
        if m.returned:
            return  # its place is not what it was
        order = ledger.order(q, key)
        if not ledger.server:
            # Clients can't tell in which order deliveries left that wait for no ack.
            if not (m.transferred or e.ack_none):
                self._as_seen(order, m, e)
            return
        if not (m.grants or m.transferred):
            self._as_asked(order, m, e)
        if not m.seq:
            m.seq = e.seq
            ledger.enqueue(q, m)
        if m.seq:
            self._as_stored(order, m, key)

    def waits(self, q: Queue, m: Msg, since: int) -> bool:
        """Whether a message could be granted all the time since then, but for credit."""
        if m.ready_at > since or m.out or m.leaving is not None or m.unsure or not m.uid:
            return False
        if m.key is None:
            return True
        order = q.keys.get(m.key)
        if order is None:
            return False  # nobody saw its place
        ahead = (other for other in order.waiting if other.ended < 0 and other.leaving is None)
        return order.freed_at <= since and next(ahead, None) is m

    def _as_stored(self, order: KeyOrder, m: Msg, key: str) -> None:
        """All that stand before it must have ended or left."""
        ledger = self._ledger
        if m.seq < order.high:
            ledger.violate("key_order", f"a later message of key {key!r} was granted before", m)
            return
        order.high = m.seq
        waiting = order.waiting
        while waiting and waiting[0] is not m:
            ahead = waiting[0]
            if ahead.ended < 0 and ahead.leaving is None and not ahead.returned:
                if not ahead.doubt:
                    message = f"{ahead.uid!r} of key {key!r} stands before it"
                    ledger.violate("key_order", message, m, *ahead.trail)
                    return
                ahead.passed = True
            waiting.popleft()

    def _as_seen(self, order: KeyOrder, m: Msg, e: Grant) -> None:
        """Order as clients can prove that it was broken.

        Whatever was answered before this one was asked for has ended or left by now, perhaps
        unseen. Its next grant, or an ack that is asked for only now, shows that it had not.
        """
        if e.fence >> EPOCH_SHIFT < order.epoch:
            return  # a predecessor's delivery, late or void: it says nothing of the order
        if not m.grants:
            self._as_asked(order, m, e)
        elif m.passed and not self._ledger.redriven_unseen:
            message = "granted again after a later one of its key"
            self._ledger.violate("key_order", message, m)
        assert m.pub is not None, "a message with a key is one whose publish is known"
        waiting = order.waiting
        while waiting and waiting[0].ended >= 0:
            waiting.popleft()
        for ahead in waiting:
            if ahead.answered > m.pub.asked:
                return
            if ahead is not m and ahead.ended < 0 and not ahead.passed:
                ahead.passed = True
                ahead.overtaken = not (ahead.doubt or ahead.reject_asked)
                ahead.trail.append(e)

    def _as_asked(self, order: KeyOrder, m: Msg, e: Grant) -> None:
        """Order as producers know it, also where nobody sees a seq.

        A publish that was answered before another was asked for is the earlier one; so is the
        first of two that one producer sent over one session, if neither needed a repetition.
        """
        epoch = e.fence >> EPOCH_SHIFT
        if epoch < order.epoch and not e.ack_none:
            return  # a predecessor's delivery, late or void: it says nothing of the order
        order.epoch = max(order.epoch, epoch)
        pub = m.pub
        assert pub is not None, "a message with a key is one whose publish is known"
        first = pub.first
        if 0 < m.answered <= order.asked:
            message = "one that was asked for after this one's answer was granted before"
            self._ledger.violate("key_order", message, m)
        order.asked = max(order.asked, pub.asked)
        if first.order and pub.requests == 1 and first.producer is not None:
            high = order.orders.get(first.producer, 0)
            if first.order > high:
                order.orders[first.producer] = first.order
            elif m.answered:
                message = f"number {first.order} of {first.producer} is granted after {high}"
                self._ledger.violate("key_order", message, m)
