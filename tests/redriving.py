"""Redriving without a dispatcher: what waits first in a shard goes to one queue."""

from __future__ import annotations

from pushlane_dispatcher.core.shard import Shard


def first_in_line(shard: Shard, count: int, to: str, now: int) -> dict[int, dict[int, str]]:
    """By lane and seq: where the first so many go. Blocked ones and the backlog count, too."""
    found: dict[int, dict[int, str]] = {}
    for lane in shard.window.order:
        start = 0
        while count and (stretch := shard.stretch(lane.number, start)) is not None:
            for seq in range(stretch.first, stretch.last + 1):
                start = seq + 1
                if count and shard.in_line(lane.number, seq, 0, now) is not None:
                    found.setdefault(lane.number, {})[seq] = to
                    count -= 1
    return found


def redrive_first(shard: Shard, count: int, to: str, now: int) -> int:
    """How many of them went."""
    wanted = first_in_line(shard, count, to, now)
    return sum(shard.redrive(lane, targets, now) for lane, targets in wanted.items())
