"""Somebody behind a feed, who remembers what came."""

from __future__ import annotations

from typing import Any

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.door import Caller, Door
from pushlane_dispatcher.callers.feed import Feed, Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.act import ACK, Act
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.dispatcher import Dispatcher
from pushlane_dispatcher.waiter import Waiter
from tests.dispatcher.rig import TENANT


def unforeseen(error: Exception) -> None:
    raise error


class Subscriber:
    """The sink of a feed."""

    def __init__(self) -> None:
        self.feed: Feed
        self.bodies: list[bytes] = []
        self.receipts: list[ReceiptRun] = []
        self.again: list[ReceiptRun] = []
        """Sent once more after a resume."""
        self.gone: list[ReceiptRun] = []
        self.end: tuple[str, str] | None = None
        self.error: PushlaneError | None = None
        """Why there is no feed."""
        self.moved = 0
        self.attached = 0
        """How often it came to a shard that had stopped."""
        self.outdone = False
        """Its session is somebody else's."""
        self.settles = 0
        self.quiets = 0

    def deliver(
        self, runs: list[Run], place: str, prefix: str | None, lease_ms: int | None, again: bool
    ) -> None:
        for run in runs:
            receipts = self.again if again else self.receipts
            receipts += [(prefix or "", run.n + n, run.n + n) for n in range(len(run.messages))]
            if not again:
                self.bodies += [message.body for message in run.messages]

    def lost(self, receipts: list[ReceiptRun]) -> None:
        self.gone += receipts

    def quiet(self) -> None:
        self.quiets += 1

    def settled(self) -> None:
        self.settles += 1

    def ended(self, code: str, message: str) -> None:
        self.end = code, message

    def elsewhere(self) -> None:
        self.moved += 1

    def reattached(self) -> None:
        self.attached += 1

    def superseded(self) -> None:
        self.outdone = True

    def subscribed(self, feed: Feed | None, error: PushlaneError | None) -> None:
        self.error = error
        if feed is not None:
            self.feed = feed

    async def settle(self, act: Act, *receipts: ReceiptRun, silently: bool = False) -> Gather:
        waiter: Waiter[Gather] = Waiter()
        self.feed.settle(act, list(receipts), waiter, silently=silently)
        return await waiter.wait()

    async def ack(self, *receipts: ReceiptRun) -> Gather:
        return await self.settle(ACK, *receipts)


def door_of(dispatcher: Dispatcher) -> Door:
    return dispatcher.door(Caller(TENANT), unforeseen)


async def settle(
    dispatcher: Dispatcher, act: Act, *receipts: ReceiptRun, queue: str = "q"
) -> Gather:
    """As who only has receipts."""
    waiter: Waiter[Gather] = Waiter()
    door_of(dispatcher).settle(queue, act, list(receipts), waiter)
    return await waiter.wait()


async def subscribe(dispatcher: Dispatcher, queue: str = "q", **options: Any) -> Subscriber:
    """One with a feed."""
    subscriber = Subscriber()
    door = door_of(dispatcher)
    spec = Spec(TENANT, queue, options.pop("session", "s"), **options)
    door.subscribe(spec, subscriber, subscriber.subscribed)
    await door.done()
    if subscriber.error is not None:
        raise subscriber.error
    return subscriber
