"""Receiving without a session: polls, and settles by receipts alone.

A request has no session. What a receive handed out is found by the receipts' prefixes, and may be
settled by whoever may consume the queue. Receipts of sessions belong to their sessions and are
`lease_lost` here, unless the session was cut off by a crash.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING

from pushlane.wire.receipts import Span
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.door import Caller
from pushlane_dispatcher.gather import Gather
from pushlane_dispatcher.grant import Grant, find_grant
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_dispatcher.poll import Poll, PollOptions
from pushlane_dispatcher.settled import Settled
from pushlane_dispatcher.waiter import Waiter

if TYPE_CHECKING:
    from pushlane_dispatcher.dispatcher import Dispatcher


class Receiving:
    def __init__(self, dispatcher: Dispatcher, keep_ms: int, remembered: int) -> None:
        """What was settled is remembered for `keep_ms`, of at most `remembered` receives."""
        self._dispatcher = dispatcher
        self._turns = count()
        """Numbers the polls: each begins with another shard."""
        self.settled = Settled(keep_ms, remembered)

    async def poll(self, caller: Caller, name: str, options: PollOptions) -> Poll:
        """A poll of a queue, which begins with its `run`."""
        queue = await self._dispatcher.open_for(caller, name)
        return Poll(queue, options, self.settled, next(self._turns))

    async def settle(self, caller: Caller, name: str, act: Act, spans: list[Span]) -> Gather:
        """What became of it, once all of it is durable."""
        queue = await self._dispatcher.open_for(caller, name)
        by_grant, duplicate, lost = self._sort(queue, spans)
        waiter: Waiter[Gather] = Waiter()
        gather = Gather(len(by_grant) + 1, waiter)
        gather.duplicate += duplicate
        gather.lost += lost
        with ExitStack() as settling:
            for grant, own in by_grant.items():
                settling.enter_context(grant.settling())
                found = grant.subscription
                grant.runner.settle(found, found.generation, act, own, gather)
            gather.one_less()
            return await waiter.wait()

    def _sort(
        self, queue: OpenQueue, spans: list[Span]
    ) -> tuple[dict[Grant, list[Span]], list[Span], list[Span]]:
        """Receipts by whose they are; of nobody's, what was settled and what is lost."""
        grants: dict[str, Grant | None] = {}
        by_grant: dict[Grant, list[Span]] = {}
        duplicate: list[Span] = []
        lost: list[Span] = []
        for span in spans:
            prefix = span[0]
            if prefix not in grants:
                grants[prefix] = self._find(queue, prefix)
            grant = grants[prefix]
            if grant is not None:
                by_grant.setdefault(grant, []).append(span)
            else:
                known, unknown = self.settled.sort(queue.row.id, span)
                duplicate += known
                lost += unknown
        return by_grant, duplicate, lost

    def _find(self, queue: OpenQueue, prefix: str) -> Grant | None:
        found = queue.find(prefix)
        if found is None:
            return None
        grant = find_grant(*found, self.settled)
        if grant is not None:
            grant.begin()  # who has a receipt has the answer
        return grant
