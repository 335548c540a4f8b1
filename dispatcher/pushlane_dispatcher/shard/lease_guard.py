"""The lease cache as the dispatcher uses it: asked with a time-out, left alone when it fails.

The cache only ever delays a redelivery, so no failure of it stops a shard: it is counted, logged,
and the caller goes on. When it knows a newer owner, the store is asked. If there is one the store
says so (`Fenced`); if not, the cache was restored, or is another one than before, and it is
overwritten.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import trio

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.settings import Settings
from pushlane_leases.interface import (
    Forgotten,
    KeptSession,
    LeaseCache,
    LeaseCacheError,
    LeaseRun,
    NotNow,
    StaleEpoch,
)
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import StoreRefused, StoreUnknown

log = logging.getLogger(__name__)
T = TypeVar("T")


ConfirmOwner = Callable[[ShardKey], Awaitable[None]]
"""`Fenced` when this process owns the shard no longer."""


def cache_name(key: ShardKey) -> str:
    """What a shard is called in the lease cache."""
    return f"{key.queue_id}/{key.shard}"


class Breaker:
    """After some failures in a row, leaves a service alone for a while.

    Closed, every call may go. Open, none may until the rest is over; then one call tries, and
    decides.
    """

    __slots__ = ("_failures", "_limit", "_open_until", "_rest_ms", "_trying", "trips")

    def __init__(self, failures: int, rest_ms: int) -> None:
        self._limit = failures
        self._rest_ms = rest_ms
        self._failures = 0
        self._open_until: int | None = None
        self._trying = False
        self.trips = 0
        """How often it opened."""

    @property
    def open(self) -> bool:
        return self._open_until is not None

    def allows(self, now: int) -> bool:
        """Whether a call may go. Whoever is allowed says how it went."""
        if self._open_until is None:
            return True
        if self._trying or now < self._open_until:
            return False
        self._trying = True
        return True

    def succeeded(self) -> bool:
        """A call went well. True: the service is back."""
        back = self._open_until is not None
        self._failures, self._open_until, self._trying = 0, None, False
        return back

    def failed(self, now: int) -> bool:
        """A call failed. True: that was once too often, the breaker opens."""
        self._failures += 1
        opens = self._open_until is None and self._failures >= self._limit
        if opens or self._trying:
            self._open_until = now + self._rest_ms
            self._trying = False
        self.trips += opens
        return opens

    def gave_up(self) -> None:
        """A call was cancelled from outside: it says nothing, and the next one may try."""
        self._trying = False


class LeaseGuard:
    def __init__(
        self, cache: LeaseCache, clock: Clock, settings: Settings, confirm: ConfirmOwner
    ) -> None:
        self._cache = cache
        self._confirm = confirm
        self.instant = cache.instant
        """The cache, when it need not be waited for: then there is nothing to guard against."""
        self._clock = clock
        self._timeout = settings.cache_ms / 1000
        self._claim_timeout = settings.cache_claim_ms / 1000
        self._breaker = Breaker(settings.cache_failures, settings.cache_rest_ms)
        self.generation = 1
        """One more whenever the cache comes back: then it has missed something."""
        self.failures = 0
        """Calls that failed or took too long."""
        self.forgotten = 0
        """Calls that found that the cache had lost what it knew of their shard."""
        self.overruled = 0
        """Calls that found a newer owner in the cache, of which the store knew nothing."""
        self.skipped = 0
        """Calls that were not made while the breaker was open, or came to nothing while Redis
        moved a shard's keys."""

    @property
    def broken(self) -> bool:
        """The breaker is open: shards go on from memory."""
        return self._breaker.open

    @property
    def trips(self) -> int:
        return self._breaker.trips

    async def claim(self, shard: ShardKey, epoch: int, now: int) -> list[LeaseRun] | None:
        """What is out; None when the cache can't say."""
        name = cache_name(shard)
        return await self._own(
            shard, epoch, lambda: self._cache.claim(name, epoch, now), self._claim_timeout
        )

    async def grant(self, shard: ShardKey, epoch: int, runs: Sequence[LeaseRun]) -> bool:
        name = cache_name(shard)
        return await self._tell(shard, epoch, lambda: self._cache.grant(name, epoch, runs))

    async def release(self, shard: ShardKey, epoch: int, receipts: Sequence[ReceiptRun]) -> bool:
        name = cache_name(shard)
        return await self._tell(shard, epoch, lambda: self._cache.release(name, epoch, receipts))

    async def remember(
        self, shard: ShardKey, epoch: int, marks: Sequence[tuple[str, bytes]], ttl_ms: int
    ) -> bool:
        name, now = cache_name(shard), self._clock.wall()
        return await self._tell(
            shard, epoch, lambda: self._cache.remember(name, epoch, marks, ttl_ms, now)
        )

    async def recall(self, shard: ShardKey, names: Sequence[str]) -> dict[str, bytes]:
        """Empty when the cache can't say."""
        name, now = cache_name(shard), self._clock.wall()
        ask = self._ask(lambda: self._cache.recall(name, names, now), self._claim_timeout)
        return await ask or {}

    # Sessions: None, or nothing, when the cache can't say

    async def put_session(self, id: str, term: int, record: bytes, ttl_ms: int) -> bool | None:
        now = self._clock.wall()
        return await self._ask(
            lambda: self._cache.put_session(id, term, record, ttl_ms, now), self._timeout
        )

    async def get_session(self, id: str) -> KeptSession | None:
        now = self._clock.wall()
        return await self._ask(lambda: self._cache.get_session(id, now), self._timeout)

    async def take_session(self, id: str, term: int) -> bool | None:
        now = self._clock.wall()
        return await self._ask(lambda: self._cache.take_session(id, term, now), self._timeout)

    async def drop_session(self, id: str, term: int) -> None:
        await self._ask(lambda: self._cache.drop_session(id, term), self._timeout)

    async def _tell(self, shard: ShardKey, epoch: int, call: Callable[[], Awaitable[None]]) -> bool:
        async def told() -> bool:
            await call()
            return True

        return await self._own(shard, epoch, told, self._timeout) is True

    async def _own(
        self, shard: ShardKey, epoch: int, call: Callable[[], Awaitable[T]], seconds: float
    ) -> T | None:
        """Ask as the owner of a shard. `Fenced` comes through."""
        try:
            return await self._ask(call, seconds)
        except StaleEpoch as stale:
            await self._overrule(shard, epoch, stale)
            return None

    async def _overrule(self, shard: ShardKey, epoch: int, stale: StaleEpoch) -> None:
        try:
            await self._confirm(shard)
        except (StoreUnknown, StoreRefused) as error:
            log.warning("%s; whether that is so the store can't say now: %s", stale, error)
            return
        log.warning("%s; but the store says it is ours, so the lease cache is overwritten", stale)
        self.overruled += 1
        name = cache_name(shard)
        with suppress(StaleEpoch):  # by now there is another one: the next call will find it
            await self._ask(lambda: self._cache.overwrite(name, epoch, stale.newest), self._timeout)

    async def _ask(self, call: Callable[[], Awaitable[T]], seconds: float) -> T | None:
        if not self._breaker.allows(self._clock.now()):
            self.skipped += 1
            return None
        try:
            with trio.fail_after(seconds):
                answer = await call()
        except StaleEpoch:
            self._succeeded()
            raise
        except Forgotten as error:  # it answers, but it missed something all the same
            self._succeeded()
            self.forgotten += 1
            log.warning("the lease cache forgot: %s", error)
            return None
        except NotNow as error:  # of one shard: no reason to leave the cache alone
            self._succeeded()
            self.skipped += 1
            log.info("the lease cache can't serve a shard now: %s", error)
            return None
        except (LeaseCacheError, trio.TooSlowError) as error:
            self._failed(error)
            return None
        except BaseException:
            self._breaker.gave_up()
            raise
        self._succeeded()
        return answer

    def _succeeded(self) -> None:
        if self._breaker.succeeded():
            self.generation += 1
            log.warning("the lease cache is back")

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        log.info("the lease cache failed: %r", error)
        if self._breaker.failed(self._clock.now()):
            log.warning("the lease cache failed too often: continuing without it")
