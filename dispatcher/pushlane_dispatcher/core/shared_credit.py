"""Shared credit: how one subscription's permits are dealt out to the shards of its queue.

A shard grants as long as its own credit allows, so the shards' credits together must never allow
more than the client's. What is used counts where it is; what is spare is dealt out evenly, again
with every delivery and settle. So a shard with a backlog gets half of a half of what the idle ones
have, and so on, until it has nearly all; and when the client holds more than it may (it lowered
its credit), no shard grants anything.

With fewer spare permits than shards some get none. A shard that has something for which it has no
permit says so (`Hungry`), and comes first, in the order in which they said it. It keeps its place
until it delivers, or says that there is nothing any more: a permit that was taken away again before
it could be used would go back and forth for ever.

No clock is needed: whatever gives a permit back is said (delivered, settled, lost, pardoned).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


class SharedCredit:
    __slots__ = ("_first", "_hungry", "total")

    def __init__(self, total: int, first: int = 0) -> None:
        """`first`: which shard gets what is left over when none is hungry."""
        self.total = total
        self._first = first
        self._hungry: dict[int, None] = {}

    def deal(self, used: Sequence[int], down: Collection[int] = ()) -> list[int]:
        """The credit of each shard. `used` permits are held there, or wait for a backoff to end.

        Shards that are `down` get none of what is spare. Take from those that get less before you
        give to the others.
        """
        spare = self.total - sum(used)
        if spare < 0:
            return [0] * len(used)
        credits = list(used)
        order = [shard for shard in self._order(len(used)) if shard not in down]
        each, left = divmod(spare, len(order) or 1)
        for place, shard in enumerate(order):
            credits[shard] += each + (place < left)
        return credits

    def _order(self, count: int) -> list[int]:
        others = [(self._first + step) % count for step in range(count)]
        return [*self._hungry, *(shard for shard in others if shard not in self._hungry)]

    # What shards say

    def hungry(self, shard: int, hungry: bool) -> None:
        if hungry:
            self._hungry.setdefault(shard)
        else:
            self._hungry.pop(shard, None)

    def delivered(self, shard: int) -> None:
        """It had its turn; if there is more, it says so again."""
        self._hungry.pop(shard, None)

    def resumed(self) -> None:
        """The client was away: now the shards begin anew."""
        self._hungry.clear()
