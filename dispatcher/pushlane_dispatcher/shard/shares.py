"""Shares: a queue's limits, dealt out to its shards.

`max_messages` and `max_bytes` are the queue's, and all its shards together hold no more. Each shard
is told its share, a plain number, and looks at nothing else. What is free goes first to the shard
that needs it, the rest in equal parts, and it is dealt anew when a shard has used half of its part:
so a publish is refused only when hardly anything is free in the whole queue.

Here the shards of a queue that this process has open share what is theirs of its limits: all, when
they are all here, else an equal part for each, as the others may be open elsewhere. Nobody knows
then how much those hold. So what came to be more than the part of those that are here stays, and
only what is published makes room for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pushlane_dispatcher.core.overflow import Use
from pushlane_storage.message import Message, size_of
from pushlane_storage.queue import QueueConfig


class Member(Protocol):
    """A shard that is open here."""

    shares: Shares | None
    """To be asked with every publish; None: its limits never change."""

    @property
    def use(self) -> Use:
        """What it holds, or is about to."""
        ...

    def allot(self, messages: int, size: int | None) -> None:
        """It may hold so much."""
        ...


class Need(NamedTuple):
    """What a shard is about to be asked to hold, besides what it holds."""

    place: int
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


def part_of(limit: int, number: int, shards: int) -> int:
    """The equal part of one shard. Those of all shards add up to the limit."""
    return limit * (number + 1) // shards - limit * number // shards


def _over(limit: int | None, used: Sequence[Use]) -> bool:
    return limit is not None and sum(use.bytes for use in used) > limit


class Shares:
    """Deals a queue's limits out to those of its shards that are open in this process."""

    def __init__(self, config: QueueConfig, most: int, version: int = 0) -> None:
        """`most` is how far `auto_expand` may raise `max_messages`."""
        self._highest = most
        self._members: dict[int, Member] = {}
        """By the shard's number."""
        self._runners: list[Member] = []
        """The same in order …"""
        self._places: dict[int, int] = {}
        """… and where each stands in it."""
        self._lent = False
        """A shard may have got more than was free: others make room when it has used it."""
        self._ranges: list[Range] = []
        """How much each shard may use without dealing anew."""
        self.configure(config, version)

    def join(self, number: int, runner: Member) -> None:
        """A shard is open."""
        self._members[number] = runner
        self._line_up()

    def leave(self, number: int) -> bool:
        """A shard is over. Whether it was the last one."""
        self._members.pop(number).shares = None
        self._line_up()
        return not self._members

    def _line_up(self) -> None:
        numbers = sorted(self._members)
        self._runners = [self._members[number] for number in numbers]
        self._places = {number: place for place, number in enumerate(numbers)}
        self.configure(self._config, self.version)

    def configure(self, config: QueueConfig, version: int = 0) -> None:
        """The configuration of the row with this version."""
        self._config, self.version = config, version
        self._all_here = len(self._runners) == config.shards
        self._least = self._limit = self._part(config.max_messages)
        self._most = self._part(self._highest)
        self._bytes = None if config.max_bytes is None else self._part(config.max_bytes)
        self._lent = False
        self._ranges = [ALWAYS] * len(self._runners)
        live = config.shards > 1 or config.auto_expand
        for runner in self._runners:
            runner.shares = self if live else None
            if not live:
                runner.allot(self._limit, self._bytes)
        if live and self._all_here:  # else those that are still to come would change it again
            self._deal(NOTHING)

    def _part(self, limit: int) -> int:
        """What is theirs who are here of one of the queue's limits."""
        shards = self._config.shards
        return sum(part_of(limit, number, shards) for number in self._members)

    def before(self, shard: int, messages: Sequence[Message]) -> None:
        """Messages are about to be published to a shard: let it have room, if there is any."""
        size = 0
        if self._bytes is not None:
            size = sum(size_of(message) for message in messages)
        place = self._places[shard]
        use, steady = self._runners[place].use, self._ranges[place]
        wanted = use.messages + len(messages)
        if not steady.least <= wanted <= steady.most or (
            size and use.bytes + size > steady.most_bytes
        ):
            self._deal(Need(place, len(messages), size))

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
            self._limit = expand(self._limit, wanted, self._least, self._most)
        held = [use.held_messages for use in used]
        counts = self._parts(self._limit, messages, held, need.place, need.messages)
        sizes: list[int | None] = [None] * len(used)
        if self._bytes is not None:
            bytes_ = [use.bytes for use in used]
            held = [use.held_bytes for use in used]
            sizes = [*self._parts(self._bytes, bytes_, held, need.place, need.bytes)]
        self._lent = need is not NOTHING and config.overflow != "reject"
        # Above its limit a queue has nothing to give: what goes is nobody's to fill again.
        over = sum(messages) > self._limit or _over(self._bytes, used)
        messages[need.place] += need.messages
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
        if config.auto_expand and limit > self._least:
            fall = max(0, used - -(-limit // 5)) // shards
        if config.auto_expand and limit < self._most:
            rise = max(0, limit * 4 // 5 - used) // shards
        return fall, rise

    def _parts(
        self, limit: int, used: Sequence[int], held: Sequence[int], place: int, needed: int
    ) -> list[int]:
        if not self._all_here:
            limit = max(limit, sum(used))
        if self._config.overflow == "reject":
            return deal(limit, used, used, place, needed)
        parts = deal(limit, used, held, place, needed)
        if not needed:
            return parts
        # Nobody lets anything go before it is known that it must: a repeat needs no room.
        return [
            part if at == place else max(part, use)
            for at, (part, use) in enumerate(zip(parts, used, strict=True))
        ]
