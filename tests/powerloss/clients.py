"""Producers and consumers of the recorded run, and the history of what they see."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import Run, SettleTicket
from pushlane_dispatcher.core.ident import make_id, parse_id
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.sink import Attach, Attached
from pushlane_history import event as history
from pushlane_storage.message import Message

Record = Callable[[history.Event], None]


class Book:
    """What all clients share: the history, the time, and numbers for requests."""

    def __init__(self, record: Record, wall: Callable[[], int], first_op: int = 0) -> None:
        self.record = record
        self.wall = wall
        self._op = first_op

    def op(self) -> int:
        self._op += 1
        return self._op


def publish(
    book: Book, queue: OpenQueue, messages: list[Message], lanes: list[int] | None = None
) -> None:
    """Publish, and note what is answered. A message's body is its uid."""
    name = queue.row.name
    ops = [book.op() for _ in messages]
    for op, message in zip(ops, messages, strict=True):
        book.record(
            history.Publish(
                book.wall(),
                op,
                name,
                message.body.decode(),
                message.key,
                message.dedup,
                message.producer,
                message.producer_seq or None,
                0,
                bool(message.expires_at),
            )
        )

    def answered(publication: Publication) -> None:
        now = book.wall()
        for index, op in enumerate(ops):
            id = publication.ids[index]
            if id is None:
                book.record(history.PublishFailed(now, op, publication.failed[index].code))
            else:
                again = index in publication.duplicates
                book.record(history.Published(now, op, id, again, parse_id(id).seq))

    queue.publish_soon(messages, answered, lanes)


class Consumer:
    """One session with one subscription to one shard. It decides late, as `act` is called."""

    def __init__(
        self,
        book: Book,
        runner: ShardRunner,
        queue: str,
        session: str,
        credit: int,
        lease_ms: int = 1_000,
        explicit: bool = False,
        ack_none: bool = False,
    ) -> None:
        self.book = book
        self.runner = runner
        self.queue = queue
        self.session = session
        self.credit = credit
        self.explicit = explicit
        self.ack_none = ack_none
        self.held: list[int] = []
        self.granted = 0
        self.unanswered = 0
        self.sub: Subscription
        runner.attach(self, Attach(session, credit, lease_ms, explicit, ack_none), self._attached)
        book.record(
            history.Subscribe(book.wall(), self.sub.prefix, session, queue, credit, ack_none)
        )

    # What the shard says

    def _attached(self, attached: Attached | None, error: PushlaneError | None) -> None:
        assert attached is not None, error
        self.sub = self.runner._shard.consumers.subscriptions[attached.prefix]

    def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        sub = self.sub
        for run in runs:
            for index, message in enumerate(run.messages):
                n = run.n + index
                self.granted += 1
                if not self.ack_none:
                    self.held.append(n)
                self.book.record(
                    history.Grant(
                        self.book.wall(),
                        self.queue,
                        make_id(*self.runner.key, run.lane, run.seq + index),
                        message.body.decode(),
                        sub.prefix,
                        self.session,
                        "" if self.ack_none else f"{sub.prefix}.{n}",
                        0 if self.ack_none else run.fence,
                        run.attempt,
                        self.explicit,
                        self.ack_none,
                        again,
                        run.seq + index,
                    )
                )

    def lost(self, receipts: list[ReceiptRun], held: int, waiting: int) -> None:
        for prefix, low, high in receipts:
            for n in range(low, high + 1):
                self.book.record(history.LeaseLost(self.book.wall(), f"{prefix}.{n}"))
                if n in self.held:
                    self.held.remove(n)

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        """Never: this is the only shard."""

    def holds(self, held: int, waiting: int) -> None:
        assert held == len(self.sub.held)

    def ended(self, code: str, message: str, held: list[ReceiptRun]) -> None:
        self.held.clear()

    # What it does

    def act(self, rng: Random) -> None:
        """Take up some of what it holds: done, failed, refused, or forgotten."""
        acked: list[int] = []
        for n in [n for n in self.held if rng.random() < 0.6]:
            self.held.remove(n)
            if self.explicit:
                self._start(n)
            draw = rng.random()
            if draw < 0.62:
                acked.append(n)
            elif draw < 0.76:
                self._settle("nack", [n], error="failed")
            elif draw < 0.82:
                self._settle("nack", [n], delay_ms=300)
            elif draw < 0.90:
                self._settle("reject", [n], error="bad", dead=True)
            elif draw < 0.93:
                self._settle("extend", [n])
                self.held.append(n)
            # else its lease runs out
        if acked:
            for run in _runs(acked):
                self._settle("ack", run)
            if rng.random() < 0.1:  # a repeat, as after a lost answer
                self._settle("ack", acked[-1:])

    def _start(self, n: int) -> None:
        entry = self.sub.held.get(n)
        reserved = entry is not None and entry.state is State.RESERVED
        receipt = (self.sub.prefix, n, n)

        def told(ticket: SettleTicket, error: PushlaneError | None) -> None:
            if reserved and error is None and not ticket.lost:
                self.book.record(history.Start(self.book.wall(), f"{self.sub.prefix}.{n}"))

        sub = self.sub
        self.runner.settle(sub.prefix, sub.generation, START, [receipt], told, silently=True)

    def _settle(self, kind: Any, numbers: list[int], **options: Any) -> None:
        """One request for a run of receipts."""
        sub, book = self.sub, self.book
        ops = {n: book.op() for n in numbers}
        for n, op in ops.items():
            book.record(history.Settle(book.wall(), op, kind, f"{sub.prefix}.{n}", self.session))

        def answered(ticket: SettleTicket, error: PushlaneError | None) -> None:
            self.unanswered -= 1
            lost, duplicate = _numbers(ticket.lost), _numbers(ticket.duplicate)
            for n, op in ops.items():
                result: Any = "unknown" if error is not None else "ok"
                if error is None and n in lost:
                    result = "lease_lost"
                elif error is None and n in duplicate:
                    result = "duplicate"
                book.record(history.Verdict(book.wall(), op, result))

        self.unanswered += 1
        receipts = [(sub.prefix, numbers[0], numbers[-1])]
        acts = {"extend": Act("extend", lease_ms=2_000), "ack": ACK}
        act = acts.get(kind) or Act("nack", **options)
        self.runner.settle(sub.prefix, sub.generation, act, receipts, answered)


def _runs(numbers: list[int]) -> list[list[int]]:
    """Numbers in a row go into one request."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and runs[-1][-1] == n - 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return runs


def _numbers(receipts: list[ReceiptRun]) -> set[int]:
    return {n for _, low, high in receipts for n in range(low, high + 1)}
