"""Redrive: dead letters go back to where they came from, or to another queue.

One call goes through a part of the queue and says where to go on, so that no request lasts long
and nothing is kept between two. A call that is repeated does no harm: what left is not in line any
more. `redrive_call` goes through the shards, and each sends what is its own (`shard.redriver`).
"""

from __future__ import annotations

import msgspec

from pushlane_storage.message import Message


class Redrive(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages go where, and how fast. What is None doesn't matter."""

    max: int
    budget_ms: int
    """How long one call may take."""
    to: str | None = None
    """None: to the queue in which they died. What did not die has none, and stays."""
    cause: str | None = None
    queue: str | None = None
    """In which they died."""
    key: str | None = None
    from_at: int | None = None
    """Those that died at this time or later (wall clock) …"""
    until_at: int | None = None
    """… and before this one."""
    rate: int | None = None
    """Messages a second."""
    dry_run: bool = False
    targets: tuple[str, ...] = ("*",)
    """Where they may go: names of queues, and beginnings of names with a star."""

    def may_go(self, to: str) -> bool:
        return any(
            to.startswith(name[:-1]) if name.endswith("*") else to == name for name in self.targets
        )

    def target(self, message: Message) -> str | None:
        """Where a message goes; None: it stays."""
        dead = message.dead
        if self.key is not None and message.key != self.key:
            return None
        if self.cause is not None and (dead is None or dead.cause != self.cause):
            return None
        if self.queue is not None and (dead is None or dead.queue != self.queue):
            return None
        at = message.published_at if dead is None else dead.dead_at
        if self.from_at is not None and at < self.from_at:
            return None
        if self.until_at is not None and at >= self.until_at:
            return None
        return self.to or (None if dead is None else dead.queue)


class Redriven(msgspec.Struct, frozen=True):
    count: int
    """Messages on their way, or with a dry run those that would be."""
    next: str | None
    """Where to go on; None: it is through."""
