"""Redrive: dead letters go back to where they came from, or to another queue.

One call goes through a part of the queue and says where to go on, so that no request lasts long
and nothing is kept between two. A call that is repeated does no harm: what left is not in line any
more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import msgspec
import trio

from pushlane.wire.errors import Forbidden, Throttled
from pushlane_dispatcher.browsing.backlog import Cursor, Span, Waiting, begin, look
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_storage.interface import Store
from pushlane_storage.message import Message

CHUNKS = 10
"""With a rate, messages are sent in so many chunks a second."""
LOOK_MS = 50
"""How often it looks whether more may leave."""


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


Leaving = tuple[Waiting, str]
"""A message, and where it goes."""


class _Call:
    def __init__(self, store: Store, queue: OpenQueue, wanted: Redrive, cursor: Cursor) -> None:
        self._store = store
        self._queue = queue
        self._wanted = wanted
        self._cursor = cursor
        self._begun = trio.current_time()
        self._count = 0
        self._barred = False
        """It came to one that may not go."""

    @property
    def _over(self) -> bool:
        late = trio.current_time() >= self._begun + self._wanted.budget_ms / 1000
        return late or self._barred or self._count >= self._wanted.max

    async def run(self) -> Redriven:
        spans = self._cursor.spans
        while spans and not self._over:
            span = spans[0]
            found = await look(self._store, self._queue, span)
            span.start = await self._take(span, found)
            if span.start >= span.end:
                spans.pop(0)
        return Redriven(self._count, self._cursor.text())

    async def _take(self, span: Span, found: Sequence[Waiting]) -> int:
        """Send what is wanted of one read; from which seq on to look next."""
        wanted = [(one, to) for one in found if (to := self._wanted.target(one.message))]
        free = list(takewhile(lambda item: self._wanted.may_go(item[1]), wanted))
        barred = wanted[len(free) :]
        left = await self._send(span, free) or barred
        if left is barred and barred:
            self._bar(barred[0][1])
        return left[0][0].seq if left else span.start

    def _bar(self, to: str) -> None:
        """What was sent before is answered; the next call begins with this one, and fails."""
        if not self._count:
            raise Forbidden(
                f"this would send messages to {to}, and you may not publish there: choose others "
                "with `queue`, or another place with `to`"
            )
        self._barred = True

    async def _send(self, span: Span, wanted: list[Leaving]) -> list[Leaving]:
        """What is left of it when time is over."""
        while wanted and not self._over:
            count = await self._room(self._queue.runners[span.shard], len(wanted))
            part, wanted = wanted[:count], wanted[count:]
            if self._wanted.dry_run:
                self._count += len(part)
                continue
            runner = self._queue.runners[span.shard]
            self._count += runner.redrive(span.lane, {one.seq: to for one, to in part})
            await self._pace()
        return wanted

    async def _room(self, runner: ShardRunner, count: int) -> int:
        """How many may go at once; none when time is over before one may."""
        count = min(count, self._wanted.max - self._count)
        if self._wanted.dry_run:
            return count
        if self._wanted.rate is not None:
            count = min(count, max(1, self._wanted.rate // CHUNKS))
        while runner.may_leave <= 0 and not self._over:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(LOOK_MS / 1000)
        if runner.may_leave <= 0 and not self._count:
            raise Throttled(
                "too many messages are on their way out already: does their queue take them?",
                retry_ms=1_000,
                limit="leaving",
            )
        return max(0, min(count, runner.may_leave))

    async def _pace(self) -> None:
        if self._wanted.rate is not None:
            await trio.sleep_until(self._begun + self._count / self._wanted.rate)
        else:
            await trio.lowlevel.checkpoint()


async def redrive(store: Store, queue: OpenQueue, wanted: Redrive, after: str = "") -> Redriven:
    """One call, from `after` on. Those that come in after the first call stay."""
    return await _Call(store, queue, wanted, begin(queue, after)).run()
