"""An open queue: its row and all its shards, wherever they are open.

Get it from the dispatcher for each request (that is cheap): once a shard of it has stopped, it is
no longer `running`, and the dispatcher opens the queue anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pushlane.wire.errors import Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.browsing.all_shards import ask_each
from pushlane_dispatcher.browsing.question import Purge
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.callers.loose import settle_loose
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.queues.route import shard_of
from pushlane_dispatcher.shard.port import ShardPort
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueRow


class OpenQueue:
    def __init__(
        self, row: QueueRow, shards: Sequence[ShardPort], chance: Callable[[], float]
    ) -> None:
        self.row = row
        self.shards = shards
        self.claimed = True
        """Its shards count for somebody (see `Dispatcher.open`)."""
        self._chance = chance

    def configure(self, row: QueueRow) -> None:
        """The queue has another configuration, and its shards have been told."""
        self.row = row

    @property
    def running(self) -> bool:
        # Asked for every publish: a plain loop takes half as long as a generator.
        for shard in self.shards:  # noqa: SIM110
            if not shard.running:
                return False
        return True

    @property
    def congested(self) -> bool:
        for shard in self.shards:  # noqa: SIM110
            if shard.congested:
                return True
        return False

    async def room(self, claims: Claims = ()) -> None:
        """Wait until every shard has room. `claims` say who waits."""
        for shard in self.shards:
            await shard.room(claims)

    async def publish(
        self,
        messages: list[Message],
        lanes: Sequence[int] | None = None,
        *,
        claims: Claims = (),
    ) -> Publication:
        """Store messages, each in its shard; answers when all are decided."""
        await self.room(claims)
        waiter: Waiter[Publication] = Waiter()
        self.publish_soon(messages, waiter, lanes)
        return await waiter.wait()

    def publish_soon(
        self,
        messages: list[Message],
        answer: Callable[[Publication], None],
        lanes: Sequence[int] | None = None,
    ) -> None:
        """`publish` without waiting: for those who watch `congested` themselves.

        When all its shards have stopped, the answer comes before this returns.
        """
        assert messages, "an empty publish is a bad request"
        one = len(self.shards) == 1
        parts: Mapping[int, Sequence[int]] = (
            {0: range(len(messages))} if one else self._split(messages)
        )
        publication = Publication(len(messages), len(parts), answer)
        for number, indexes in parts.items():
            shard = self.shards[number]
            part, part_lanes = messages, lanes
            if len(parts) > 1:
                part = [messages[index] for index in indexes]
                part_lanes = None if lanes is None else [lanes[index] for index in indexes]
            try:
                shard.publish_soon(
                    part, partial(publication.answered, shard.key, indexes), part_lanes
                )
            except Unavailable as error:  # other shards may have taken theirs
                publication.refused(indexes, error)

    def _split(self, messages: list[Message]) -> dict[int, Sequence[int]]:
        """By shard: the indexes of its messages."""
        shards = len(self.shards)
        parts: dict[int, list[int]] = {}
        for index, message in enumerate(messages):
            parts.setdefault(shard_of(message, shards, self._chance), []).append(index)
        return dict(parts)

    def settle(
        self, act: Act, receipts: list[ReceiptRun], answer: Callable[[Gather], None]
    ) -> None:
        """Settle for whoever has receipts; answers when all of it is durable."""
        gather = Gather(1, answer)
        settle_loose(self.shards, act, receipts, gather)
        gather.one_less()

    async def purge(self) -> int:
        """Everything goes that is stored and not in flight; it is durable when this returns.

        How many messages that were.
        """
        return sum(await ask_each(self.shards, lambda shard: shard.ask(Purge())))
