"""Starving subscriptions: something is ready for them here, and they have no permit.

Only those of queues with several shards: they have one credit for all of them, and this shard's
share may be none (`SharedCredit`). As many are told as there are messages that nobody else can
take, each in its turn. They answer with `credit`: if that brings no permit, the next one is told.
One that got a permit and finds nothing to take says so, for another shard may need it.
"""

from __future__ import annotations

from itertools import islice

from pushlane_dispatcher.core.effects import Effect, Starved
from pushlane_dispatcher.core.subscription import Subscription


class Starving:
    __slots__ = ("_asked", "_effects", "_fed", "_told", "_waiting")

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._waiting: dict[Subscription, None] = {}
        """Without a permit, and not told of anything. The first comes first."""
        self._told: set[Subscription] = set()
        """They know that something was ready here."""
        self._asked: set[Subscription] = set()
        """Of these, who has not answered yet."""
        self._fed: dict[Subscription, None] = {}
        """Of these, who got a permit since."""

    def offered(self, subscription: Subscription, free: int) -> None:
        """A subscription's free permits may have changed."""
        if subscription.closed or subscription.away_until is not None:
            self.forget(subscription)
        elif free > 0:
            self._waiting.pop(subscription, None)
            if subscription in self._told:
                self._fed[subscription] = None
        elif subscription in self._fed:  # taken away again: it keeps its place (`SharedCredit`)
            del self._fed[subscription]
        elif subscription not in self._told:
            self._waiting.setdefault(subscription)

    def answered(self, subscription: Subscription) -> None:
        self._asked.discard(subscription)

    def served(self, subscription: Subscription) -> None:
        """It gets something: its delivery tells more than we could."""
        self._told.discard(subscription)
        self._asked.discard(subscription)
        self._fed.pop(subscription, None)

    def pardoned(self, subscription: Subscription) -> None:
        """Permits came back from backoff: another shard may need them."""
        self._effects.append(Starved(subscription, subscription in self._told))

    def forget(self, subscription: Subscription) -> None:
        """It goes, or comes back and remembers nothing of what it was told."""
        self._waiting.pop(subscription, None)
        self.served(subscription)

    def speak(self, ready: int) -> None:
        """All that could be granted is; `ready` messages are left for want of permits."""
        for subscription in list(self._fed):
            self.served(subscription)
            self._effects.append(Starved(subscription, False))
        for subscription in list(islice(self._waiting, max(0, ready - len(self._asked)))):
            del self._waiting[subscription]
            self._told.add(subscription)
            self._asked.add(subscription)
            self._effects.append(Starved(subscription, True))

    def __bool__(self) -> bool:
        """Whether there is anybody to speak of."""
        return bool(self._waiting or self._fed)
