"""A tenure: the time during which one process serves a queue, as it thinks.

Clients connect to it, as they do to a node. It may be over without knowing: then it is a zombie's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.effects import Deliver, PublishTicket, Run, SettleTicket
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_history import event as history
from tests.running import runners_of
from tests.simulation.clients import RESUME_MS, Client, PublishPart
from tests.simulation.consumers import SettleRequest
from tests.simulation.fan import Part, label_of

if TYPE_CHECKING:
    from tests.simulation.replicated.process import Process


class Tenure:
    def __init__(self, process: Process, opened: OpenQueue) -> None:
        self.process = process
        self.opened = opened
        self.name = opened.row.name
        self.label = process.cluster.names[opened.row.id]
        self.every = [ServedShard(self, runner) for runner in runners_of(opened)]
        self.runners = {self.name: self.every}
        self.ended = False

    @property
    def alive(self) -> bool:
        return not self.ended and not self.process.dead and self.opened.running

    @property
    def is_newest(self) -> bool:
        """Nobody has opened a shard of it since."""
        return all(served.is_newest for served in self.every)

    @property
    def now(self) -> int:
        return self.process.world.now

    @property
    def wall(self) -> int:
        assert self.process.clock is not None  # it serves
        return self.process.clock.wall()

    def audit(self) -> None:
        """Raise AssertionError where it honours a receipt that is not worth anything."""
        world = self.process.world
        for served in self.every:
            for sub in served.shard.consumers.subscriptions.values():
                for n in sub.held:
                    receipt = f"{sub.prefix}.{n}"
                    zombie = not served.is_newest
                    assert zombie or world.is_valid(receipt), f"{receipt} was void, and is honoured"

    def guarded(self, action: Callable[..., None]) -> Callable[..., None]:
        """The action, when the process is not paused, and if it serves by then."""

        def run(*args: Any) -> None:
            if self.alive:
                action(*args)

        return lambda *args: self.process.take(run, *args)

    async def last(self) -> None:
        """Until one of its shards has stopped."""
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            for served in self.every:
                nursery.start_soon(wait, served.runner._engine.stopped)

    def send_away(self) -> None:
        """One shard has stopped: whoever had subscribed is away for the others, too."""
        for served in self.every:
            if served.runner.running:
                for sub in list(served.shard.consumers.subscriptions.values()):
                    if sub.away_until is None:
                        label = label_of(sub.prefix)
                        self.process.world.record(history.Detach(self.now, label))
                        served.runner.detach(sub.prefix, sub.token, RESUME_MS)

    def answer(self, client: Client, action: Callable[..., None], *args: Any) -> None:
        """From the process to a client, over the connection that it has."""
        self.process.send_now(self._answer, client, action, *args)

    def _answer(self, client: Client, action: Callable[..., None], *args: Any) -> None:
        if client.conn is not None and client.conn.node is self:
            client.conn.answer(action, *args)


class ServedShard:
    """One shard of a tenure, as clients use it."""

    def __init__(self, tenure: Tenure, runner: ShardRunner) -> None:
        self.tenure = tenure
        self.runner = runner
        self.label = tenure.label

    @property
    def shard(self) -> Shard:
        return self.runner._shard

    @property
    def is_newest(self) -> bool:
        return self.tenure.process.cluster.epochs.is_newest(self.runner.key, self.runner.epoch)

    def id(self, lane: int, seq: int) -> str:
        return make_id(*self.runner.key, lane, seq)

    def turn(self) -> None:
        self.runner._engine.wake()

    def wake(self) -> None:
        self.runner._engine.wake()

    def publish(self, part: PublishPart) -> None:
        def answered(ticket: PublishTicket, error: PushlaneError | None) -> None:
            if error is None:  # else the connection is lost as well
                self.tenure.answer(part.producer, part.answered, self, ticket)

        self.runner.publish_soon(part.messages(self.tenure.wall), answered, part.lanes)

    def settle_token(self, request: SettleRequest) -> object:
        def answered(ticket: SettleTicket, _: PushlaneError | None) -> None:
            self.tenure.answer(request.consumer, request.answered, ticket)

        return answered

    def sink(self, part: Part) -> ClientSink:
        return ClientSink(self, part)

    def started(self, receipt: str) -> None:
        """What a zombie takes for started is its own affair, once the receipt is void."""
        process = self.tenure.process
        if self.is_newest or process.world.is_valid(receipt):
            process.world.record(history.Start(process.world.now, receipt))


class ClientSink:
    """Where the deliveries of a subscription go: over the network."""

    def __init__(self, served: ServedShard, part: Part) -> None:
        self._served = served
        self._part = part
        self._consumer = part.fan.consumer
        self._sub = part.sub

    def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        effect = Deliver(self._sub, runs, again)
        if not again:
            self._part.fan.delivered(self._part)
        self._served.tenure.answer(self._consumer, self._consumer.delivered, self._served, effect)

    def lost(self, receipts: list[ReceiptRun], held: int, waiting: int) -> None:
        self._part.fan.lost()
        self._served.tenure.answer(self._consumer, self._consumer.told_lost, receipts)

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        self._part.fan.hungry(self._part, hungry)

    def holds(self, held: int, waiting: int) -> None:
        """The fan looks itself."""

    def ended(self, code: str, message: str, held: list[ReceiptRun]) -> None:
        """Its clients lose their connections anyway."""
