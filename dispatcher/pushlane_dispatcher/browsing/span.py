"""A span: what is left to look at of one lane of one shard. And what one shard has of a page."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from pushlane_storage.message import Message

ANOTHER = "`after` is of another queue, or an earlier one of this name: start without it"
"""What is wrong with spans of a shard or a lane that is not there."""


class Span(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True):
    """What is left of one lane of one shard."""

    shard: int
    lane: int
    start: int
    end: int
    """The first seq that no longer belongs to it."""

    def after(self, start: int) -> Span:
        """What is left of it from a seq on."""
        return Span(self.shard, self.lane, start, self.end)

    @property
    def over(self) -> bool:
        """Nothing is left."""
        return self.start >= self.end


class Waiting(NamedTuple):
    """A message that waits to be delivered."""

    shard: int
    lane: int
    seq: int
    attempts: int
    """How often a consumer has started it."""
    message: Message


class Part(NamedTuple):
    """What one shard has of a page."""

    messages: list[Waiting]
    spans: list[Span]
    """From where they were read, the highest lane first …"""
    rest: list[Span]
    """… and what is left behind them."""
    size: int = 0
    """Bytes that were read for it."""

    def behind(self, count: int) -> list[Span]:
        """What is left when the first so many were shown."""
        if count == len(self.messages):
            return self.rest
        return behind(self.spans, self.messages[count - 1]) if count else self.spans


def behind(spans: list[Span], last: Waiting) -> list[Span]:
    """What is left of a shard's spans when all up to one message was seen."""
    left: list[Span] = []
    for span in spans:
        if span.lane < last.lane:
            left.append(span)
        elif span.lane == last.lane and last.seq + 1 < span.end:
            left.append(span.after(last.seq + 1))
    return left
