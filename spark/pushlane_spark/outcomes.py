"""What became of each message of a segment, from the part of its bucket's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

DEAD = "dead:"
"""How causes begin of what went to the dead letters, or would have."""


class Outcome(NamedTuple):
    state: str = "open"
    """`open`, `leaving`, or how it ended: `acked`, `dead`, `expired`, `dropped`, `purged`, …"""
    cause: str | None = None
    attempts: int = 0
    deliveries: int = 0
    not_before: int = 0
    error: str | None = None


OPEN = Outcome()
ACKED = Outcome("acked")


def outcomes(state: Mapping[str, Any], first: int, count: int) -> list[Outcome]:
    """Of the messages from seq `first` on; `state` has the ranges of `STATES`."""
    found = [OPEN] * count
    for void in state["voids"]:
        numbers = void["attempts"], void["deliveries"], void["not_before"]
        _set(found, first, void["seq"], void["seq"], Outcome("open", None, *numbers, void["error"]))
    for row in state["leaving"]:
        outcome = Outcome("leaving", row["cause"], row["attempts"], error=row["error"])
        _set(found, first, row["seq"], row["seq"], outcome)
    for span in state["acked"]:
        _set(found, first, span["low"], span["high"], ACKED)
    for gone in state["gone"]:
        _set(found, first, gone["low"], gone["high"], _gone(gone["cause"]))
    return found


def _gone(cause: str) -> Outcome:
    if cause.startswith(DEAD):
        return Outcome("dead", cause.removeprefix(DEAD))
    return Outcome(cause)


def _set(found: list[Outcome], first: int, low: int, high: int, outcome: Outcome) -> None:
    start, end = max(low - first, 0), min(high - first + 1, len(found))
    if start < end:
        found[start:end] = [outcome] * (end - start)
