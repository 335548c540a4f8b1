"""Owners of one shard, one after the other, and what the usage rows say in the end.

Every call of a store waits for its turn, which the test gives: in between anything may happen. The
current owner may crash at any point; where the store is shared, it may also go on as a zombie that
doesn't know it. Data changes by the current owner only: stores see to that. Only usage rows, and
marks of drained buckets, can be written by a zombie.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import trio

from pushlane_dispatcher.core.account import Account
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.marks import Marks
from pushlane_dispatcher.core.recovered import RecoveredBucket
from pushlane_dispatcher.usage.counters import ShardCounters, read_standing
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Fenced, StoreError, StoreUnknown
from pushlane_storage.memory import MemoryTables
from pushlane_storage.settlement import BucketState, Checkpoint
from pushlane_storage.tally import STORED
from pushlane_storage.usage import Usage, UsageKey, merge

SHARD = ShardKey("id", 0)
SIZE = 10
"""Bytes of a message."""
FINE, LOST, DONE = 0, 1, 2
"""What becomes of a call: it answers; or it says unknown, and did nothing, or did it."""


class World:
    def __init__(self, nursery: trio.Nursery, shared: bool) -> None:
        self.nursery = nursery
        self.shared = shared
        self.tables = MemoryTables()
        self.minute = 100
        self.epoch = 0
        self.truth: dict[str, int] = {}
        self.stored: dict[BucketKey, tuple[int, Checkpoint]] = {}
        self.marked: set[BucketKey] = set()
        self.owners: list[Owner] = []

    def claim(self) -> Owner:
        """A new owner. On a store of one process its predecessor is gone; else it may go on."""
        if self.owners and not self.shared:
            self.owners.pop().scope.cancel()
        self.epoch += 1
        owner = Owner(self, self.epoch)
        self.owners.append(owner)
        self.nursery.start_soon(owner.run)
        return owner

    def kill(self, which: int) -> None:
        if self.owners[:-1]:
            self.owners.pop(which % (len(self.owners) - 1)).scope.cancel()

    @property
    def current(self) -> Owner:
        return self.owners[-1]

    def counted(self) -> dict[str, int]:
        """What readers of usage see."""
        found: dict[str, int] = {}
        for row in self.tables.usage("t", 1, 1 << 40):
            merge(found, row.counters)
        return {name: value for name, value in found.items() if value}


class Store:
    """One owner's way to the rows, and its ownership."""

    def __init__(self, world: World, epoch: int) -> None:
        self._world = world
        self._epoch = epoch
        self.waiting: trio.Event | None = None
        self.fate = FINE

    async def turn(self) -> None:
        self.waiting = trio.Event()
        await self.waiting.wait()
        self.waiting = None

    async def put(self, rows: Sequence[Usage]) -> None:
        tables = self._world.tables
        for part in [[row] for row in rows] if self._world.shared else [rows]:
            await self.turn()
            if self.fate != LOST:
                tables.put_usage(part)
            if self.fate != FINE:
                raise StoreUnknown("planted")

    async def find(self, key: UsageKey) -> Usage | None:
        await self.turn()
        return self._world.tables.find_usage(key)

    @property
    def shared(self) -> bool:
        return self._world.shared

    async def confirm(self, shard: ShardKey) -> None:
        await self.turn()
        if self._world.epoch != self._epoch:
            raise Fenced("planted")


class Owner:
    def __init__(self, world: World, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.store: Any = Store(world, epoch)
        self.scope = trio.CancelScope()
        self.lane = Lane(4, epoch)
        self.counters: ShardCounters | None = None
        self.draining: list[BucketKey] = []
        self.wishes: list[str] = []
        self.wished = trio.Event()
        self.stopped = False

    async def run(self) -> None:
        with self.scope:
            try:
                await self._open()
                while True:
                    await self.wished.wait()
                    self.wished = trio.Event()
                    while self.wishes:
                        await self._grant(self.wishes.pop(0))
            except Fenced:
                self.stopped = True

    async def _open(self) -> None:
        world = self.world
        await self.store.turn()
        undrained = sorted(world.stored.keys() - world.marked)
        found = {key: world.stored[key] for key in undrained}
        standing = await read_standing(self.store, "t", "q", SHARD, world.minute)
        rows = [RecoveredBucket(Bucket(key, 0), BucketState()) for key in undrained]
        self.account = Account(standing.tally, rows)
        for key, (count, checkpoint) in found.items():
            bucket = LiveBucket(key, 0, 0, Marks(1))
            bucket.count, bucket.rolled, bucket.closed = count, True, True
            bucket.size = SIZE * count
            bucket.state._load(checkpoint)
            self.lane.buckets.append(bucket)
        shard: Any = SimpleNamespace(
            key=SHARD, name="q", epoch=self.epoch, account=self.account, meter=None,
            lifetime=lambda: self.account.lifetime([self.lane]),
        )  # fmt: skip
        counters = ShardCounters(self.store, self.store, "t", shard, standing)
        while True:
            try:
                await counters.begin()
            except StoreUnknown:
                continue
            break
        self.counters = counters
        for bucket in list(self.lane.buckets):
            self._close(bucket)

    async def _grant(self, wish: str) -> None:
        assert self.counters is not None
        try:
            if wish in ("flush", "rest"):
                await self.counters.flush(self.world.minute)
                if wish == "rest":
                    await self.counters.rest(self.world.minute)
            elif self.draining:
                await self.counters.cover(self.draining[0])
                await self.store.turn()
                self.world.marked.add(self.draining[0])
                self.counters.marked(self.draining.pop(0))
        except StoreError as error:
            if isinstance(error, Fenced):
                raise

    def wish(self, what: str) -> None:
        if self.counters is not None:
            self.wishes.append(what)
            self.wished.set()

    # What happens in the shard: only the current owner's doings exist

    @property
    def serving(self) -> bool:
        return self.counters is not None and self.world.current is self

    def publish(self, count: int) -> None:
        if not self.serving:
            return
        if not self.lane.buckets or self.lane.buckets[-1].rolled:
            key = BucketKey(4, self.epoch, len(self.world.stored))
            self.lane.buckets.append(LiveBucket(key, 0, 0, Marks(1)))
        bucket = self.lane.buckets[-1]
        bucket.count += count
        bucket.size += SIZE * count
        self._happened("published", count, bucket, SIZE)

    def settle(self, count: int, cause: str) -> None:
        if not self.serving:
            return
        for bucket in list(self.lane.buckets):
            low = bucket.state.settled.count
            high = min(bucket.count, low + count) - 1
            if low <= high:
                if cause == "acked":
                    bucket.state._end(bucket.state.acked, low, high)
                else:
                    bucket.state.end(cause, low, high)
                self._happened(cause.replace(":", "."), high - low + 1, bucket, -SIZE)
            self._close(bucket)

    def roll(self) -> None:
        if self.serving and self.lane.buckets:
            bucket = self.lane.buckets[-1]
            bucket.rolled = bucket.closed = True
            self._close(bucket)

    def _happened(self, name: str, count: int, bucket: LiveBucket, size: int) -> None:
        self.account.changed = True
        merge(self.world.truth, {name: count, STORED: count * size})
        self.world.stored[bucket.key] = (bucket.count, bucket.state.checkpoint())

    def _close(self, bucket: LiveBucket) -> None:
        if bucket.drained:
            self.lane.buckets.remove(bucket)
            self.account.drain(bucket)
            self.draining.append(bucket.key)
