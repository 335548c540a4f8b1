"""One subscription of a shard on another node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.shard.sink import (
    Sink,
)

if TYPE_CHECKING:
    from pushlane_dispatcher.cluster.remote.shard import RemoteShard

Said = frames.Deliver | frames.Lost | frames.Hungry | frames.Holds | frames.Ended
"""What a shard says to a subscription, in its order."""


class RemoteSub:
    """One subscription of a remote shard: what its client has of it."""

    __slots__ = (
        "_stash", "ack_none", "away", "credits", "generation", "number", "out", "prefix", "shard",
        "sink", "turn", "up",
    )  # fmt: skip

    def __init__(self, shard: RemoteShard, sink: Sink, ack_none: bool) -> None:
        self.shard = shard
        self.sink = sink
        self.ack_none = ack_none
        """Its client has no receipts."""
        self.number = 0
        self.prefix = ""
        self.up = False
        """It is attached."""
        self.generation = 0
        """What its settles carry, once it is."""
        self.away = False
        """Its client's connection is lost: what comes now comes again."""
        self.out: set[int] = set()
        """Receipt numbers that its client has."""
        self.turn = 0
        """How often its client came or went: only the last resume counts."""
        self.credits: set[int] = set()
        """Requests for another credit without an answer."""
        self._stash: list[Said] = []
        """What came before the answer that it is for, and all behind it: lanes overtake each
        other."""

    def hear(self, told: Said) -> None:
        early = isinstance(told, frames.Deliver | frames.Lost) and told.generation > self.generation
        if not self.up or self._stash or early:
            self._stash.append(told)
        elif not isinstance(told, frames.Deliver | frames.Lost):
            self._say(told)
        elif told.generation == self.generation and not self.away:
            self._tell(told)

    def agreed(self, generation: int, out: set[int]) -> None:
        """It was attached or resumed."""
        self.up, self.generation, self.away, self.out = True, generation, False, out

    def catch_up(self) -> None:
        stash, self._stash = self._stash, []
        for told in stash:
            self.hear(told)

    def _say(self, told: frames.Hungry | frames.Holds | frames.Ended) -> None:
        if isinstance(told, frames.Hungry):
            self.sink.hungry(told.hungry, told.held, told.waiting)
        elif isinstance(told, frames.Holds):
            self.sink.holds(told.held, told.waiting)
        else:
            self.shard.drop(self)
            self.sink.ended(told.code, told.message, told.held)

    def _tell(self, told: frames.Deliver | frames.Lost) -> None:
        if isinstance(told, frames.Lost):
            self.settled(told.receipts)
            self.sink.lost(told.receipts, told.held, told.waiting)
            return
        now = self.shard.asker.now()
        runs = [
            Run(
                run.lane, run.seq, run.n, run.started, run.attempt, run.deliveries, run.fence,
                now + run.left_ms, run.messages,
            )
            for run in told.runs
        ]  # fmt: skip
        if not self.ack_none:
            for run in told.runs:
                self.out.update(range(run.n, run.n + len(run.messages)))
        self.sink.deliver(runs, told.again, told.held, told.waiting)

    def settled(self, receipts: Sequence[ReceiptRun]) -> None:
        for prefix, low, high in receipts:
            if prefix == self.prefix:
                self.out.difference_update(range(low, high + 1))

    def held(self) -> list[ReceiptRun]:
        return runs_of_numbers(self.prefix, sorted(self.out))


def numbers_of(prefix: str, receipts: Sequence[ReceiptRun]) -> Iterator[int]:
    for own, low, high in receipts:
        if own == prefix:
            yield from range(low, high + 1)
