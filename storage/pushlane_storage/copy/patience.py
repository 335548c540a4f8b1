"""Doing something again that a store has refused, or of which the outcome is unknown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from pushlane_storage.interface import QueueExists, StoreRefused, StoreUnknown

T = TypeVar("T")

PAUSES_S = (0.5, 1, 2, 4, 8, 16)
"""Before each further try: a database that is restarted is back in half a minute."""


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """For what may be done twice."""
    for pause in PAUSES_S:
        try:
            return await work()
        except QueueExists:
            raise
        except (StoreRefused, StoreUnknown):
            await trio.sleep(pause)
    return await work()
