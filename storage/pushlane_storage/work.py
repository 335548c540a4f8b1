"""Doing many things, a few at a time; and doing one again that a store has refused, or of which the
outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import trio

from pushlane_storage.interface import QueueExists, StoreRefused, StoreUnknown

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
K = TypeVar("K")
T = TypeVar("T")
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


async def together(
    first: Callable[[], Awaitable[A]],
    second: Callable[[], Awaitable[B]],
    third: Callable[[], Awaitable[C]],
) -> tuple[A, B, C]:
    """Three results. The first error ends it all, and not in a group."""

    async def run(one: Callable[[], Awaitable[Any]]) -> Any:
        return await one()

    found = await gather(run, (first, second, third), 3)
    return found[first], found[second], found[third]


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
