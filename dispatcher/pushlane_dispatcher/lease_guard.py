"""The lease cache as the dispatcher uses it: asked with a time-out, left alone when it fails.

The cache only ever delays a redelivery, so no failure of it stops a shard: it is counted, logged,
and the caller goes on. The one answer that counts is `StaleEpoch`: a newer owner has been here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import trio

from pushlane_dispatcher.breaker import Breaker
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.settings import Settings
from pushlane_leases.interface import (
    Forgotten,
    InstantCache,
    LeaseCache,
    LeaseCacheError,
    LeaseRun,
    ReceiptRun,
    StaleEpoch,
)

log = logging.getLogger(__name__)
T = TypeVar("T")


class LeaseGuard:
    def __init__(self, cache: LeaseCache, clock: Clock, settings: Settings) -> None:
        self._cache = cache
        self.instant = cache if isinstance(cache, InstantCache) else None
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
        self.skipped = 0
        """Calls that were not made while the breaker was open."""

    @property
    def broken(self) -> bool:
        """The breaker is open: shards go on from memory."""
        return self._breaker.open

    @property
    def trips(self) -> int:
        return self._breaker.trips

    async def claim(self, shard: str, epoch: int, now: int) -> list[LeaseRun] | None:
        """What is out; None when the cache can't say."""
        return await self._ask(lambda: self._cache.claim(shard, epoch, now), self._claim_timeout)

    async def grant(self, shard: str, epoch: int, runs: Sequence[LeaseRun]) -> bool:
        return await self._tell(lambda: self._cache.grant(shard, epoch, runs))

    async def release(self, shard: str, epoch: int, receipts: Sequence[ReceiptRun]) -> bool:
        return await self._tell(lambda: self._cache.release(shard, epoch, receipts))

    async def remember(
        self, shard: str, epoch: int, marks: Sequence[tuple[str, bytes]], ttl_ms: int
    ) -> bool:
        now = self._clock.wall()
        return await self._tell(lambda: self._cache.remember(shard, epoch, marks, ttl_ms, now))

    async def recall(self, shard: str, names: Sequence[str]) -> dict[str, bytes]:
        """Empty when the cache can't say."""
        now = self._clock.wall()
        ask = self._ask(lambda: self._cache.recall(shard, names, now), self._claim_timeout)
        return await ask or {}

    async def _tell(self, call: Callable[[], Awaitable[None]]) -> bool:
        async def told() -> bool:
            await call()
            return True

        return await self._ask(told, self._timeout) is True

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
            log.warning("the lease cache failed too often: going on without it")
