"""A poll: one receive that waits, on all shards of its queue.

Where something is ready already, one shard is asked, another one each time: messages that are
reserved only to be given back cost a write each. Where nothing is, all shards are asked, and the
first that has something answers.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.grant import Grant, Granted
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_dispatcher.settled import Settled
from pushlane_dispatcher.shard_runner import ShardRunner
from pushlane_storage.message import Message


class PollOptions(msgspec.Struct, frozen=True):
    who: str
    most: int
    """Messages of the answer."""
    lease_ms: int | None
    wait_ms: int
    grace_ms: int
    answer_bytes: int
    size_of: Callable[[Message], int]
    """The bytes that a message takes in an answer."""
    claims: Claims = ()


class Poll:
    def __init__(
        self, queue: OpenQueue, options: PollOptions, settled: Settled, turn: int = 0
    ) -> None:
        self._queue = queue
        self._options = options
        self._settled = settled
        self._turn = turn
        self._news = trio.Event()
        self._grants: list[Grant] = []
        self.error: PushlaneError | None = None

    async def run(self) -> None:
        """Until something has come or the time is over. Raises nothing: see `error`."""
        try:
            await self._run()
        except PushlaneError as error:
            self.error = error
        if not self.came:
            faults = (grant.error for grant in self._grants)
            self.error = self.error or next(filter(None, faults), None)

    async def _run(self) -> None:
        options, runners = self._options, self._queue.runners
        ready = [runner for runner in runners if runner.ready]
        if ready and len(runners) > 1:
            self._attach(ready[self._turn % len(ready)], options.most)
            await self._settle_in()
        if not self._coming:
            self._ask_all()
        wait_ms = options.wait_ms
        if wait_ms < options.grace_ms:
            await self._settle_in()
            if self._coming or self._queue.stats().ready:
                wait_ms = options.grace_ms
        with trio.move_on_after(wait_ms / 1000):
            await self._news.wait()

    def _ask_all(self) -> None:
        asked = {grant.runner for grant in self._grants}
        runners = self._queue.runners
        credit = -(-self._options.most // len(runners))
        for runner in runners:
            if runner not in asked:
                self._attach(runner, credit)

    def _attach(self, runner: ShardRunner, credit: int) -> None:
        options = self._options
        grant = Grant.attach(
            runner, self._settled, options.who, credit, options.lease_ms, self._news.set,
            options.claims,
        )  # fmt: skip
        self._grants.append(grant)

    @property
    def _coming(self) -> bool:
        return any(grant.came or grant.coming for grant in self._grants)

    @property
    def came(self) -> bool:
        return any(grant.came for grant in self._grants)

    @staticmethod
    async def _settle_in() -> None:
        """Let the shards grant what they can at once."""
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()

    # The answer

    def take(self) -> list[Granted]:
        """What has come, as far as it goes into the answer."""
        count, size = self._options.most, self._options.answer_bytes
        found: list[Granted] = []
        for grant in self._grants:
            if count and (size > 0 or not found):
                messages, total = grant.take(count, size, self._options.size_of)
                found += messages
                count -= len(messages)
                size -= total
            grant.stop()
        return found

    def begin(self) -> None:
        for grant in self._grants:
            grant.begin()

    def give_back(self) -> None:
        for grant in self._grants:
            grant.give_back()
