"""A view: what is stored of a queue, looked at without owning it.

Reading takes nothing from whoever serves the queue, here or on another server. What only its owner
knows is missing: who consumes, what is leased to whom, what waits for its flush. What an owner
writes meanwhile may be seen in part; the next look sees more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo, Located, Stretch
from pushlane_dispatcher.core.opening import look_at_shard
from pushlane_dispatcher.core.shard import Setup, Shard
from pushlane_dispatcher.shard.opening import carry_out, reading
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Store
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueRow
from pushlane_storage.settlement import Void

DELAYED = 10_000
"""Entries of the schedule index that are looked at to tell what is delayed from what is ready."""
EVER = 1 << 62
UNSEEN = "no consumer on this server"


class Looking(Protocol):
    """What can be asked of a shard without changing anything."""

    @property
    def key(self) -> ShardKey: ...

    @property
    def lanes(self) -> list[tuple[int, int]]: ...

    def stretch(self, lane: int, start: int) -> Stretch | None: ...

    def in_line(self, lane: int, seq: int, not_before: int) -> int | None: ...

    def locate(self, lane: int, seq: int) -> Located | None: ...

    def explain(self, lane: int, seq: int, message: Message | None = None) -> Explanation: ...

    def stats(self) -> Stats: ...

    def consumers(self) -> list[ConsumerInfo]: ...


class Lookable(Protocol):
    """A queue, open or only looked at."""

    @property
    def row(self) -> QueueRow: ...

    @property
    def runners(self) -> Sequence[Looking]: ...


class ShardView:
    def __init__(self, shard: Shard, now: int, delayed: int) -> None:
        self._shard = shard
        self._now = now
        self._wall = now + shard.offset
        self._delayed = delayed

    @property
    def key(self) -> ShardKey:
        return self._shard.key

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


class QueueView:
    def __init__(self, row: QueueRow, runners: list[ShardView]) -> None:
        self.row = row
        self.runners = runners

    def stats(self) -> Stats:
        return add_up([runner.stats() for runner in self.runners])

    def dispose(self) -> None:
        """Nobody looks any more: its messages go only when they are let go (see `Entry`)."""
        for runner in self.runners:
            runner.dispose()


def add_up(parts: list[Stats]) -> Stats:
    """All shards together."""
    found = [msgspec.structs.asdict(part) for part in parts]
    oldest = [part.pop("oldest_at") for part in found]
    sums = {name: sum(part[name] for part in found) for name in found[0]}
    return Stats(**sums, oldest_at=min((at for at in oldest if at is not None), default=None))


async def read_view(context: Context, row: QueueRow) -> QueueView:
    """To be disposed. Errors of the store come through."""
    view = QueueView(row, [])
    try:
        for number in range(row.config.shards):
            view.runners.append(await _read_shard(context, row, number))
    except BaseException:
        view.dispose()
        raise
    return view


async def _read_shard(context: Context, row: QueueRow, number: int) -> ShardView:
    key = ShardKey(row.id, number)
    setup = Setup(key, row.name, row.config, None, 0, context.chance, context.bounds)
    table = reading(context.store, context.clock, key)
    shard = await carry_out(look_at_shard(setup), table, context.settings.recovery_reads)
    try:
        now = context.clock.now()
        return ShardView(shard, now, await _delayed(context.store, shard, now + shard.offset))
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
