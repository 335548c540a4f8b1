"""A part: what one shard of a queue has to do with one feed.

It is the sink that the shard pushes into. A shard that stops takes its part along: then the part is
*down* until the dispatcher has opened the shard again. What the client held meanwhile is its own
if the lease cache remembered it, and lost otherwise.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pushlane.wire.errors import Unavailable
from pushlane.wire.receipts import Span, count
from pushlane_dispatcher.core.effects import Receipts, Run
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.shard_runner import ShardRunner

if TYPE_CHECKING:
    from pushlane_dispatcher.feed import Feed


class Adopted:
    """What a session had that a crash cut off: only the lease cache remembered it.

    Nobody else can know its receipts, so whoever brings one may settle it.
    """

    __slots__ = ("runner", "subscription", "up")

    def __init__(self, runner: ShardRunner, subscription: Subscription) -> None:
        self.runner = runner
        self.subscription = subscription
        self.up = True


class Part:
    __slots__ = ("_feed", "_orphans", "number", "place", "runner", "subscription", "up")

    def __init__(self, feed: Feed, number: int, runner: ShardRunner, credit: int) -> None:
        """Attaches, or raises what the shard says."""
        self._feed = feed
        self.number = number
        self.place = f"{runner.key.queue_id}-{runner.key.shard:x}-"
        """How ids of messages of this shard begin."""
        self.runner = runner
        self.subscription = self._attach(credit)
        self.up = True
        self._orphans: list[Span] = []
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
            return count(self._orphans)
        return len(self.subscription.held) + self.subscription.waiting

    def set_credit(self, credit: int) -> None:
        if credit != self.subscription.credit:
            self.say_credit(credit)

    def say_credit(self, credit: int) -> None:
        if self.up:
            with suppress(Unavailable):  # it stops, and will say so
                self.runner.credit(self.subscription, credit)

    # Receipts

    def has_all(self, spans: list[Span]) -> bool:
        """Whether all these receipts are of this part."""
        prefix = self.subscription.prefix
        for span in spans:  # noqa: SIM110 asked with every settle
            if span[0] != prefix:
                return False
        return True

    def find_adopted(self, prefix: str) -> Adopted | None:
        found = self.runner.subscription(prefix) if self.up else None
        return None if found is None or found.token is not None else Adopted(self.runner, found)

    # Coming and going of the client

    def detach(self, resume_ms: int) -> None:
        if self.up:
            try:
                self.runner.detach(self.subscription, resume_ms)
            except Unavailable:
                self.up = False

    def resume(self, held: list[Span]) -> list[Span]:
        """What the client lists but no longer holds here; told later of a part that is down."""
        known = self.runner.subscription(self.subscription.prefix) is self.subscription
        if self.up and known:
            try:
                return self.runner.resume(self.subscription, held, self)
            except Unavailable:  # it is closing: the shard's next opening goes on with it
                return []
        self.up = False
        self._orphans = held
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

    def reattach(self, runner: ShardRunner, credit: int) -> list[Span]:
        """Go on with another runner of the same shard. Answers what was lost with the old one."""
        spec = self._feed.spec
        adopted = runner.adopt(
            self.subscription.prefix, self._orphans, self, credit,
            lease_ms=spec.lease_ms, explicit=spec.explicit, shared=self._feed.shared,
            client=spec.client, claims=self._feed.claims,
        )  # fmt: skip
        lost, self._orphans = self._orphans, []
        self.runner = runner
        if adopted is None:
            self.subscription = self._attach(credit)
        else:
            self.subscription, lost = adopted
        self.up = True
        return lost

    # The sink

    def deliver(self, runs: list[Run], again: bool) -> None:
        if self.up:
            self._feed.part_delivers(self, runs, again)

    def lost(self, receipts: list[Receipts]) -> None:
        if self.up:
            self._feed.part_lost(receipts)

    def starved(self, starving: bool) -> None:
        if self.up:
            self._feed.part_starved(self, starving)

    def ended(self, code: str, message: str) -> None:
        if self.up:
            prefix, held = self.subscription.prefix, self.subscription.held
            self._orphans = runs_of_numbers(prefix, sorted(held))
            self.up = False
            self._feed.part_ended(code, message)
