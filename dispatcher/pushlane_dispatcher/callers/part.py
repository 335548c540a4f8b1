"""A part: what one shard of a queue has to do with one feed.

It is the sink that the shard pushes into. A shard that stops takes its part along: then the part is
*down* until the dispatcher has opened the shard again. What the client held meanwhile is its own
if the lease cache remembered it, and lost otherwise.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pushlane.wire.errors import Unavailable
from pushlane.wire.receipts import ReceiptRun, count
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import Run, SettleTicket
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.sink import SettleAnswer

if TYPE_CHECKING:
    from pushlane_dispatcher.callers.feed import Feed

DOWN = Unavailable("the queue moves: try again", retry_ms=100)


class Part:
    __slots__ = (
        "_feed", "generation", "number", "orphans", "place", "resting", "runner", "subscription",
        "up",
    )  # fmt: skip

    def __init__(self, feed: Feed, number: int, runner: ShardRunner, credit: int) -> None:
        """Attaches, or raises what the shard says."""
        self._feed = feed
        self.number = number
        self.place = f"{runner.key.queue_id}-{runner.key.shard:x}-"
        """How ids of messages of this shard begin."""
        self.runner = runner
        self.subscription = self._attach(credit)
        self.generation = self.subscription.generation
        """What the shard last said: every settle carries it."""
        self.up = True
        self.resting = False
        """Of a request's: the shard said that nothing is left for it there."""
        self.orphans: list[ReceiptRun] = []
        """What the client has of a shard that stopped."""

    def _attach(self, credit: int) -> Subscription:
        spec = self._feed.spec
        subscription = self.runner.attach(
            self,
            spec.session,
            max(1, credit),
            lease_ms=spec.lease_ms,
            explicit=spec.explicit,
            ack_none=spec.ack_none,
            shared=self._feed.shared,
            client=spec.client,
            claims=self._feed.claims,
        )
        if not credit:  # nothing is granted inside these calls
            self.runner.credit(subscription, 0)
        return subscription

    # Credit

    @property
    def held(self) -> int:
        """Unsettled messages of a client that this shard knows of."""
        return len(self.subscription.held) if self.up else 0

    @property
    def used(self) -> int:
        """Permits that are held, also of a shard that stopped, or in backoff."""
        if not self.up:
            return count(self.orphans)
        return len(self.subscription.held) + self.subscription.waiting

    def set_credit(self, credit: int) -> None:
        if credit != self.subscription.credit:
            self.say_credit(credit)

    def say_credit(self, credit: int) -> None:
        if self.up:
            with suppress(Unavailable):  # it stops, and will say so
                self.runner.credit(self.subscription, credit)

    # Receipts

    def settle(
        self, act: Act, receipts: list[ReceiptRun], answer: SettleAnswer | None
    ) -> SettleTicket:
        if not self.up:
            raise DOWN
        return self.runner.settle(self.subscription, self.generation, act, receipts, answer)

    # Coming and going of the client

    def detach(self, resume_ms: int) -> None:
        if self.up:
            try:
                self.runner.detach(self.subscription, resume_ms)
            except Unavailable:
                self.up = False

    def resume(self, held: list[ReceiptRun]) -> list[ReceiptRun]:
        """What the client lists but no longer holds here; told later of a part that is down."""
        known = self.runner.subscription(self.subscription.prefix) is self.subscription
        if self.up and known:
            try:
                self.generation, lost = self.runner.resume(self.subscription, held, self)
            except Unavailable:  # it is closing: the shard's next opening goes on with it
                return []
            return lost
        self.up = False
        self.orphans = held
        return []

    def unsubscribe(self) -> None:
        if self.up:
            try:
                self.runner.unsubscribe(self.subscription)
            except Unavailable:
                self.up = False

    def end(self) -> None:
        if self.up:
            self.up = False
            with suppress(Unavailable):
                self.runner.end(self.subscription)

    # The shard stops, and comes back

    def reattach(self, runner: ShardRunner, credit: int) -> list[ReceiptRun]:
        """Go on with another runner of the same shard. Answers what was lost with the old one."""
        spec = self._feed.spec
        adopted = runner.adopt(
            self.subscription.prefix, self.orphans, self, credit,
            lease_ms=spec.lease_ms, explicit=spec.explicit, shared=self._feed.shared,
            client=spec.client, claims=self._feed.claims,
        )  # fmt: skip
        lost, self.orphans = self.orphans, []
        self.runner = runner
        if adopted is None:
            self.subscription = self._attach(credit)
            self.generation = self.subscription.generation
        else:
            self.subscription, (self.generation, lost) = adopted
        self.up = True
        return lost

    # The sink

    def deliver(self, runs: list[Run], again: bool) -> None:
        if not self.up:
            return
        self.resting = False
        feed, subscription = self._feed, self.subscription
        prefix: str | None = subscription.prefix
        lease_ms: int | None = subscription.lease_ms
        if again and runs[0].started:
            lease_ms = feed.lease_left(runs[0].deadline)
        if subscription.ack_none:
            prefix = lease_ms = None
        feed.sink.deliver(runs, self.place, prefix, lease_ms, again)
        if feed.shared and not again:  # what is sent again was no turn: it may still be hungry
            feed.part_delivered(self)

    def lost(self, receipts: list[ReceiptRun]) -> None:
        if self.up:
            self._feed.part_lost(receipts)

    def hungry(self, hungry: bool) -> None:
        if self.up:
            self._feed.part_hungry(self, hungry)

    def ended(self, code: str, message: str) -> None:
        if self.up:
            prefix, held = self.subscription.prefix, self.subscription.held
            self.orphans = runs_of_numbers(prefix, sorted(held))
            self.up = False
            self._feed.part_ended(self, code, message)
