"""A fan: one subscription over all shards of its queue, as the server keeps it for a session.

The credit that the shards share is dealt out by the product's own piece, `SharedCredit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.shared_credit import SharedCredit
from pushlane_dispatcher.core.subscription import Subscription

if TYPE_CHECKING:
    from tests.simulation.consumers import Consumer
    from tests.simulation.serving import Node, Runner


def label_of(prefix: str) -> str:
    """What the history calls the subscription that receipts of this prefix belong to."""
    return prefix.partition("/")[0]


class Part:
    """What one shard knows of it."""

    __slots__ = ("fan", "generation", "number", "runner", "sub")

    def __init__(self, fan: Fan, number: int, runner: Runner, sub: Subscription) -> None:
        self.fan = fan
        self.number = number
        self.runner = runner
        self.sub = sub
        self.generation = sub.generation

    @property
    def used(self) -> int:
        return len(self.sub.held) + self.sub.waiting

    @property
    def known(self) -> bool:
        """Its shard still has it."""
        return self.runner.shard.consumers.subscriptions.get(self.sub.prefix) is self.sub


class Fan:
    def __init__(
        self, consumer: Consumer, node: Node, runners: Sequence[Runner], label: str, credit: int
    ) -> None:
        self.consumer = consumer
        self.world = consumer.world
        self.node = node
        self.label = label
        self.session = f"s-{label}"
        self.queue = runners[0].label
        self.credit = credit
        self.lease_ms = consumer.rng.choice(consumer.lease_ms)
        self.closed = False
        self.parts: list[Part] = []
        self._attached = 0
        self._shared = len(runners) > 1 and not consumer.ack_none
        first = int(consumer.rng.random() * len(runners))
        self._shares = SharedCredit(credit, first)
        credits = self._deal([0] * len(runners))
        for number, runner in enumerate(runners):
            self.parts.append(self._attach(number, runner, credits[number]))

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def _attach(self, number: int, runner: Runner, credit: int) -> Part:
        self._attached += 1
        sub = Subscription(
            f"{self.label}/{self._attached}", self.session, max(1, credit), self.lease_ms,
            explicit=self.consumer.explicit, ack_none=self.consumer.ack_none, shared=self._shared,
        )  # fmt: skip
        runner.shard.attach(sub)
        if not credit:
            runner.shard.credit(sub, 0)
        part = Part(self, number, runner, sub)
        sub.token = runner.sink(part)
        return part

    # The client

    def part_of(self, prefix: str) -> Part | None:
        return next((part for part in self.parts if part.sub.prefix == prefix), None)

    @property
    def resumable(self) -> bool:
        """Whether any shard has it, and waits for it."""
        return any(part.known and part.sub.away_until is not None for part in self.parts)

    def moved(self, node: Node, runners: Sequence[Runner]) -> bool:
        """Another node may know it, from the lease cache. False: no shard of it does."""
        if node is not self.node:
            self.node = node
            for part, runner in zip(self.parts, runners, strict=True):
                known = runner.shard.consumers.subscriptions.get(part.sub.prefix)
                part.runner, part.sub = runner, known or part.sub
                if known is not None:
                    known.explicit, known.shared = self.consumer.explicit, self._shared
        return self.resumable

    def resume(self, held: list[ReceiptRun]) -> list[ReceiptRun]:
        """Answers what the client lists but no longer holds."""
        lost: list[ReceiptRun] = []
        self._shares.resumed()
        for index, part in enumerate(self.parts):
            mine = [receipt for receipt in held if receipt[0] == part.sub.prefix]
            if part.known:
                part.sub.token = part.runner.sink(part)
                part.generation, gone = part.runner.shard.resume(part.sub, mine)
                lost += gone
            else:
                lost += mine
                self.parts[index] = self._attach(index, part.runner, 0)
        self.rebalance()
        self.turn()
        return lost

    def unsubscribe(self) -> None:
        self.closed = True
        for part in self.parts:
            if part.known:
                part.runner.shard.unsubscribe(part.sub, self.node.now)
        self.turn()

    def end(self) -> None:
        """Its session closed in good order."""
        self.closed = True
        for part in self.parts:
            if part.known:
                part.runner.shard.end(part.sub, self.node.now)
        self.turn()

    def turn(self) -> None:
        for part in self.parts:
            part.runner.wake()

    # Credit

    def set_credit(self, credit: int) -> None:
        self.credit = credit
        self.rebalance()

    def _deal(self, used: list[int]) -> list[int]:
        if not self._shared:
            return [self.credit] * len(used)
        self._shares.total = self.credit
        return self._shares.deal(used)

    def rebalance(self) -> None:
        """Deal out the credit again: something was delivered, settled or lost."""
        if self.closed:
            return
        credits = self._deal([part.used for part in self.parts])
        # Those that get less come first, so that at no time there is more than the credit.
        for part, credit in sorted(
            zip(self.parts, credits, strict=True), key=lambda item: item[1] - item[0].sub.credit
        ):
            if credit != part.sub.credit:
                self._say(part, credit)

    def _say(self, part: Part, credit: int) -> None:
        if part.known:
            part.runner.shard.credit(part.sub, credit)
            part.runner.wake()

    # What shards say

    def delivered(self, part: Part) -> None:
        if self._shared:
            self._shares.delivered(part.number)
            self.rebalance()

    def lost(self) -> None:
        if self._shared:
            self.rebalance()

    def hungry(self, part: Part, hungry: bool) -> None:
        self._shares.hungry(part.number, hungry)
        self.rebalance()
        self._say(part, part.sub.credit)
