"""Hunger: something is ready here for a subscription that has no permit.

Only those of queues with several shards: they have one credit for all of them, and this shard's
share may be none (`SharedCredit`). As many are told as there are messages that nobody else can
take, each in its turn. They answer with `credit`: if that brings no permit, the next one is told.
One that got a permit and finds nothing to take says so, for another shard may need it.
"""

from __future__ import annotations

from itertools import islice

from pushlane_dispatcher.core.effects import Effect, Hungry
from pushlane_dispatcher.core.subscription import Subscription


class Hunger:
    __slots__ = ("_asked", "_effects", "_told", "asking", "fed", "waiting")

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self.waiting: dict[Subscription, None] = {}
        """Without a permit, and not told of anything. The first comes first."""
        self._told: set[Subscription] = set()
        """They know that something was ready here."""
        self._asked: set[Subscription] = set()
        """Of these, who has not answered yet."""
        self.fed: dict[Subscription, None] = {}
        """Of these, who got a permit since."""
        self.asking: dict[Subscription, None] = {}
        """Of requests: they want to know when nothing is left."""

    def ask(self, subscription: Subscription) -> None:
        """Say when nothing is left for it."""
        self.asking[subscription] = None

    def nothing_left(self) -> None:
        """Nothing waits here, and nothing is on its way in."""
        for subscription in self.asking:
            if subscription in self._told and subscription not in self.fed:
                self.waiting.setdefault(subscription)  # for the next message
            self.served(subscription)
            self._effects.append(Hungry(subscription, False))
        self.asking.clear()

    def offered(self, subscription: Subscription, free: int) -> None:
        """A subscription's free permits may have changed."""
        if subscription.closed or subscription.away_until is not None:
            self.forget(subscription)
        elif free > 0:
            self.waiting.pop(subscription, None)
            if subscription in self._told:
                self.fed[subscription] = None
        elif subscription in self.fed:  # taken away again: it keeps its place (`SharedCredit`)
            del self.fed[subscription]
        elif subscription not in self._told:
            self.waiting.setdefault(subscription)

    def answered(self, subscription: Subscription) -> None:
        self._asked.discard(subscription)

    def served(self, subscription: Subscription) -> None:
        """It gets something: its delivery tells more than we could."""
        self._told.discard(subscription)
        self._asked.discard(subscription)
        self.fed.pop(subscription, None)

    def pardoned(self, subscription: Subscription) -> None:
        """Permits came back from backoff: another shard may need them."""
        self._effects.append(Hungry(subscription, subscription in self._told))

    def forget(self, subscription: Subscription) -> None:
        """It goes, or comes back and remembers nothing of what it was told."""
        self.waiting.pop(subscription, None)
        self.asking.pop(subscription, None)
        self.served(subscription)

    def speak(self, ready: int) -> None:
        """All that could be granted is; `ready` messages are left for want of permits."""
        for subscription in list(self.fed):
            self.served(subscription)
            self._effects.append(Hungry(subscription, False))
        for subscription in list(islice(self.waiting, max(0, ready - len(self._asked)))):
            del self.waiting[subscription]
            self._told.add(subscription)
            self._asked.add(subscription)
            self._effects.append(Hungry(subscription, True))
