"""The answers of several shards as one."""

from __future__ import annotations

from collections.abc import Callable

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.effects import SettleTicket


class Gather:
    """What became of a settle. `answer` is called once, with this, when all shards have said."""

    __slots__ = ("_answer", "_waits", "duplicate", "error", "lost")

    def __init__(self, waits: int, answer: Callable[[Gather], None]) -> None:
        self._waits = waits
        self._answer = answer
        self.lost: list[ReceiptRun] = []
        self.duplicate: list[ReceiptRun] = []
        self.error: PushlaneError | None = None
        """The outcome is unknown for some of them: repeating it is safe. A `bad_request`:
        nothing was done."""

    @classmethod
    def all_lost(cls, receipts: list[ReceiptRun]) -> Gather:
        """What is nobody's any more."""
        gather = cls(0, lambda _: None)
        gather.lost += receipts
        return gather

    @classmethod
    def failed(cls, error: PushlaneError) -> Gather:
        """Nothing was done."""
        gather = cls(0, lambda _: None)
        gather.error = error
        return gather

    def more(self) -> None:
        """One more shard is asked."""
        self._waits += 1

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
