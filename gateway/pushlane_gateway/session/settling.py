"""Settling: start, ack, nack and extend, for receipts that may be of several shards."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pushlane.wire.errors import PushlaneError, Unavailable
from pushlane.wire.receipts import Span
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import SettleTicket
from pushlane_dispatcher.sink import SettleAnswer
from pushlane_gateway.session.part import Adopted, Part
from pushlane_gateway.session.sub import Sub

Holder = Part | Adopted

DOWN = Unavailable("the queue moves: try again", retry_ms=100)


class Gather:
    """The answers of several shards as one. `answer` is called once."""

    __slots__ = ("_answer", "_waits", "duplicate", "error", "lost")

    def __init__(self, waits: int, answer: Callable[[Gather], None]) -> None:
        self._waits = waits
        self._answer = answer
        self.lost: list[Span] = []
        self.duplicate: list[Span] = []
        self.error: PushlaneError | None = None
        """The outcome is unknown for some of them: repeating it is safe."""

    @classmethod
    def all_lost(cls, spans: list[Span]) -> Gather:
        """What is nobody's any more."""
        gather = cls(0, lambda _: None)
        gather.lost += spans
        return gather

    def __call__(self, ticket: SettleTicket, error: PushlaneError | None) -> None:
        if error is None:
            self.lost += ticket.lost
            self.duplicate += ticket.duplicate
        self.one_less(error)

    def one_less(self, error: PushlaneError | None = None) -> None:
        self.error = self.error or error
        self._waits -= 1
        if not self._waits:
            self._answer(self)


def settle(sub: Sub, act: Act, spans: list[Span], answer: Callable[[Gather], None]) -> None:
    """With an answer, once all of it is durable."""
    holders, foreign = _holders(sub, spans)
    gather = Gather(len(holders) + 1, answer)
    gather.lost += foreign
    for holder, own in holders:
        try:
            _settle(holder, act, own, gather)
        except Unavailable as error:
            gather.one_less(error)
    gather.one_less()
    sub.settled()


def settle_silently(sub: Sub, act: Act, spans: list[Span]) -> list[Span]:
    """Without one: only what is lost is told. Raises Unavailable."""
    holders, lost = _holders(sub, spans)
    fault: Unavailable | None = None
    for holder, own in holders:
        try:
            lost += _settle(holder, act, own, None).lost
        except Unavailable as error:
            fault = error
    sub.settled()
    if fault is not None:
        sub.tell_lost(lost)
        raise fault
    return lost


def _settle(
    holder: Holder, act: Act, spans: list[Span], answer: SettleAnswer | None
) -> SettleTicket:
    if not holder.up:
        raise DOWN
    subscription = holder.subscription
    return holder.runner.settle(subscription, subscription.generation, act, spans, answer)


Holders = Collection[tuple[Holder, list[Span]]]


def _holders(sub: Sub, spans: list[Span]) -> tuple[Holders, list[Span]]:
    """Receipts by whose they are, and those that are nobody's."""
    by_part, foreign = sub.split(spans)
    if not foreign:
        return by_part.items(), foreign
    adopted, foreign = sub.find_adopted(foreign)
    return [*by_part.items(), *adopted.items()], foreign
