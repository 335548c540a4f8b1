"""A tenure: the time during which one process serves the queues, as it thinks, under one epoch.

Clients connect to it, as they do to a node. It may be over without knowing: then it is a zombie's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.core.effects import Deliver, PublishTicket, Receipts, Run, SettleTicket
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.shard_runner import ShardRunner
from pushlane_storage.history import event as history
from tests.simulation.clients import Client, Consumer, PublishRequest, SettleRequest

if TYPE_CHECKING:
    from tests.simulation.replicated.process import Process


class Tenure:
    def __init__(self, process: Process, runners: dict[str, ShardRunner]) -> None:
        self.process = process
        self.epoch = max(runner.epoch for runner in runners.values())
        self.runners = {name: ServedShard(self, runner) for name, runner in runners.items()}
        self.ended = False

    @property
    def alive(self) -> bool:
        return (
            not self.ended
            and not self.process.dead
            and all(served.runner.running for served in self.runners.values())
        )

    @property
    def now(self) -> int:
        return self.process.world.now

    def audit(self) -> None:
        """Raise AssertionError where it honours a receipt that is not worth anything."""
        world = self.process.world
        for served in self.runners.values():
            for sub in served.shard.consumers.subscriptions.values():
                for n in sub.held:
                    receipt = f"{sub.prefix}.{n}"
                    zombie = not self.process.cluster.is_newest(self.epoch)
                    assert zombie or world.is_valid(receipt), f"{receipt} was void, and is honoured"

    def guarded(self, action: Callable[..., None]) -> Callable[..., None]:
        """The action, when the process is not paused, and if it serves by then."""

        def run(*args: Any) -> None:
            if self.alive:
                action(*args)

        return lambda *args: self.process.take(run, *args)

    async def last(self, stop: trio.Event) -> None:
        """Until one of its shards has stopped, or somebody asks for the end."""
        async with trio.open_nursery() as nursery:

            async def wait(event: trio.Event) -> None:
                await event.wait()
                nursery.cancel_scope.cancel()

            for served in self.runners.values():
                nursery.start_soon(wait, served.runner._engine.stopped)
            nursery.start_soon(wait, stop)

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

    @property
    def shard(self) -> Shard:
        return self.runner._shard

    def id(self, lane: int, seq: int) -> str:
        return make_id(*self.runner.key, lane, seq)

    def turn(self) -> None:
        self.runner._engine.wake()

    def publish_token(self, request: PublishRequest) -> object:
        def answered(ticket: PublishTicket, _: PushlaneError | None) -> None:
            self.tenure.answer(request.producer, request.answered, self, ticket)

        return answered

    def settle_token(self, request: SettleRequest) -> object:
        def answered(ticket: SettleTicket, _: PushlaneError | None) -> None:
            self.tenure.answer(request.consumer, request.answered, ticket)

        return answered

    def sink(self, consumer: Consumer, subscription: Subscription) -> ClientSink:
        return ClientSink(self, consumer, subscription)

    def started(self, receipt: str) -> None:
        """What a zombie takes for started is its own affair, once the receipt is void."""
        process = self.tenure.process
        if process.cluster.is_newest(self.tenure.epoch) or process.world.is_valid(receipt):
            process.world.record(history.Start(process.world.now, receipt))


class ClientSink:
    """Where the deliveries of a subscription go: over the network."""

    def __init__(self, served: ServedShard, consumer: Consumer, sub: Subscription) -> None:
        self._served = served
        self._consumer = consumer
        self._sub = sub

    def deliver(self, runs: list[Run], again: bool) -> None:
        effect = Deliver(self._sub, runs, again)
        self._served.tenure.answer(self._consumer, self._consumer.delivered, self._served, effect)

    def lost(self, receipts: list[Receipts]) -> None:
        self._served.tenure.answer(self._consumer, self._consumer.told_lost, receipts)

    def ended(self, code: str, message: str) -> None:
        """Its clients lose their connections anyway."""
