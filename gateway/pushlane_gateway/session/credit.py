"""Credit: how one subscription's permits are shared by the shards of its queue.

A shard grants as long as its own credit allows, so the shards' credits together must never allow
more than the client's. What is held counts where it is; what is spare is dealt out evenly, again
with every delivery and settle. So a shard with a backlog gets half of a half of what the idle ones
have, and so on, until it has nearly all; and when the client holds more than it may (it lowered
its credit), no shard grants anything.

With fewer spare permits than shards some get none. Those that have something ready come first, and
somebody has to look again after a while (`scarce`): a shard without credit can't say that
something has come.
"""

from __future__ import annotations

from collections.abc import Sequence


def share(total: int, used: Sequence[int], ready: Sequence[bool], turn: int) -> list[int]:
    """The credit of each shard: `used` permits are held there, or wait for a backoff to end."""
    spare = total - sum(used)
    if spare <= 0:
        return [0] * len(used)
    each, left = divmod(spare, len(used))
    credits = [held + each for held in used]
    for index in _first(left, ready, turn):
        credits[index] += 1
    assert sum(credits) == total, (total, used, credits)
    return credits


def scarce(total: int, used: Sequence[int]) -> bool:
    """Whether there are spare permits, but not one for each shard."""
    return 0 < total - sum(used) < len(used)


def _first(count: int, ready: Sequence[bool], turn: int) -> list[int]:
    """Who gets what can't be dealt out evenly: those with something ready, then in turn."""
    ring = len(ready)
    order = [(turn + step) % ring for step in range(ring)]
    order.sort(key=lambda index: not ready[index])
    return order[:count]
