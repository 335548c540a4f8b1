"""Shares: a queue's limits, dealt out to its shards.

`max_messages` and `max_bytes` are the queue's, and all its shards together hold no more. Each shard
is told its share, a plain number, and looks at nothing else. What is free goes first to the shard
that needs it, the rest in equal parts, and it is dealt anew when a shard has used half of its part:
so a publish is refused only when hardly anything is free in the whole queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pushlane_dispatcher.core.overflow import Use
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_storage.message import Message, size_of
from pushlane_storage.queue import QueueConfig


class Need(NamedTuple):
    """What a shard is about to be asked to hold, besides what it holds."""

    shard: int
    messages: int
    bytes: int


NOTHING = Need(0, 0, 0)


class Range(NamedTuple):
    """What a shard may use without its queue's limits being dealt anew."""

    least: int
    most: int
    most_bytes: int


ALWAYS = Range(0, -1, -1)
"""They are, with every publish."""

FAR = 1 << 62
"""More than any limit."""


def deal(
    limit: int, used: Sequence[int], held: Sequence[int], shard: int, needed: int
) -> list[int]:
    """The shares of shards that use so much, one of which needs more.

    `held` is what can't go. The shares add up to the limit, unless more than that is held.
    """
    free = limit - sum(used) - needed
    wanted = list(used)
    wanted[shard] += needed
    if free < 0:
        return level(limit, wanted, held)
    each, rest = divmod(free, len(used))
    return [want + each + (number < rest) for number, want in enumerate(wanted)]


def level(limit: int, wanted: Sequence[int], held: Sequence[int]) -> list[int]:
    """Shares of a limit that is exceeded: who wants the most gets the least of it."""
    left, shares = max(0, limit - sum(held)), list(held)
    over = [want - hold for want, hold in zip(wanted, held, strict=True)]
    poorest_first = sorted(range(len(over)), key=lambda number: over[number])
    for done, number in enumerate(poorest_first):
        part = min(over[number], left // (len(over) - done))
        shares[number] += part
        left -= part
    return shares


def expand(limit: int, wanted: int, least: int, most: int) -> int:
    """`auto_expand`: double the limit at 80 %, halve it again below 20 %."""
    most = max(least, most)
    while wanted * 5 > limit * 4 and limit < most:
        limit = min(max(2 * limit, 1), most)
    while wanted * 5 < limit and limit > least:
        limit = max(limit // 2, least)
    return limit


def _over(limit: int | None, used: Sequence[Use]) -> bool:
    return limit is not None and sum(use.bytes for use in used) > limit


class Shares:
    """Deals a queue's limits out to its shards in this process."""

    def __init__(self, runners: Sequence[ShardRunner], config: QueueConfig, most: int) -> None:
        """`most` is how far `auto_expand` may raise `max_messages`."""
        self._runners = runners
        self._most = most
        self._lent = False
        """A shard may have got more than was free: others make room when it has used it."""
        self._ranges: list[Range] = []
        """How much each shard may use without dealing anew."""
        self.configure(config)

    def configure(self, config: QueueConfig) -> None:
        self._config = config
        self._limit = config.max_messages
        self.live = len(self._runners) > 1 or config.auto_expand
        """Whether they ever change."""
        self._deal(NOTHING)

    def before(self, shard: int, messages: Sequence[Message]) -> None:
        """Messages are about to be published to a shard: let it have room, if there is any."""
        size = 0
        if self._config.max_bytes is not None:
            size = sum(size_of(message) for message in messages)
        use, steady = self._runners[shard].use, self._ranges[shard]
        wanted = use.messages + len(messages)
        if not steady.least <= wanted <= steady.most or (
            size and use.bytes + size > steady.most_bytes
        ):
            self._deal(Need(shard, len(messages), size))

    def after(self) -> None:
        """They were published, or some of them: who holds the most makes room for them."""
        if self._lent:
            self._deal(NOTHING)

    def _deal(self, need: Need) -> None:
        config = self._config
        used = [runner.use for runner in self._runners]
        messages = [use.messages for use in used]
        if config.auto_expand:
            wanted = sum(messages) + need.messages
            self._limit = expand(self._limit, wanted, config.max_messages, self._most)
        held = [use.held_messages for use in used]
        counts = self._parts(self._limit, messages, held, need.shard, need.messages)
        sizes: list[int | None] = [None] * len(used)
        if config.max_bytes is not None:
            bytes_ = [use.bytes for use in used]
            held = [use.held_bytes for use in used]
            sizes = [*self._parts(config.max_bytes, bytes_, held, need.shard, need.bytes)]
        self._lent = need is not NOTHING and config.overflow != "reject"
        # Above its limit a queue has nothing to give: what goes is nobody's to fill again.
        over = sum(messages) > self._limit or _over(config.max_bytes, used)
        messages[need.shard] += need.messages
        fall, rise = self._way(sum(messages))
        self._ranges = [
            ALWAYS
            if over
            else Range(
                want - fall,
                min((use.messages + count) // 2, want + rise),
                (use.bytes + (size or 0)) // 2,
            )
            for use, want, count, size in zip(used, messages, counts, sizes, strict=True)
        ]
        for runner, count, size in zip(self._runners, counts, sizes, strict=True):
            runner.allot(count, size)

    def _way(self, used: int) -> tuple[int, int]:
        """How much less, or more, each shard may use before `auto_expand` changes the limit."""
        config, limit, shards = self._config, self._limit, len(self._runners)
        fall = rise = FAR
        if config.auto_expand and limit > config.max_messages:
            fall = max(0, used - -(-limit // 5)) // shards
        if config.auto_expand and limit < self._most:
            rise = max(0, limit * 4 // 5 - used) // shards
        return fall, rise

    def _parts(
        self, limit: int, used: Sequence[int], held: Sequence[int], shard: int, needed: int
    ) -> list[int]:
        if self._config.overflow == "reject":
            return deal(limit, used, used, shard, needed)
        parts = deal(limit, used, held, shard, needed)
        if not needed:
            return parts
        # Nobody lets anything go before it is known that it must: a repeat needs no room.
        return [
            part if number == shard else max(part, use)
            for number, (part, use) in enumerate(zip(parts, used, strict=True))
        ]
