"""How long publishes were not accepted: the longest silence between two confirmations.

Looked at for each producer and queue on its own, so that one that goes on hides nobody else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

import msgspec

from pushlane_history import event as history

FOREVER = 1 << 62


class Window(msgspec.Struct):
    """The time of one fault, until clients were at work again; as events have it."""

    kind: str
    bar_ms: int
    began: int
    ended: int = 0
    next: int = FOREVER
    """When the next fault began: from then on it is another one's."""
    load: float = 0.0
    """Of the machine, at its end."""
    note: str = ""
    outages: dict[str, int] = {}
    """By producer and queue, in milliseconds."""

    @property
    def outage_ms(self) -> int:
        return max(self.outages.values(), default=0)


class Confirmations:
    """When each producer had an answer: its first entry is when it first asked."""

    def __init__(self, events: Iterable[history.AnyEvent]) -> None:
        self._times: dict[tuple[str, str], list[int]] = {}
        asked: dict[int, tuple[str, str]] = {}
        for event in events:
            if isinstance(event, history.Publish):
                asked[event.op] = who = event.producer or "", event.queue
                self._times.setdefault(who, [event.at])
            elif isinstance(event, history.Published | history.PublishFailed):
                who = asked.pop(event.op)
                if isinstance(event, history.Published):
                    self._times[who].append(event.at)

    def measure(self, window: Window, counts: Callable[[str], bool]) -> None:
        """`counts`: whether a producer of this name does."""
        for (producer, queue), times in self._times.items():
            if counts(producer):
                gap = longest(times, window)
                window.outages[f"{producer} {queue}"] = gap


def longest(times: list[int], window: Window) -> int:
    """The longest gap between confirmations that lies in a window, or reaches into it."""
    first = max(bisect_right(times, window.began) - 1, 0)
    found = 0
    for before, after in zip(times[first:], [*times[first + 1 :], window.ended], strict=True):
        if before >= window.ended:
            break
        found = max(found, min(after, window.next) - max(before, window.began))
    return found
