"""What clients saw, as a history: every process writes its own, and they are merged by time.

Processes of one machine share a monotonic clock. A request is noted before it leaves and an answer
after it has come, so whatever had to happen before something else stands before it in the merged
history, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import count
from pathlib import Path

import msgspec

from pushlane_history import event as history

NS_PER_MS = 1_000_000
OPS = 1_000_000_000
"""More than one process asks for."""


class Entry(msgspec.Struct, array_like=True, gc=False):
    ns: int
    event: history.AnyEvent


_Identity = tuple[str, str | None, str]
"""Queue, key and dedup id."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


class Recorder:
    """One process's part of the history. `number` tells its requests from those of others."""

    def __init__(self, number: int) -> None:
        self._ops = count(number * OPS + 1)
        self._entries: list[Entry] = []
        self._asked: dict[int, int] = {}
        """Publishes that are not answered yet, by op: where they stand."""

    def op(self) -> int:
        return next(self._ops)

    @property
    def at(self) -> int:
        """Now, as events have it."""
        return time.monotonic_ns() // NS_PER_MS

    def add(self, event: history.AnyEvent) -> None:
        if isinstance(event, history.Publish):
            self._asked[event.op] = len(self._entries)
        elif isinstance(event, history.Published | history.PublishFailed):
            del self._asked[event.op]
        self._entries.append(Entry(time.monotonic_ns(), event))

    def disclaim_order(self, producer: str) -> None:
        """A server refused a frame of this producer for now: what is under way may overtake it."""
        for place in self._asked.values():
            entry = self._entries[place]
            publish = entry.event
            assert isinstance(publish, history.Publish)
            if publish.producer == producer:
                entry.event = msgspec.structs.replace(publish, order=0)

    def write(self, path: Path) -> None:
        path.write_bytes(_encoder.encode_lines(self._entries))


def read(path: Path) -> Iterator[Entry]:
    with path.open("rb") as file:
        for line in file:
            yield _decoder.decode(line)


def merged(paths: Iterable[Path]) -> Iterator[history.AnyEvent]:
    """One history of all parts, as the clients' side."""
    yield history.Begin(0, "client")
    entries = merge(*map(read, paths), key=lambda entry: entry.ns)
    yield from repeats_told(entry.event for entry in entries)


def repeats_told(events: Iterable[history.AnyEvent]) -> Iterator[history.AnyEvent]:
    """Mark answers that name a message which an equal publish got before as duplicates.

    An SDK that had to send something twice can't tell a duplicate from its own repeat, and says
    that it is new. The id tells.
    """
    asked: dict[int, _Identity] = {}
    answered: set[tuple[_Identity, str]] = set()
    for event in events:
        if isinstance(event, history.Publish) and event.dedup is not None:
            asked[event.op] = event.queue, event.key, event.dedup
        elif isinstance(event, history.Published) and event.op in asked:
            told = asked.pop(event.op), event.id
            if told in answered:
                event = msgspec.structs.replace(event, duplicate=True)
            answered.add(told)
        yield event
