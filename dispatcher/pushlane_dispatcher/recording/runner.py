"""A shard's runner that takes notes of what it is asked for, and of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import PublishTicket, Receipts, SettleTicket
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.engine import Engine
from pushlane_dispatcher.ledger import Ledger, Unkept
from pushlane_dispatcher.recording.engine import RecordedEngine
from pushlane_dispatcher.recording.notes import Notes
from pushlane_dispatcher.shard_runner import ShardRunner
from pushlane_dispatcher.sink import PublishAnswer, SettleAnswer, Sink
from pushlane_dispatcher.tools import Tools
from pushlane_dispatcher.transfers import Send
from pushlane_storage.history.event import Kind
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig


class RecordedRunner(ShardRunner):
    def __init__(
        self, shard: Shard, tools: Tools, send: Send, ledger: Ledger | Unkept, notes: Notes
    ) -> None:
        self._notes = notes
        super().__init__(shard, tools, send, ledger)

    def _make_engine(
        self, shard: Shard, tools: Tools, send: Send, ledger: Ledger | Unkept
    ) -> Engine:
        return RecordedEngine(shard, tools, send, ledger, self._notes)

    def _publish(
        self,
        messages: list[Message],
        now: int,
        lanes: Sequence[int] | None,
        answer: PublishAnswer | None,
    ) -> PublishTicket:
        ops: list[int] = []

        def answered(ticket: PublishTicket, error: PushlaneError | None) -> None:
            self._notes.answered(ops, ticket, error)
            if answer is not None:
                answer(ticket, error)

        ticket = super()._publish(messages, now, lanes, answered)
        ops += self._notes.published(messages, ticket)
        return ticket

    # Consuming

    def attach(self, sink: Sink, session: str, credit: int, **options: Any) -> Subscription:
        subscription = super().attach(sink, session, credit, **options)
        self._notes.subscribed(subscription)
        return subscription

    def adopt(
        self, prefix: str, held: Iterable[Receipts], sink: Sink, credit: int, **options: Any
    ) -> tuple[Subscription, list[Receipts]] | None:
        found = super().adopt(prefix, held, sink, credit, **options)
        if found is not None:
            self._notes.subscribed(found[0])
        return found

    def credit(self, subscription: Subscription, credit: int) -> None:
        super().credit(subscription, credit)
        self._notes.credited(subscription, credit)

    def detach(self, subscription: Subscription, resume_ms: int) -> None:
        super().detach(subscription, resume_ms)
        self._notes.detached(subscription)

    def resume(
        self, subscription: Subscription, held: Iterable[Receipts], sink: Sink
    ) -> list[Receipts]:
        lost = super().resume(subscription, held, sink)
        self._notes.resumed(subscription)
        return lost

    def unsubscribe(self, subscription: Subscription) -> None:
        super().unsubscribe(subscription)
        self._notes.unsubscribed(subscription)

    def end(self, subscription: Subscription) -> None:
        super().end(subscription)
        self._notes.unsubscribed(subscription)

    def settle(
        self, subscription: Subscription, generation: int, act: Act,
        receipts: Iterable[Receipts], answer: SettleAnswer | None = None,
    ) -> SettleTicket:  # fmt: skip
        receipts = list(receipts)
        if act.verb == "start":
            ticket = super().settle(subscription, generation, act, receipts, answer)
            self._notes.started(receipts, ticket)
            return ticket
        noted = _Noted(self._notes, answer)
        ticket = super().settle(subscription, generation, act, receipts, noted.answer)
        noted.asked("reject" if act.dead else act.verb, receipts, subscription)
        return ticket

    # Managing

    def purge(self, answer: SettleAnswer | None = None) -> SettleTicket:
        self._notes.allow("purged")
        return super().purge(answer)

    def redrive(self, lane: int, targets: Mapping[int, str]) -> int:
        self._notes.allow("redriven")
        return super().redrive(lane, targets)

    def cancel(self, lane: int, seq: int, not_before: int, answer: SettleAnswer) -> None:
        self._notes.allow("purged")
        super().cancel(lane, seq, not_before, answer)

    def configure(self, config: QueueConfig, dead_letter: str | None) -> None:
        super().configure(config, dead_letter)
        self._notes.configured()


class _Noted:
    """A settle whose answer is noted, if somebody waits for one."""

    def __init__(self, notes: Notes, answer: SettleAnswer | None) -> None:
        self._notes = notes
        self._told = answer
        self._ops: dict[str, int] = {}
        self.answer = None if answer is None else self._answered

    def asked(self, kind: Kind, receipts: Iterable[Receipts], sub: Subscription) -> None:
        answered = self._told is not None
        self._ops |= self._notes.settling(kind, receipts, sub.session, answered=answered)

    def _answered(self, ticket: SettleTicket, error: PushlaneError | None) -> None:
        self._notes.decided(self._ops, ticket, error)
        if self._told is not None:
            self._told(ticket, error)
