"""The record of a copy, which stands in its target: of what it is, and where it got to.

It is written before the first row is, and tells an unfinished copy from a store. Progress is a
place in the order of the walk (walk.py): everything up to it is stored. What comes behind may be
stored in part, and is simply copied again: writing a row twice changes nothing.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pushlane_storage.seq import COUNTER_BITS

FORMAT = 1

State = Literal["copying", "verified", "finished"]
"""Verified: all that is left is to open the target to servers."""


WHOLE = -2
"""In place of a lane: what belongs to the whole shard. Less than any lane, and than `CONTROL`'s."""


class Place(NamedTuple):
    """A unit of the walk. Places grow in its order."""

    tenant: str
    queue: str
    shard: int = -1
    """-1: the queue's row."""
    lane: int = WHOLE
    epoch: int = 0
    start: int = 0


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    queues: int = 0
    shards: int = 0
    buckets: int = 0
    segments: int = 0
    messages: int = 0
    """Stored ones: those that were acked lately are among them."""
    settlements: int = 0
    seals: int = 0
    scheduled: int = 0
    usage: int = 0
    damaged: int = 0
    """Segments, settlements and seals with a wrong checksum. They were copied as they are."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            **{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        )


class Record(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    copy: str
    """Drawn at random: one copy, however often it is run."""
    source: str
    """For people: its URL, without the password."""
    fingerprint: str
    """Of the source: another one says that it is another store, or has changed."""
    begun_at: int
    state: State = "copying"
    place: Place | None = None
    copied: Counts = Counts()
    """Up to the place."""
    epoch: int = 0
    """Once verified: every slot of the target has had it; the next owner has a greater one."""
    checksum: str = ""
    """Once verified: over all of both sides."""
    finished_at: int = 0


def encode(record: Record) -> str:
    return msgspec.json.encode(record).decode()


def decode(text: str) -> Record:
    """`ValueError` when it is not one, or one of another version."""
    record = msgspec.json.decode(text, type=Record)
    if record.format != FORMAT:
        raise ValueError(f"format {record.format}, this version knows {FORMAT}")
    return record


BURST = 1_000
"""Epochs between the source's last and the target's first. Ids and fences are made of epochs: a
source that is served once more by mistake gives out none that the target gives out, too."""
SPARE = 1 << 16
LAST_EPOCH = (1 << (63 - COUNTER_BITS)) - 1 - SPARE
