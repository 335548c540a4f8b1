"""A grant: what one shard gave to one receive.

It is the sink of a subscription of its own. While the receive waits and its answer travels the
messages are only reserved: a client that goes away costs them nothing. When the answer is out the
leases begin and the subscription is closed; it ends with its last lease. So a shard keeps as many
of them as there are receives that wait or whose messages are still out, and no more.

Whoever has a receipt and the right to consume may settle: a request has no session. The
subscription is called `http:NAME`, which is how one is recognised that outlived its shard in the
lease cache. One of a session that outlived it is the session's again as soon as that comes back;
until then its receipts are good here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from pushlane.wire.errors import PushlaneError, Unavailable, error_for
from pushlane_dispatcher.core.act import START
from pushlane_dispatcher.core.effects import Receipts, Run
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.settled import Settled
from pushlane_dispatcher.shard_runner import ShardRunner
from pushlane_storage.message import Message

SESSION = "http:"
"""No session of a WebSocket is called like this."""


class Granted(msgspec.Struct, frozen=True):
    """One message of an answer."""

    id: str
    message: Message
    attempt: int
    receipt: str
    fence: int
    lease_ms: int


class Grant:
    __slots__ = ("_begun", "_lent", "_news", "_over", "_runs", "_settled", "_settling", "_taken",
                 "error", "runner", "subscription")  # fmt: skip

    def __init__(
        self,
        runner: ShardRunner,
        settled: Settled,
        news: Callable[[], None] = lambda: None,
    ) -> None:
        self.runner = runner
        self.subscription: Subscription
        self.error: PushlaneError | None = None
        self._settled = settled
        self._news = news
        self._runs: list[Run] = []
        self._taken: list[int] = []
        """Receipt numbers that are in the answer."""
        self._begun = False
        self._lent = False
        """The subscription is a session's that has not come back: here only for a settle."""
        self._over = False
        self._settling = 0

    @classmethod
    def attach(
        cls,
        runner: ShardRunner,
        settled: Settled,
        who: str,
        credit: int,
        lease_ms: int | None,
        news: Callable[[], None],
        claims: Claims = (),
    ) -> Grant:
        """Ask a shard for messages; `news` is called when there are any. Raises PushlaneError."""
        grant = cls(runner, settled, news)
        grant.subscription = runner.attach(
            grant, SESSION + who, credit, lease_ms=lease_ms, explicit=True, claims=claims
        )
        return grant

    @classmethod
    def adopt(cls, runner: ShardRunner, subscription: Subscription, settled: Settled) -> Grant:
        """Go on with one that only the lease cache remembered: its answer was out."""
        grant = cls(runner, settled)
        grant.subscription = subscription
        held = sorted(subscription.held)
        runner.resume(subscription, runs_of_numbers(subscription.prefix, held), grant)
        grant._taken = held
        grant.begin()
        return grant

    @classmethod
    def lend(cls, runner: ShardRunner, subscription: Subscription, settled: Settled) -> Grant:
        """Settle for a session that did not outlive its shard, or has not come back yet."""
        grant = cls(runner, settled)
        grant.subscription = subscription
        grant._lent = grant._over = True
        return grant

    # The sink

    def deliver(self, runs: list[Run], again: bool) -> None:
        if not self._over and not self._begun:
            self._runs += runs
            self._news()

    def lost(self, receipts: list[Receipts]) -> None:
        self.rest()

    def starved(self, starving: bool) -> None:
        """Never: each shard has a credit of its own."""

    def ended(self, code: str, message: str) -> None:
        if not self._over:
            self._over = True
            self.error = error_for(code, message, None if code == "not_found" else 100)
            self._news()

    # Answering

    @property
    def came(self) -> bool:
        return bool(self._runs)

    @property
    def coming(self) -> bool:
        """Something is reserved, and on its way."""
        return bool(self.subscription.held)

    def take(
        self, count: int, size: int, size_of: Callable[[Message], int]
    ) -> tuple[list[Granted], int]:
        """Messages for the answer and their bytes; at least one, if there is one at all."""
        found: list[Granted] = []
        total = 0
        prefix, held = self.subscription.prefix, self.subscription.held
        for run in self._runs:
            for i, message in enumerate(run.messages):
                n = run.n + i
                if len(found) >= count or (found and total + size_of(message) > size):
                    return found, total
                if n not in held:  # it was taken back meanwhile
                    continue
                id = make_id(*self.runner.key, run.lane, run.seq + i)
                receipt, lease_ms = f"{prefix}.{n}", self.subscription.lease_ms
                found.append(Granted(id, message, run.attempt, receipt, run.fence, lease_ms))
                self._taken.append(n)
                total += size_of(message)
        return found, total

    def stop(self) -> None:
        """Nothing more: its answer is made."""
        if not self._taken:
            self.give_back()
        elif not self._over:
            with suppress(Unavailable):
                self.runner.credit(self.subscription, 0)

    def begin(self) -> None:
        """The answer is out: the leases run, and what is not in it goes back."""
        if self._begun or self._over:
            return
        self._begun = True
        self._runs.clear()
        subscription = self.subscription
        receipts = runs_of_numbers(subscription.prefix, self._taken)
        with suppress(Unavailable):
            self.runner.settle(subscription, subscription.generation, START, receipts)
            self.runner.unsubscribe(subscription)
        self.rest()

    def give_back(self) -> None:
        """Nobody will get it: as if it had never been reserved."""
        self._runs.clear()
        self._end()

    # Afterwards

    @contextmanager
    def settling(self) -> Iterator[None]:
        """A settle is under way: what it settled is not to be confirmed before it is durable."""
        self._settling += 1
        try:
            yield
        finally:
            self._settling -= 1
            self.rest()

    def rest(self) -> None:
        """Something was settled or lost: end it when that was the last."""
        if self.runner.stopped_by is not None:  # whatever it settled last may not have happened
            self._over = True
        elif self._lent:
            self._keep()
        elif self._begun and not (self.subscription.held or self._settling or self._over):
            self._keep()
            self._end()

    def _keep(self) -> None:
        prefix, numbers = self.subscription.prefix, self.subscription.settled
        if len(numbers):
            self._settled.keep(prefix, self.runner.key.queue_id, numbers)

    def _end(self) -> None:
        if not self._over:
            self._over = True
            with suppress(Unavailable):
                self.runner.end(self.subscription)


def find_grant(runner: ShardRunner, subscription: Subscription, settled: Settled) -> Grant | None:
    """The grant behind a subscription; None: it is a session's."""
    grant = subscription.token
    if grant is None:  # only the lease cache remembered it
        own = subscription.session.startswith(SESSION)
        return (Grant.adopt if own else Grant.lend)(runner, subscription, settled)
    return grant if isinstance(grant, Grant) else None
