"""A view: what is stored of a shard, looked at without owning it.

Reading takes nothing from whoever serves the queue, here or on another server. What only its owner
knows is missing: who consumes, what is leased to whom, what waits for its flush. What an owner
writes meanwhile may be seen in part; the next look sees more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec
import trio

from pushlane_dispatcher.browsing.answers import answer_look
from pushlane_dispatcher.browsing.question import Askable, GetStats, Look
from pushlane_dispatcher.browsing.reading import oldest_at
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo, Located, Stretch
from pushlane_dispatcher.core.opening import look_at_shard
from pushlane_dispatcher.core.shard import Setup, Shard
from pushlane_dispatcher.queues.queues import store_answers
from pushlane_dispatcher.shard.opening import carry_out, reading
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.settlement import Void

A = TypeVar("A")

DELAYED = 10_000
"""Entries of the schedule index that are looked at to tell what is delayed from what is ready."""
EVER = 1 << 62
UNSEEN = "no consumer on this server"


class ShardView:
    def __init__(self, store: Store, shard: Shard, now: int, delayed: int) -> None:
        self._store = store
        self._shard = shard
        self._now = now
        self._wall = now + shard.offset
        self._delayed = delayed

    @property
    def key(self) -> ShardKey:
        return self._shard.key

    @property
    def name(self) -> str:
        return self._shard.name

    @property
    def config(self) -> QueueConfig:
        return self._shard.config

    async def ask(self, question: Look[A]) -> A:
        found: Any = await answer_look(self._store, self, question)
        if isinstance(question, GetStats):
            found = msgspec.structs.replace(found, oldest_at=await oldest_at(self._store, self))
        answer: A = found
        return answer

    @property
    def lanes(self) -> list[tuple[int, int]]:
        return [(lane.number, lane.stored) for lane in self._shard.window.order]

    def stretch(self, lane: int, start: int) -> Stretch | None:
        return self._shard.stretch(lane, start)

    def in_line(self, lane: int, seq: int, not_before: int) -> int | None:
        return self._shard.in_line(lane, seq, not_before, self._now)

    def locate(self, lane: int, seq: int) -> Located | None:
        return self._shard.locate(lane, seq)

    def explain(self, lane: int, seq: int, message: Message | None = None) -> Explanation:
        found = self._shard.explain(lane, seq, self._now, message)
        if found.state == "ready":
            return msgspec.structs.replace(found, why=UNSEEN)
        return found

    def stats(self) -> Stats:
        """What waits is not in memory: it is found among what would be ready."""
        found = self._shard.stats()
        retrying = sum(void.not_before > self._wall for void in self._voids())
        delayed = min(self._delayed, found.ready - retrying)
        return msgspec.structs.replace(
            found, ready=found.ready - retrying - delayed, retrying=retrying, delayed=delayed
        )

    def _voids(self) -> Iterator[Void]:
        for lane in self._shard.window.order:
            for bucket in lane.buckets:
                for void in bucket.state.voids.values():
                    if void.seq not in bucket.state.settled and void.seq not in lane.entries:
                        yield void

    def consumers(self) -> list[ConsumerInfo]:
        return []

    def dispose(self) -> None:
        self._shard.dispose()


async def read_view(context: Context, row: QueueRow, number: int) -> ShardView:
    """To be disposed. Errors of the store come through."""
    key = ShardKey(row.id, number)
    setup = Setup(key, row.name, row.config, None, 0, context.chance, context.bounds)
    table = reading(context.store, context.clock, key)
    shard = await carry_out(look_at_shard(setup), table, context.settings.recovery_reads)
    try:
        now = context.clock.now()
        delayed = await _delayed(context.store, shard, now + shard.offset)
        return ShardView(context.store, shard, now, delayed)
    except BaseException:
        shard.dispose()
        raise


async def _delayed(store: Store, shard: Shard, wall: int) -> int:
    """How many messages wait for their first delivery."""
    if not shard.overflow.messages:
        return 0
    entries = await store.due(shard.key, wall + 1, EVER, DELAYED)
    return sum(_is_new(shard, lane, seq) for _, lane, _, seq in entries)


def _is_new(shard: Shard, number: int, seq: int) -> bool:
    """Whether a message is there and was never delivered."""
    lane = shard.window.lanes.get(number)
    bucket = None if lane is None else lane.bucket_of(seq)
    if lane is None or bucket is None or seq in bucket.state.settled or seq in lane.entries:
        return False
    return seq > lane.purged and seq not in bucket.state.voids


class QueueView:
    """A queue to look at, whoever has it open."""

    def __init__(self, row: QueueRow, shards: list[AnyShard]) -> None:
        self.row = row
        self.shards = shards


class AnyShard:
    """A shard to look at: asked where it is open here, else what is stored of it is read."""

    def __init__(self, views: Views, row: QueueRow, number: int) -> None:
        self.key = ShardKey(row.id, number)
        self._views = views
        self._row = row

    async def ask(self, question: Look[A]) -> A:
        opened = self._views.opened(self.key)
        if opened is not None:
            return await opened.ask(question)
        try:
            return await self._views.elsewhere(self.key, question)
        except Unsent:
            return await self._views.ask(self._row, self.key.shard, question)


class Elsewhere(Protocol):
    async def __call__(self, key: ShardKey, question: Look[A], /) -> A:
        """The answer; `Unsent` when nobody has the shard open who can be asked."""
        ...


class Views:
    """Reads views, a few at a time: each may take a lot of memory while it is looked at."""

    def __init__(
        self, context: Context, opened: Callable[[ShardKey], Askable | None], elsewhere: Elsewhere
    ) -> None:
        """`opened`: a shard that is open here. `elsewhere` asks who has it open on another node."""
        self.elsewhere = elsewhere
        self._context = context
        self._places = trio.Semaphore(context.settings.views)
        self.opened = opened

    def of(self, row: QueueRow) -> QueueView:
        return QueueView(row, [AnyShard(self, row, n) for n in range(row.config.shards)])

    async def ask(self, row: QueueRow, number: int, question: Look[A]) -> A:
        """Read a shard for one question."""
        async with self._places:
            with store_answers(row.name):
                view = await read_view(self._context, row, number)
            try:
                return await view.ask(question)
            finally:
                view.dispose()
