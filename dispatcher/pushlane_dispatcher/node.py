"""A node: the store and the lease cache that URLs name, and the dispatcher on top of them.

The gateway opens a node and knows nothing of what lies below. What a configuration may set there is
named here; `port` has what a gateway asks of an open node.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.clock import Clock, since_boot
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.config import check_config, queue_ranges
from pushlane_dispatcher.recording.recorder import HistorySettings, Recorder
from pushlane_dispatcher.settings import Settings
from pushlane_leases.interface import LeaseCache, LeaseCacheError
from pushlane_leases.url import BadLeaseUrl, open_leases, probe_leases
from pushlane_storage.cassandra.limits import Limits as CassandraLimits
from pushlane_storage.errors import OpenError, Unreachable
from pushlane_storage.interface import Backend
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.limits import Limits as SqliteLimits
from pushlane_storage.url import (
    DEFAULT_LIMITS,
    BadStoreUrl,
    StoreLimits,
    open_store,
    probe_store,
    shown,
)

__all__ = [
    "BadLeaseUrl",
    "BadStoreUrl",
    "Bounds",
    "CannotOpen",
    "CassandraLimits",
    "Clock",
    "Dispatcher",
    "HistorySettings",
    "LeaseCacheError",
    "QueueConfig",
    "Settings",
    "SqliteLimits",
    "StoreAway",
    "StoreLimits",
    "check_config",
    "open_node",
    "probe_leases",
    "probe_store",
    "queue_ranges",
    "shown",
]


class CannotOpen(Exception):
    """The node can't be opened as it was asked for; the message says why, in one sentence."""


class StoreAway(CannotOpen):
    """The store can't be reached: the same may succeed later."""


@asynccontextmanager
async def open_node(
    store_url: str,
    leases_url: str = "memory:",
    *,
    limits: Limits = DEFAULTS,
    clock: Clock | None = None,
    settings: Settings | None = None,
    bounds: Bounds | None = None,
    owner: str | None = None,
    stores: StoreLimits = DEFAULT_LIMITS,
    history: HistorySettings | None = None,
) -> AsyncIterator[Dispatcher]:
    """Raises `CannotOpen` before anything is served. What was opened is closed, come what may.

    A lease cache need not be there, now or later: the dispatcher goes on without it.
    """
    clock = clock or Clock(elapsed=since_boot)
    owner = owner or f"node-{secrets.token_hex(8)}"
    async with (
        _leases(leases_url) as leases,
        _store(store_url, stores) as store,
        _recording(history, owner, clock) as recorder,
        open_dispatcher(
            store,
            leases,
            clock=clock,
            settings=settings,
            bounds=bounds or Bounds(credit=limits.credit),
            limits=limits,
            owner=owner,
            recorder=recorder,
        ) as dispatcher,
    ):
        yield dispatcher


@asynccontextmanager
async def _store(url: str, limits: StoreLimits) -> AsyncIterator[Backend]:
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(open_store(url, limits))
        except Unreachable as error:
            raise StoreAway(str(error)) from error
        except OpenError as error:
            raise CannotOpen(str(error)) from error
        yield store


@asynccontextmanager
async def _leases(url: str) -> AsyncIterator[LeaseCache]:
    try:
        leases = open_leases(url)
    except BadLeaseUrl as error:
        raise CannotOpen(str(error)) from error
    try:
        yield leases
    finally:
        with trio.CancelScope(shield=True):
            await leases.close()


@asynccontextmanager
async def _recording(
    settings: HistorySettings | None, owner: str, clock: Clock
) -> AsyncIterator[Recorder | None]:
    recorder = _open_recorder(settings, owner, clock)
    try:
        yield recorder
    finally:
        if recorder is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(recorder.close)


def _open_recorder(settings: HistorySettings | None, owner: str, clock: Clock) -> Recorder | None:
    if settings is None or not settings.queues:
        return None
    try:
        return Recorder(settings, owner, clock.wall)
    except OSError as error:
        raise CannotOpen(f"the history can't be recorded in {settings.folder}: {error}") from error
