"""The wall clock."""

import time


def wall_clock() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
