"""What happened on a node's links: one plain integer each, for metrics to read.

One `LinkCounters` is made by whoever opens the links of a node and handed to all of them; adding
to an attribute costs next to nothing.
"""

from __future__ import annotations

from typing import NamedTuple


class LastRefusal(NamedTuple):
    at: float
    """Trio's time."""
    text: str
    """Who was refused, as far as it said so, and why."""


class LinkCounters:
    __slots__ = (
        "accept_failures",
        "bytes_in",
        "bytes_out",
        "ends",
        "failures",
        "frames_in",
        "frames_out",
        "open",
        "opened",
        "refusals",
        "refused",
        "strangers",
        "unreached",
    )

    def __init__(self) -> None:
        self.open = 0
        """Links open now, dialled and accepted."""
        self.opened = 0
        """Links opened, ever."""
        self.frames_in = 0
        """Frames received, without beats."""
        self.frames_out = 0
        """Frames given to `Link.send` while the link was open."""
        self.bytes_in = 0
        """Bytes received, with lengths and beats."""
        self.bytes_out = 0
        """Bytes written, with lengths and beats."""
        self.ends: dict[str, int] = {}
        """Links that ended, by code: `closed`, `left`, `cut`, `silent`, `overrun`, …"""
        self.refusals: dict[str, int] = {}
        """Handshakes that others began here and that failed, by code: `wrong_key`, `busy`, …"""
        self.refused: dict[str, LastRefusal] = {}
        """The last one, by code."""
        self.unreached: dict[str, int] = {}
        """Dials of ours that failed, by code: those of refusals, and `nobody_listens`, …"""
        self.strangers = 0
        """Connections in their handshake now."""
        self.accept_failures = 0
        """Accepts that failed for want of something, most likely file descriptors."""
        self.failures = 0
        """Errors of ours that an accepted link ran into."""

    @property
    def overruns(self) -> int:
        """Links that ended because `outbox_bytes` waited for a peer that took too little."""
        return self.ends.get("overrun", 0)


def count(words: dict[str, int], word: str) -> None:
    words[word] = words.get(word, 0) + 1
