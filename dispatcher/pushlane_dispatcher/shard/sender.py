"""The sender: takes deliveries to their sinks, in order, after the lease cache knows of them.

While the cache is asked the next round gathers, so that a busy shard asks once for many. What
ended is told to the cache when no delivery waits: it is never urgent. A cache that missed
something (it failed, or came back empty) is told everything that is out.
"""

from __future__ import annotations

from pushlane.wire.receipts import ReceiptRun, count
from pushlane_dispatcher.core.effects import (
    Deliver,
    Forget,
    Hungry,
    Lost,
    Remember,
    Run,
)
from pushlane_dispatcher.core.runs import held_runs
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.lease_guard import LeaseGuard, cache_name
from pushlane_dispatcher.shard.sink import Sink
from pushlane_leases.interface import InstantCache, LeaseRun


def hand_over(effect: Deliver | Lost | Hungry) -> None:
    """To the sink. A subscription that only the lease cache remembered has none yet."""
    subscription = effect.subscription
    sink: Sink | None = subscription.token
    if sink is None:
        return
    held = len(subscription.held) + subscription.untold
    waiting = subscription.waiting if subscription.penalties else 0
    if isinstance(effect, Deliver):
        sink.deliver(effect.runs, effect.again, held, waiting)
    elif isinstance(effect, Lost):
        sink.lost(effect.receipts, held, waiting)
    else:
        sink.hungry(effect.hungry, held, waiting)


Item = Deliver | Lost | Hungry | Remember
"""What goes in order."""


class Sender:
    def __init__(self, shard: Shard, guard: LeaseGuard, settings: Settings) -> None:
        self._shard = shard
        self._guard = guard
        self._name = cache_name(shard.key)
        self._forgets = settings.forgets
        self._known: int | None = guard.generation
        """The cache's generation that was told everything; None: it missed something."""
        self._behind = False
        """Tell it everything, also when nothing is to be delivered."""
        self._queue: list[tuple[Item, int]] = []
        self._batch: list[tuple[Item, int]] = []
        """What goes next: the cache is being told of it."""
        self._ended: list[ReceiptRun] = []
        self.busy = False
        """Something waits, or is under way: `run` is to be running."""

    def add(self, effect: Item) -> None:
        self._queue.append((effect, effect.subscription.generation))
        if isinstance(effect, Lost):
            effect.subscription.untold += count(effect.receipts)

    def forget(self, effect: Forget) -> None:
        self._ended += effect.receipts

    def catch_up(self) -> bool:
        """Tell a cache that missed something what is out. False: there is no need."""
        self._behind = self._known != self._guard.generation
        return self._behind

    def begin(self) -> bool:
        """Whether `run` must be started now."""
        starts = not self.busy and bool(self._queue or self._ended or self._behind)
        self.busy = self.busy or starts
        return starts

    async def run(self) -> None:
        """Until nothing waits. `Fenced` comes through."""
        while self._queue or self._ended or self._behind:
            runs = self._next()
            if runs or self._behind:
                await self._remember(runs)
            self._hand_over()
            if self._ended and (not self._queue or len(self._ended) >= self._forgets):
                await self._release()
        self.busy = False

    def run_now(self, cache: InstantCache) -> None:
        """Hand over what waits, with a cache that answers at once."""
        runs = self._next()
        if runs:
            cache.grant_now(self._name, self._shard.epoch, runs)
        self._hand_over()
        if self._ended:
            receipts, self._ended = self._ended, []
            cache.release_now(self._name, self._shard.epoch, receipts)
        self.busy = False

    def _next(self) -> list[LeaseRun]:
        """What the cache is to know of what goes next."""
        self._batch, self._queue = self._queue, []
        runs: list[LeaseRun] = []
        for effect, _ in self._batch:
            told = isinstance(effect, Remember) or (
                isinstance(effect, Deliver) and not effect.again
            )
            if told and not effect.subscription.ack_none:
                assert isinstance(effect, Remember | Deliver)
                runs += [self._lease_run(effect.subscription, run) for run in effect.runs]
        return runs

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, []
        for effect, generation in batch:
            # After a detach the rest is the resume's: it sends again what was not listed.
            if effect.subscription.generation != generation or isinstance(effect, Remember):
                continue
            if isinstance(effect, Lost):
                effect.subscription.untold -= count(effect.receipts)
            hand_over(effect)

    def unheard(self) -> dict[Subscription, set[int]]:
        """Who has not heard of something that waits here, and which receipts it therefore has."""
        had: dict[Subscription, set[int]] = {}
        for effect, generation in reversed([*self._batch, *self._queue]):
            subscription = effect.subscription
            if subscription.generation != generation:
                continue
            if isinstance(effect, Lost):
                numbers = had.setdefault(subscription, set(subscription.held))
                for _, low, high in effect.receipts:
                    numbers.update(range(low, high + 1))
            elif isinstance(effect, Deliver):
                numbers = had.setdefault(subscription, set(subscription.held))
                for run in effect.runs:
                    numbers.difference_update(range(run.n, run.n + len(run.messages)))
        return had

    async def _release(self) -> None:
        receipts, self._ended = self._ended, []
        if not await self._guard.release(self._shard.key, self._shard.epoch, receipts):
            self._known = None

    async def _remember(self, runs: list[LeaseRun]) -> None:
        self._behind = False
        generation = self._guard.generation
        if self._known != generation:
            runs = self._everything()
        told = await self._guard.grant(self._shard.key, self._shard.epoch, runs)
        self._known = generation if told else None

    def _everything(self) -> list[LeaseRun]:
        return [
            self._lease_run(subscription, run)
            for subscription in self._shard.consumers.subscriptions.values()
            for run in held_runs(subscription.held.values())
        ]

    def _lease_run(self, subscription: Subscription, run: Run) -> LeaseRun:
        return LeaseRun(
            subscription.prefix,
            run.n,
            len(run.messages),
            run.lane,
            run.seq,
            run.fence,
            subscription.session,
            run.attempt - 1,
            run.deliveries,
            run.started,
            subscription.lease_ms,
            run.deadline + self._shard.offset,
            self._shard.epoch,
        )
