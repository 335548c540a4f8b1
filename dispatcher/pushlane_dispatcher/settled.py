"""What receives settled that are over: a repeated ack is a duplicate, not a loss.

A subscription in the shard costs much more than this, so it ends with its last lease; only the
numbers of its settled receipts stay, for as long as a session would remember them.
"""

from __future__ import annotations

from typing import Protocol

import trio

from pushlane.wire.receipts import Span
from pushlane_dispatcher.core.runs import runs_of_numbers


class Numbers(Protocol):
    def __contains__(self, number: int, /) -> bool: ...


class Settled:
    def __init__(self, keep_ms: int, most: int) -> None:
        self._keep = keep_ms / 1000
        self._most = most
        self._kept: dict[str, tuple[float, str, Numbers]] = {}
        """By the prefix of receipts: until when, the queue's id, the numbers. The oldest first."""

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, prefix: str, queue_id: str, numbers: Numbers) -> None:
        now = trio.current_time()
        self._forget(now)
        self._kept[prefix] = now + self._keep, queue_id, numbers

    def sort(self, queue_id: str, span: Span) -> tuple[list[Span], list[Span]]:
        """Receipts that nobody holds: those that were settled, and those that are lost."""
        self._forget(trio.current_time(), spare=0)
        prefix, low, high = span
        kept = self._kept.get(prefix)
        if kept is None or kept[1] != queue_id:
            return [], [span]
        numbers = range(low, high + 1)
        duplicate = [n for n in numbers if n in kept[2]]
        lost = [n for n in numbers if n not in kept[2]]
        return runs_of_numbers(prefix, duplicate), runs_of_numbers(prefix, lost)

    def _forget(self, now: float, spare: int = 1) -> None:
        """What is too old, or too much."""
        while self._kept:
            prefix, (until, _, _) = next(iter(self._kept.items()))
            if until > now and len(self._kept) + spare <= self._most:
                break
            del self._kept[prefix]
