"""A consumer: somebody behind a subscription, who remembers what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import Deliver, SettleTicket
from pushlane_dispatcher.core.subscription import Subscription

if TYPE_CHECKING:
    from tests.dispatcher.core.harness import Rig


class Got(NamedTuple):
    """One delivered message."""

    body: str
    n: int
    lane: int
    seq: int
    attempt: int
    deliveries: int
    fence: int
    deadline: int
    started: bool
    again: bool


def got(deliver: Deliver) -> list[Got]:
    """The messages of a delivery, one by one."""
    return [
        Got(
            message.body.decode(),
            run.n + index,
            run.lane,
            run.seq + index,
            run.attempt,
            run.deliveries,
            run.fence,
            run.deadline,
            run.started,
            deliver.again,
        )
        for run in deliver.runs
        for index, message in enumerate(run.messages)
    ]


def flat(runs: Sequence[ReceiptRun]) -> list[int]:
    """The numbers of receipts, one by one."""
    return [n for _, low, high in runs for n in range(low, high + 1)]


class Consumer:
    """Somebody behind a subscription, who remembers what came."""

    def __init__(self, rig: Rig, subscription: Subscription) -> None:
        self.rig = rig
        self.sub = subscription
        self.inbox: list[Got] = []
        self.frames = 0

    @property
    def bodies(self) -> list[str]:
        return [got.body for got in self.inbox]

    @property
    def numbers(self) -> list[int]:
        return [got.n for got in self.inbox]

    def take(self) -> list[str]:
        """What came since the last look."""
        bodies, self.inbox = self.bodies, []
        return bodies

    def runs(self, numbers: Sequence[int]) -> list[ReceiptRun]:
        return [(self.sub.prefix, n, n) for n in numbers]

    def ack(
        self, *numbers: int, generation: int | None = None, silent: bool = False
    ) -> SettleTicket:
        return self.ack_runs(self.runs(numbers), generation, silent)

    def ack_runs(
        self, runs: list[ReceiptRun], generation: int | None = None, silent: bool = False
    ) -> SettleTicket:
        return self.settle(ACK, runs, generation, silent)

    def settle(
        self, act: Act, runs: list[ReceiptRun], generation: int | None, silent: bool = False
    ) -> SettleTicket:
        ticket = SettleTicket(silent=silent)
        now = self.rig.now
        self.rig.shard.settle(self.sub, self._generation(generation), act, runs, ticket, now)
        self.rig.run()
        return ticket

    def nack(
        self,
        *numbers: int,
        delay_ms: int | None = None,
        error: str | None = None,
        dead: bool = False,
        generation: int | None = None,
    ) -> SettleTicket:
        act = Act("nack", delay_ms=delay_ms, error=error, dead=dead)
        return self.settle(act, self.runs(numbers), generation)

    def start(self, *numbers: int, generation: int | None = None) -> SettleTicket:
        return self.settle(START, self.runs(numbers), generation)

    def extend(self, lease_ms: int, *numbers: int, generation: int | None = None) -> SettleTicket:
        return self.settle(Act("extend", lease_ms=lease_ms), self.runs(numbers), generation)

    def credit(self, credit: int) -> None:
        self.rig.shard.credit(self.sub, credit)
        self.rig.run()

    def detach(self, resume_ms: int = 30_000) -> None:
        self.rig.shard.detach(self.sub, resume_ms, self.rig.now)
        self.rig.run()

    def resume(self, *held: int) -> list[ReceiptRun]:
        return self.resume_runs(self.runs(held))

    def resume_runs(self, held: list[ReceiptRun]) -> list[ReceiptRun]:
        resumed = self.rig.shard.resume(self.sub, held)
        self.rig.run()
        return resumed.lost

    def adopt(self, *held: int) -> list[ReceiptRun]:
        """Over a new way to its gateway."""
        resumed = self.rig.shard.adopt(self.sub, self.runs(held), self.rig.now)
        self.rig.run()
        return resumed.lost

    def unsubscribe(self) -> None:
        self.rig.shard.unsubscribe(self.sub, self.rig.now)
        self.rig.run()

    def end(self) -> None:
        self.rig.shard.end(self.sub, self.rig.now)
        self.rig.run()

    def _generation(self, generation: int | None) -> int:
        return self.sub.generation if generation is None else generation
