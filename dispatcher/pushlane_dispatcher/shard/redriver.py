"""A redriver: sends what a redrive wants of one span of a shard (see `browsing.redrive`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import trio

from pushlane.wire.errors import Forbidden, Throttled
from pushlane_dispatcher.browsing.question import RedriveSpan, SpanRedriven
from pushlane_dispatcher.browsing.reading import check_spans, look
from pushlane_dispatcher.browsing.span import Waiting
from pushlane_storage.interface import Store

if TYPE_CHECKING:
    from pushlane_dispatcher.shard.runner import ShardRunner

CHUNKS = 10
"""With a rate, messages are sent in so many chunks a second."""
LOOK_MS = 50
"""How often it looks whether more may leave."""

Leaving = tuple[Waiting, str]
"""A message, and where it goes."""


class Redriver:
    def __init__(self, store: Store, runner: ShardRunner, order: RedriveSpan) -> None:
        self._store = store
        self._runner = runner
        self._wanted = order.wanted
        self._span = order.span
        self._begun = trio.current_time() - order.elapsed_ms / 1000
        self._sent = order.sent
        self._barred = False
        """It came to one that may not go."""

    @property
    def _over(self) -> bool:
        late = trio.current_time() >= self._begun + self._wanted.budget_ms / 1000
        return late or self._barred or self._sent >= self._wanted.max

    async def run(self) -> SpanRedriven:
        check_spans(self._runner, [self._span])
        span = self._span
        while not (span.over or self._over):
            found, rest = await look(self._store, self._runner, span)
            span = span.after(await self._take(found, rest.start))
        return SpanRedriven(self._sent, span.start, self._barred)

    async def _take(self, found: Sequence[Waiting], start: int) -> int:
        """Send what is wanted of one read, which ends at `start`; from where on to look next."""
        wanted = [(one, to) for one in found if (to := self._wanted.target(one.message))]
        free = list(takewhile(lambda item: self._wanted.may_go(item[1]), wanted))
        barred = wanted[len(free) :]
        left = await self._send(free) or barred
        if left is barred and barred:
            self._bar(barred[0][1])
        return left[0][0].seq if left else start

    def _bar(self, to: str) -> None:
        """What was sent before is answered; the next call begins with this one, and fails."""
        if not self._sent:
            raise Forbidden(
                f"this would send messages to {to}, and you may not publish there: choose others "
                "with `queue`, or another place with `to`"
            )
        self._barred = True

    async def _send(self, wanted: list[Leaving]) -> list[Leaving]:
        """What is left of it when time is over."""
        while wanted and not self._over:
            count = await self._room(len(wanted))
            part, wanted = wanted[:count], wanted[count:]
            if self._wanted.dry_run:
                self._sent += len(part)
                continue
            targets = {one.seq: to for one, to in part}
            self._sent += self._runner.redrive(self._span.lane, targets)
            await self._pace()
        return wanted

    async def _room(self, count: int) -> int:
        """How many may go at once; none when time is over before one may."""
        runner = self._runner
        count = min(count, self._wanted.max - self._sent)
        if self._wanted.dry_run:
            return count
        if self._wanted.rate is not None:
            count = min(count, max(1, self._wanted.rate // CHUNKS))
        while runner.may_leave <= 0 and not self._over:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(LOOK_MS / 1000)
        if runner.may_leave <= 0 and not self._sent:
            raise Throttled(
                "too many messages are on their way out already: does their queue take them?",
                retry_ms=1_000,
                limit="leaving",
            )
        return max(0, min(count, runner.may_leave))

    async def _pace(self) -> None:
        if self._wanted.rate is not None:
            await trio.sleep_until(self._begun + self._sent / self._wanted.rate)
        else:
            await trio.lowlevel.checkpoint()
