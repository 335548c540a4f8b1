"""Backoff: how long the n-th failure waits, with full jitter."""


def ceiling(failures: int, base_ms: int, max_ms: int) -> int:
    """min(max, base · 2^(failures-1)), without making huge numbers on the way."""
    if failures < 1:
        return 0
    return min(max_ms, base_ms << min(failures - 1, 40))


def full_jitter(failures: int, base_ms: int, max_ms: int, chance: float) -> int:
    """A wait between 0 and the ceiling; `chance` is a random number in [0, 1)."""
    return int(ceiling(failures, base_ms, max_ms) * chance)
