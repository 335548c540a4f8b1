"""Listing queues: those on which the caller has a right, in order of name, a page at a time.

Only the stretches of names that the caller's patterns stand for are read. So a page is full as long
as there are more, it costs as much as it shows, and `next` is never the name of a queue that the
caller may not see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from pushlane_dispatcher.port import QueueRow

List = Callable[[str, int], Awaitable[list[QueueRow]]]
"""Rows after a name, at most so many, in order."""

_LAST = "\x7f"
"""Comes after every character of a name."""


class Stretch(NamedTuple):
    """One name, or with `open` all that begin with it."""

    name: str
    open: bool

    def holds(self, name: str) -> bool:
        return name.startswith(self.name) if self.open else name == self.name

    def is_before(self, name: str) -> bool:
        """Whether everything in it comes before a name, or is it."""
        return self.name <= name and not (self.open and name.startswith(self.name))

    @property
    def before(self) -> str:
        """What comes right before its first name: no name lies between."""
        if not self.name:
            return ""
        return self.name[:-1] + chr(ord(self.name[-1]) - 1) + _LAST


def stretches(patterns: Iterable[str]) -> list[Stretch]:
    """What patterns stand for: in order, and none within another."""
    found: list[Stretch] = []
    wanted = (Stretch(text.removesuffix("*"), text.endswith("*")) for text in patterns)
    for one in sorted(wanted, key=lambda one: (one.name, not one.open)):
        if not (found and found[-1].holds(one.name)):
            found.append(one)
    return found


async def list_visible(
    rows_after: List, patterns: Iterable[str], after: str, limit: int
) -> tuple[list[QueueRow], str | None]:
    """A page, and what the next one comes after; None: it was the last."""
    seen: list[QueueRow] = []
    for one in stretches(patterns):
        if after and one.is_before(after):
            continue
        at, more = max(after, one.before), True
        while more and len(seen) < limit:
            asked = limit - len(seen) if one.open else 1
            rows = [row for row in await rows_after(at, asked) if one.holds(row.name)]
            seen += rows
            more = one.open and len(rows) == asked
            at = seen[-1].name if seen else at
    return seen, seen[-1].name if len(seen) == limit else None
