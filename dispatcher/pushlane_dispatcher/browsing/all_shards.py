"""What is asked of all shards of a queue, side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import msgspec

from pushlane_dispatcher.browsing.question import Askable, GetStats
from pushlane_dispatcher.core.explain import Stats
from pushlane_storage.queue import QueueRow
from pushlane_storage.work import gather

A = TypeVar("A")
S = TypeVar("S")

AT_ONCE = 64
"""Shards of one queue that are asked at once."""


class Lookable(Protocol):
    """A queue, open or only looked at."""

    @property
    def row(self) -> QueueRow: ...

    @property
    def shards(self) -> Sequence[Askable]: ...


async def ask_each(shards: Sequence[S], ask: Callable[[S], Awaitable[A]]) -> list[A]:
    """Their answers, in the order of the shards. The first error ends it."""
    if len(shards) == 1:
        return [await ask(shards[0])]
    numbers = range(len(shards))
    found = await gather(lambda number: ask(shards[number]), numbers, AT_ONCE)
    return [found[number] for number in numbers]


async def stats_of(queue: Lookable) -> Stats:
    """Of all shards together."""
    return add_up(await ask_each(queue.shards, lambda shard: shard.ask(GetStats())))


def add_up(parts: list[Stats]) -> Stats:
    """All shards together."""
    found = [msgspec.structs.asdict(part) for part in parts]
    oldest = [part.pop("oldest_at") for part in found]
    sums = {name: sum(part[name] for part in found) for name in found[0]}
    return Stats(**sums, oldest_at=min((at for at in oldest if at is not None), default=None))
