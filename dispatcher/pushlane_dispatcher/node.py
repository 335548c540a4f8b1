"""A node: the store and the lease cache that URLs name, and the dispatcher on top of them.

The gateway opens a node and knows nothing of what lies below; the few types of the layers below
that it needs (messages, queue rows) it takes from here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_leases.interface import LeaseCache
from pushlane_leases.memory import InstantLeases
from pushlane_storage.interface import Store
from pushlane_storage.message import Dead, Message
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.sqlite.errors import OpenError
from pushlane_storage.sqlite.limits import Limits as SqliteLimits
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.url import BadStoreUrl, open_store

__all__ = [
    "CannotOpen",
    "Clock",
    "Dead",
    "Dispatcher",
    "Message",
    "QueueConfig",
    "QueueRow",
    "open_node",
]

SQLITE = "sqlite:"
LEASE_URLS = ("memory:",)


class CannotOpen(Exception):
    """The node can't be opened as it was asked for; the message says why, in one sentence."""


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
    sqlite: SqliteLimits | None = None,
) -> AsyncIterator[Dispatcher]:
    """Raises `CannotOpen` before anything is served. The store is closed last, come what may."""
    leases = _open_leases(leases_url)
    store = await _open_store(store_url, sqlite)
    try:
        async with open_dispatcher(
            store,
            leases,
            clock=clock,
            settings=settings,
            bounds=bounds or Bounds(credit=limits.credit),
            limits=limits,
            owner=owner,
        ) as dispatcher:
            yield dispatcher
    finally:
        with trio.CancelScope(shield=True):
            await store.close()


async def _open_store(url: str, sqlite: SqliteLimits | None) -> Store:
    try:
        if sqlite is not None and url.startswith(SQLITE) and url != SQLITE:
            return await SqliteStore.open(url.removeprefix(SQLITE), sqlite)
        return await open_store(url)
    except (BadStoreUrl, OpenError) as error:
        raise CannotOpen(str(error)) from error


def _open_leases(url: str) -> LeaseCache:
    scheme, colon, rest = url.partition(":")
    opener = _LEASES.get(scheme) if colon and not rest else None
    if opener is None:
        raise CannotOpen(f"bad lease URL {url!r}: known are {', '.join(LEASE_URLS)}")
    return opener()


_LEASES: dict[str, Callable[[], LeaseCache]] = {"memory": InstantLeases}
