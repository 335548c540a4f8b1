"""The judge: what clients saw, held against what was promised.

It knows nothing of the server's code, nor of the checker that the other tests use: it keeps, for
each message, what its producer was told and what consumers did with it, and looks at every event as
it comes. All clients live in one process, so events have one order.

Rules, by name:

- `lost`: a confirmed message neither ended by a client's hand nor is anywhere after a drain.
- `stuck`: it is still stored when everything should have drained.
- `stored_twice`: a repeat was answered with another id, or two copies were acked.
- `refused_delivered`: a publish that was refused for certain came out all the same.
- `after_ack`: granted after a confirmed ack.
- `stale_ack`: an ack counted although a newer grant was out before it was sent.
- `two_leases`: two receipts with one fence.
- `key_order`: a message of a key came while an earlier one was unsettled.
- `dead_without_reason`: a dead letter whose cause nobody gave.
- `limit`: a queue held more than it may, or refused long before it was full.
- `server_error`: an answer that admits a bug, or a server that ended by itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

MAX_ATTEMPTS = 4
MAX_DELIVERIES = 8
"""Of the queues under test."""


@dataclass
class Message:
    """One publication, however often it was sent, delivered or moved."""

    uid: str
    queue: str
    key: str | None = None
    n: int = 0
    ttl: bool = False
    may_vanish: bool = False
    """It is in a queue that is purged, deleted, or drops what is too much."""
    id: str | None = None
    confirmed: bool = False
    refused: bool = False
    unknown: bool = False
    """One of its tries was never answered."""
    cancelled: bool = False
    rejected: bool = False
    acks_open: int = 0
    """Acks that were sent and whose outcome nobody knows."""
    acked: set[str] = field(default_factory=set)
    """Ids of its copies that were acked for certain."""
    fences: dict[str, dict[int, str]] = field(default_factory=dict)
    """Of each copy: fence → receipt."""
    breaks_before: int = 0
    """Connections that had been lost when it was published."""

    @property
    def settled(self) -> bool:
        return bool(self.acked) or self.acks_open > 0

    def newest(self, id: str) -> int:
        return max(self.fences.get(id, {0: ""}))


@dataclass
class Grant:
    """A delivery, as the consumer holds it."""

    message: Message
    queue: str
    id: str
    receipt: str
    fence: int
    sub: int = 0
    """Of its session, where it has one."""


class Judge:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self.counts: Counter[str] = Counter()
        self._messages: dict[str, Message] = {}
        self._keys: dict[str, list[Message]] = {}
        """Confirmed messages of a key that were not seen settled, in order."""
        self._done: set[str] = set()
        """Of rounds that are over: none of these may ever come again."""
        self._retired: set[str] = set()
        self.breaks = 0
        """Connections of consumers that were lost, by anybody's fault."""

    def broken(self, rule: str, text: str) -> None:
        self.violations.append(f"{rule}: {text}")

    # Publishing

    def asked(self, message: Message) -> None:
        if message.uid not in self._messages:
            message.breaks_before = self.breaks
            self._messages[message.uid] = message
        self.counts["publishes"] += 1

    def confirmed(self, message: Message, id: str | None, duplicate: bool) -> None:
        self.counts["confirmed"] += 1
        self.counts["duplicates"] += duplicate
        if id is not None and message.id not in (None, id):
            self.broken("stored_twice", f"{message.uid} is {message.id}, and now {id}")
        if not message.confirmed and message.key is not None:
            self._keys.setdefault(f"{message.queue}/{message.key}", []).append(message)
        message.id, message.confirmed = id or message.id, True

    def refused(self, message: Message, code: str) -> None:
        """It was not stored, for certain, unless an earlier try was."""
        self.counts[f"refused {code}"] += 1
        message.refused = not message.unknown

    def unanswered(self, message: Message) -> None:
        self.counts["unknown"] += 1
        message.unknown = True

    # Consuming

    def delivered(self, queue: str, frame: dict[str, object], uid: str) -> Grant | None:
        """None: it is nobody's business any more."""
        self.counts["deliveries"] += 1
        id, receipt = str(frame["id"]), str(frame.get("receipt", ""))
        fence = int(str(frame.get("fence", 0)))
        message = self._messages.get(uid)
        if message is None:
            if uid in self._done:
                self.broken("after_ack", f"{uid} came again as {id}, after it was settled")
            elif uid not in self._retired:
                self.broken("stored_twice", f"nobody published {uid}")
            return None
        if message.refused and not message.unknown:
            self.broken("refused_delivered", f"{uid} as {id}")
        if id in message.acked and fence > message.newest(id):
            self.broken("after_ack", f"{uid} as {id}, fence {fence}")
        seen = message.fences.setdefault(id, {})
        if receipt and seen.get(fence, receipt) != receipt:
            self.broken("two_leases", f"{uid}, {id}: {receipt} and {seen[fence]} share {fence}")
        if receipt:
            seen[fence] = receipt
        if queue == message.queue:
            self._check_order(message)
        dead = frame.get("dead")
        if isinstance(dead, dict):
            self._check_death(message, dead)
        return Grant(message, queue, id, receipt, fence)

    def _check_order(self, message: Message) -> None:
        if message.key is None or message.may_vanish:
            return
        waiting = self._keys.get(f"{message.queue}/{message.key}", [])
        while waiting and waiting[0].acked:
            waiting.pop(0)
        for earlier in waiting:
            if earlier.n >= message.n:
                break
            if not earlier.settled:
                self.broken("key_order", f"{message.uid} came before {earlier.uid}")

    def _check_death(self, message: Message, dead: dict[str, object]) -> None:
        cause = dead["cause"]
        self.counts[f"dead {cause}"] += 1
        # A grant that nobody saw went down with a connection.
        unseen = self.breaks - message.breaks_before
        seen = sum(len(fences) for fences in message.fences.values())
        attempts = int(str(dead["attempts"]))
        reasons = {
            "rejected": message.rejected,
            "expired": message.ttl,
            "max_attempts": MAX_ATTEMPTS <= attempts <= seen + unseen,
            "max_deliveries": unseen >= MAX_DELIVERIES,
            "overflow": message.may_vanish,
        }
        if not reasons.get(str(cause), False):
            self.broken("dead_without_reason", f"{message.uid}: {dead}")

    def acking(self, grant: Grant) -> int:
        """An ack is about to be sent; hand what this answers to `acked`."""
        grant.message.acks_open += 1
        return grant.message.newest(grant.id)

    def acked(self, grant: Grant, newest: int) -> None:
        message = grant.message
        message.acks_open -= 1
        if newest > grant.fence:
            text = f"{message.uid}: fence {grant.fence} was acked, {newest} was out before"
            self.broken("stale_ack", text)
        self.counts["acked"] += 1
        message.acked.add(grant.id)
        if len(message.acked) > 1:
            self.broken("stored_twice", f"{message.uid} was acked as {sorted(message.acked)}")

    def not_acked(self, grant: Grant) -> None:
        """The lease was lost, or the ack was a repeat: it changed nothing."""
        self.counts["acks lost"] += 1
        grant.message.acks_open -= 1

    # The end of a round

    def unfinished(self) -> list[Message]:
        """Confirmed messages of which nobody can say that they ended."""
        return [
            message
            for message in self._messages.values()
            if message.confirmed
            and not message.settled
            and not message.may_vanish
            and not message.cancelled
        ]

    def retire(self) -> None:
        """Everything drained: forget this round, but for what may never come again."""
        for message in self._messages.values():
            (self._done if message.acked else self._retired).add(message.uid)
        self._messages.clear()
        self._keys.clear()
