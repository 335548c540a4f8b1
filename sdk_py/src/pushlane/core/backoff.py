"""Exponential backoff with full jitter: clients that were cut off together come back apart."""

from __future__ import annotations

_MOST_DOUBLINGS = 52


def backoff_ms(base_ms: int, max_ms: int, attempt: int, draw: float) -> float:
    """How long to wait before attempt n (from 0); `draw` is a random number in [0, 1)."""
    assert attempt >= 0, attempt
    assert 0 <= draw < 1, draw
    most: float = min(max_ms, base_ms * 2 ** min(attempt, _MOST_DOUBLINGS))
    return draw * most
