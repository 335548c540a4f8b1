"""Notes of one shard: its doings as events of the history.

A message's uid is its id in the queue that it was published to. Bodies are not looked at, so what
came from another queue has no uid here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pushlane.wire.errors import PushlaneError
from pushlane.wire.limits import DEFAULT_LANE
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import (
    Deliver,
    Lost,
    PublishTicket,
    SettleTicket,
    Transfer,
)
from pushlane_dispatcher.core.ident import make_id, parse_id
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.recording.recorder import Recorder
from pushlane_history import event as history
from pushlane_storage.bucket import CONTROL
from pushlane_storage.message import TRANSFER, Message, is_transfer
from pushlane_storage.segment import Segment
from pushlane_storage.settlement import Purge, Settlement

NO_LIMIT = 1 << 31
"""Attempts and deliveries of a queue without dead letters: it never gives up."""
_UNFORESEEN = ("no_queue", "late")
"""Causes that the server itself decides on; rules want them announced."""


class Notes:
    def __init__(
        self, recorder: Recorder, tenant: str, name: str, shard: Shard, wall: Callable[[], int]
    ) -> None:
        self._recorder = recorder
        self._record = recorder.record
        self._tenant = tenant
        self.label = f"{tenant}/{name}"
        self._shard = shard
        self._wall = wall
        self._publishes: dict[PublishTicket, list[int]] = {}
        self._settles: dict[SettleTicket, dict[str, int]] = {}
        """By ticket: the numbers of requests that wait for their answer."""
        recorder.labels[shard.key.queue_id] = self.label

    def opened(self, node: str, *, alone: bool) -> None:
        """The shard is served from here on. `alone`: nobody else can have served it meanwhile."""
        self._record(history.Open(self._wall(), node, self._shard.epoch))
        if not alone:
            self._record(history.Gap(self._wall(), self.label))
        self.configured()

    def configured(self) -> None:
        config, dead = self._shard.config, self._shard.verdicts.dead_letter
        limits = NO_LIMIT, NO_LIMIT
        if dead is not None:
            limits = config.max_attempts, config.max_deliveries
        to = "" if dead is None else self._label(dead)
        window = config.dedup_window_ms
        event = history.QueueSet(self._wall(), self.label, *limits, window, config.overflow, to)
        self._record(event)

    def allow(self, what: str) -> None:
        self._record(history.Allow(self._wall(), self.label, what))

    def _label(self, name: str) -> str:
        return f"{self._tenant}/{name}"

    def _id(self, lane: int, seq: int) -> str:
        return make_id(*self._shard.key, lane, seq)

    # Publishing

    def published(self, messages: Sequence[Message], ticket: PublishTicket) -> None:
        self._publishes[ticket] = [
            self._request(message, ticket, index) for index, message in enumerate(messages)
        ]

    def _request(self, message: Message, ticket: PublishTicket, index: int) -> int:
        """Its number; 0 for a transfer, which is none."""
        if is_transfer(message):
            return 0
        op, seq = self._recorder.op(), ticket.seqs[index]
        new = seq >= 0 and index not in ticket.duplicates
        uid = self._id(_lane(ticket, index), seq) if new else f"repeat-{op}"
        self._publish(op, uid, message)
        return op

    def _publish(self, op: int, uid: str, message: Message) -> None:
        number = message.producer_seq if message.producer is not None else None
        self._record(
            history.Publish(
                self._wall(), op, self.label, uid, message.key, message.dedup, message.producer,
                number, expires=bool(message.expires_at),
                ttl_ms=max(0, message.expires_at - message.published_at),
            )
        )  # fmt: skip

    def answered(self, ticket: PublishTicket | SettleTicket, error: PushlaneError | None) -> None:
        if isinstance(ticket, SettleTicket):
            self._decided(self._settles.pop(ticket, {}), ticket, error)
            return
        for index, op in enumerate(self._publishes.pop(ticket, ())):
            if op:
                self._record(self._answer(op, index, ticket, error))

    def _answer(
        self, op: int, index: int, ticket: PublishTicket, error: PushlaneError | None
    ) -> history.Event:
        failed = error or ticket.failed.get(index)
        if failed is not None:
            return history.PublishFailed(self._wall(), op, failed.code)
        place = ticket.duplicates.get(index, (_lane(ticket, index), ticket.seqs[index]))
        duplicate = index in ticket.duplicates
        if place is None:
            return history.Published(self._wall(), op, "", duplicate)
        return history.Published(self._wall(), op, self._id(*place), duplicate, place[1])

    def stored(self, segment: Segment) -> None:
        """A flush counts. What came from other queues is told now; of the rest its publisher is."""
        for seq, message in enumerate(segment.messages, segment.first):
            if is_transfer(message):
                self._arrived(segment.bucket.lane, seq, message)

    def _arrived(self, lane: int, seq: int, message: Message) -> None:
        assert message.dedup is not None
        old, id = message.dedup.removeprefix(TRANSFER), self._id(lane, seq)
        source = self._recorder.labels.get(parse_id(old).queue_id)
        if source is not None:
            self._record(history.Moved(self._wall(), source, old, self.label, id, "", seq))
            return
        # From a queue that nobody records: here it is as good as published.
        op = self._recorder.op()
        self._record(history.Publish(self._wall(), op, self.label, id, message.key))
        self._record(history.Published(self._wall(), op, id, seq=seq))

    def transferred(self, transfer: Transfer, errors: Sequence[PushlaneError | None]) -> None:
        """Another queue stored messages. One that is recorded says so itself."""
        if self._recorder.follows(self._tenant, transfer.to):
            return
        to = self._label(transfer.to)
        for entry, error in zip(transfer.entries, errors, strict=True):
            if error is None:
                old = self._id(entry.lane.number, entry.seq)
                self._record(history.Moved(self._wall(), self.label, old, to, f"from-{old}", ""))

    # Consuming

    def subscribed(self, sub: Subscription) -> None:
        self._record(
            history.Subscribe(
                self._wall(), sub.prefix, sub.session, self.label, sub.credit, sub.ack_none
            )
        )

    def credited(self, sub: Subscription, credit: int) -> None:
        self._record(history.Credit(self._wall(), sub.prefix, credit))

    def detached(self, sub: Subscription) -> None:
        self._record(history.Detach(self._wall(), sub.prefix))

    def resumed(self, sub: Subscription) -> None:
        self._record(history.Resume(self._wall(), sub.prefix))

    def recalled(self, sub: Subscription, numbers: list[int]) -> None:
        """What goes back because it did not come to its client's gateway."""
        for n in numbers:
            self._record(history.LeaseLost(self._wall(), f"{sub.prefix}.{n}", unseen=True))

    def unsubscribed(self, sub: Subscription) -> None:
        self._record(history.Unsubscribe(self._wall(), sub.prefix))

    def granted(self, effect: Deliver) -> None:
        sub, now = effect.subscription, self._wall()
        for run in effect.runs:
            for index, message in enumerate(run.messages):
                id = self._id(run.lane, run.seq + index)
                receipt = "" if sub.ack_none else f"{sub.prefix}.{run.n + index}"
                fence = 0 if sub.ack_none else run.fence
                self._record(
                    history.Grant(
                        now, self.label, id, "" if is_transfer(message) else id, sub.prefix,
                        sub.session, receipt, fence, run.attempt, not run.started, sub.ack_none,
                        effect.again, run.seq + index,
                    )
                )  # fmt: skip

    def lost(self, effect: Lost) -> None:
        for receipt in _each(effect.receipts):
            self._record(history.LeaseLost(self._wall(), receipt))

    def asked(
        self, act: Act, receipts: Iterable[ReceiptRun], sub: Subscription, ticket: SettleTicket
    ) -> None:
        """One start, ack, nack or extend."""
        if act.verb == "start":
            self._started(receipts, ticket)
            return
        ops = self._settling("reject" if act.dead else act.verb, receipts, sub.session, ticket)
        if ticket.token is not None:
            self._settles[ticket] = ops

    def _started(self, receipts: Iterable[ReceiptRun], ticket: SettleTicket) -> None:
        refused = {*_each(ticket.lost), *_each(ticket.duplicate)}
        for receipt in _each(receipts):
            if receipt not in refused:
                self._record(history.Start(self._wall(), receipt))

    def _settling(
        self,
        kind: history.Kind,
        receipts: Iterable[ReceiptRun],
        session: str,
        ticket: SettleTicket,
    ) -> dict[str, int]:
        """The numbers of these requests, by receipt."""
        ops = {}
        for receipt in _each(receipts):
            op = ops[receipt] = self._recorder.op()
            self._record(history.Settle(self._wall(), op, kind, receipt, session))
            if ticket.token is None:
                self._record(history.Verdict(self._wall(), op, "unknown"))
        return ops

    def _decided(
        self, ops: dict[str, int], ticket: SettleTicket, error: PushlaneError | None
    ) -> None:
        lost, repeated = set(_each(ticket.lost)), set(_each(ticket.duplicate))
        for receipt, op in ops.items():
            result: history.Result = "ok"
            if receipt in lost:
                result = "lease_lost"
            elif receipt in repeated:
                result = "duplicate"
            self._record(history.Verdict(self._wall(), op, "unknown" if error else result))

    # What is durable

    def settled(self, rows: Sequence[Settlement]) -> None:
        """A flush of the log, before the shard takes it in."""
        ended: set[tuple[int, int]] = set()
        # A purge ends what the rest of its flush did not: it comes last.
        for row in sorted(rows, key=lambda row: row.bucket == CONTROL):
            lane = row.bucket.lane
            self._left(row, lane)
            for low, high in row.acked:
                self._ended(lane, _span(low, high), "acked", "", ended)
            for gone in row.gone:
                how, _, cause = gone.cause.partition(":")
                self._foreseen(how, row)
                self._ended(lane, _span(gone.low, gone.high), how, cause, ended)
            for purge in row.purges:
                self._ended(purge.lane, self._purged(purge, ended), "purged", "", ended)

    def _left(self, row: Settlement, lane: int) -> None:
        now = self._wall()
        for void in row.voids:
            numbers = void.fence, void.attempts, void.deliveries
            self._record(history.Void(now, self.label, self._id(lane, void.seq), *numbers))
        for leaving in row.leaving:
            id = self._id(lane, leaving.seq)
            to = self._label(leaving.to) if leaving.to else ""
            if leaving.cause in _UNFORESEEN:
                self.allow(leaving.cause)
            elif leaving.cause == "damaged":
                self._record(history.Fault(now, "damage"))
            self._record(history.Leaving(now, self.label, id, leaving.cause, to, leaving.number))

    def _foreseen(self, how: str, row: Settlement) -> None:
        """Retention ends what nobody gave a time to live."""
        age = self._wall() - row.bucket.start
        if how == "expired" and age > self._shard.config.retention_ms:
            self.allow("expired")

    def _ended(
        self, lane: int, seqs: Iterable[int], how: Any, cause: str, ended: set[tuple[int, int]]
    ) -> None:
        now = self._wall()
        for seq in seqs:
            ended.add((lane, seq))
            self._record(history.Ended(now, self.label, self._id(lane, seq), how, cause))

    def _purged(self, purge: Purge, ended: set[tuple[int, int]]) -> Iterator[int]:
        """What is unsettled below a purge, and was not spared."""
        lane = self._shard.window.lanes.get(purge.lane)
        spared = set(purge.spared)
        for bucket in () if lane is None else lane.buckets:
            top = min(purge.upto, bucket.last)
            for low, high in bucket.state.settled.gaps(bucket.first, top):
                for seq in _span(low, high):
                    if seq not in spared and (purge.lane, seq) not in ended:
                        yield seq


def _lane(ticket: PublishTicket, index: int) -> int:
    return DEFAULT_LANE if ticket.lanes is None else ticket.lanes[index]


def _each(receipts: Iterable[ReceiptRun]) -> Iterator[str]:
    for prefix, low, high in receipts:
        for n in _span(low, high):
            yield f"{prefix}.{n}"


def _span(low: int, high: int) -> range:
    return range(low, high + 1)
