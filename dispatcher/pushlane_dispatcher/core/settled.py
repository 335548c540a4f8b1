"""What requests settled that are over: a repeated ack is a duplicate, not a loss.

A subscription costs much more than this, so that of a request ends with its last lease. Only the
numbers of its settled receipts stay, for as long as a session would remember them.
"""

from __future__ import annotations

from typing import Protocol


class Numbers(Protocol):
    def __contains__(self, number: int, /) -> bool: ...


NONE: Numbers = frozenset()


class Settled:
    """Shards may share one, each under its own name."""

    __slots__ = ("_kept", "keep_ms", "most")

    def __init__(self, keep_ms: int = 30_000, most: int = 100_000) -> None:
        self.keep_ms = keep_ms
        self.most = most
        self._kept: dict[tuple[object, str], tuple[int, Numbers]] = {}
        """By shard and prefix: until when, and the numbers. The oldest first."""

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, shard: object, prefix: str, numbers: Numbers, now: int) -> None:
        self._kept.pop((shard, prefix), None)
        self._kept[shard, prefix] = now + self.keep_ms, numbers
        self._forget(now)

    def of(self, shard: object, prefix: str, now: int) -> Numbers:
        self._forget(now)
        found = self._kept.get((shard, prefix))
        return NONE if found is None else found[1]

    def _forget(self, now: int) -> None:
        """What is too old, or too much."""
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest][0] > now and len(self._kept) <= self.most:
                break
            del self._kept[oldest]
