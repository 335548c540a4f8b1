"""Doing many things, a few at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import trio

K = TypeVar("K")
V = TypeVar("V")


async def gather(run: Callable[[K], Awaitable[V]], keys: Iterable[K], at_once: int) -> dict[K, V]:
    """The results by key. The first error ends it all, and not in a group."""
    found: dict[K, V] = {}
    faults: list[Exception] = []
    wanted = list(keys)
    todo = iter(wanted)

    async def work(scope: trio.CancelScope) -> None:
        for key in todo:
            try:
                found[key] = await run(key)
            except Exception as error:
                faults.append(error)
                scope.cancel()
                return

    async with trio.open_nursery() as nursery:
        for _ in range(min(at_once, len(wanted))):
            nursery.start_soon(work, nursery.cancel_scope)
    if faults:
        raise faults[0]
    return found
