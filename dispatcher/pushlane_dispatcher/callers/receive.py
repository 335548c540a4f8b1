"""A receive: a request for messages, the sink of a feed that ends with its answer.

It needs no session. Until its answer is out its messages are only reserved: a client that goes away
costs them nothing. Then their leases begin and the feed is closed; in each shard it ends with its
last lease. Whoever has a receipt, and may consume, may settle.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from pushlane.wire.errors import PushlaneError, error_for
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.feed import Feed, Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.act import START
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.core.subscription import REQUEST
from pushlane_storage.message import Message


class Received(msgspec.Struct, frozen=True):
    """One message of an answer."""

    id: str
    message: Message
    attempt: int
    prefix: str
    n: int
    fence: int
    lease_ms: int

    @property
    def receipt(self) -> str:
        return f"{self.prefix}.{self.n}"


class Receive:
    def __init__(self, tenant: str, queue: str, who: str, most: int, lease_ms: int | None) -> None:
        """`most` messages, for somebody of this name."""
        self.spec = Spec(
            tenant, queue, REQUEST + who, credit=most, lease_ms=lease_ms, explicit=True
        )
        self.feed: Feed
        """There as soon as it has subscribed."""
        self.error: PushlaneError | None = None
        """Why no more comes from a shard."""
        self._found: list[Received] = []
        self._taken: list[Received] = []
        self._quiet = False
        """Nothing is left for it in any shard."""
        self._over = False
        self._news = trio.Event()

    def subscribed(self, feed: Feed | None) -> None:
        assert feed is not None
        self.feed = feed

    # The sink

    def deliver(
        self, runs: list[Run], place: str, prefix: str | None, lease_ms: int | None, again: bool
    ) -> None:
        assert prefix is not None
        assert lease_ms is not None
        self._quiet = False
        for run in runs:
            start = f"{place}{run.lane:x}-"
            for i, message in enumerate(run.messages):
                id, n = f"{start}{run.seq + i:x}", run.n + i
                self._found.append(
                    Received(id, message, run.attempt, prefix, n, run.fence, lease_ms)
                )
        self._news.set()

    def lost(self, receipts: list[ReceiptRun]) -> None:
        gone = {(prefix, n) for prefix, low, high in receipts for n in range(low, high + 1)}
        self._found = [found for found in self._found if (found.prefix, found.n) not in gone]

    def quiet(self) -> None:
        self._quiet = True
        self._news.set()

    def settled(self) -> None:
        """It goes by its answer alone."""

    def ended(self, code: str, message: str) -> None:
        self.error = error_for(code, message, None if code == "not_found" else 100)
        self._news.set()

    def elsewhere(self) -> None:
        raise AssertionError("it is never attached again")

    reattached = superseded = elsewhere

    # Waiting

    async def wait(self, wait_ms: int, grace_ms: int) -> None:
        """Until something has come or the time is over.

        As long as a shard may have something at once it is waited for, `grace_ms` at most: it may
        have to be read from the store, and the lease cache be told.
        """
        began = trio.current_time()
        if wait_ms < grace_ms:
            await self._until(lambda: self._came or self._quiet, grace_ms)
        await self._until(lambda: self._came, wait_ms - (trio.current_time() - began) * 1000)
        if self._found:
            await self._until(lambda: self._full or self._quiet, grace_ms)

    @property
    def _came(self) -> bool:
        return bool(self._found) or self.error is not None

    @property
    def _full(self) -> bool:
        return len(self._found) >= self.spec.credit or self.error is not None

    async def _until(self, done: Callable[[], bool], most_ms: float) -> None:
        with trio.move_on_after(max(0.0, most_ms) / 1000):
            while not done():
                self._news = trio.Event()
                await self._news.wait()

    # The answer

    def take(self, size: int, size_of: Callable[[Message], int]) -> list[Received]:
        """Messages for the answer, of about so many bytes; at least one, if there is one at all.

        Nothing more comes after this.
        """
        if self.error is not None and not self._found:
            raise self.error
        self.feed.pause(True)
        for found in self._found:
            size -= size_of(found.message)
            if size < 0 and self._taken:
                break
            self._taken.append(found)
        self._found.clear()
        if not self._taken:
            self.give_back()
        return self._taken

    def begin(self) -> None:
        """The answer is out: the leases run, and what is not in it goes back."""
        if self._over:
            return
        self._over = True
        numbers: dict[str, list[int]] = {}
        for taken in self._taken:
            numbers.setdefault(taken.prefix, []).append(taken.n)
        receipts = [run for prefix, own in numbers.items() for run in runs_of_numbers(prefix, own)]
        self._taken = []
        self.feed.settle(START, receipts, _ignore, silently=True)
        self.feed.unsubscribe()

    def give_back(self) -> None:
        """Nobody will get it: as if it had never been reserved."""
        if not self._over:
            self._over = True
            self.feed.end()


def _ignore(_: Gather) -> None:
    """What was lost meanwhile its client will hear when it settles it."""
