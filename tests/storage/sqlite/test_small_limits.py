"""The store with bounds so small that everything bounded is full all the time."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

import trio
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend
from pushlane_storage.message import Message
from pushlane_storage.outcome import append
from pushlane_storage.segment import Segment
from pushlane_storage.sqlite.limits import KIB, Limits
from pushlane_storage.sqlite.store import SqliteStore
from tests.held import let_go
from tests.storage.backends import Place, fast_folder
from tests.storage.samples import LANE, Owner, claimed_all, unique
from tests.storage.sqlite.tools import BODY, Opened
from tests.storage.test_machine import StoreMachine

SMALL = Limits(
    group_calls=3,
    group_bytes=1,
    places=1,
    checkpoint_bytes=20 * KIB,
    finish_bytes=4 * KIB,
    idle_ms=0,
    tidy_ms=1,
    sweep_bytes=1,
    sweep_share_bytes=1,
    sweep_rows=1,
    vacuum_bytes=4 * KIB,
    spare_bytes=0,
)


@asynccontextmanager
async def small() -> AsyncIterator[Place]:
    with TemporaryDirectory(dir=fast_folder()) as folder:

        async def again() -> Backend:
            return await SqliteStore.open(folder, SMALL)

        backend = Place(await again(), again)
        yield backend
        await let_go(backend.store)


def test_it_does_what_its_model_does() -> None:
    class Machine(StoreMachine):
        def __init__(self) -> None:
            super().__init__(small)

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=25, stateful_step_count=40, deadline=None)
    )


class Queue:
    """A queue that is written, read and drained by one task, and knows what must be there."""

    def __init__(self, owner: Owner, seed: int) -> None:
        self.owner = owner
        self.random = random.Random(seed)
        self.counter = 0
        self.flushes = 0
        self.kept: dict[BucketKey, list[Segment]] = {}

    async def work(self, until: float) -> None:
        while trio.current_time() < until:
            await self.random.choice([self.write, self.write, self.write, self.read, self.drop])()

    async def write(self) -> None:
        owner, store = self.owner, self.owner.store
        if self.kept and self.random.random() < 0.9:
            key = list(self.kept)[-1]
            opens = None
        else:
            key = BucketKey(LANE, owner.epoch, self.counter)
            opens = Bucket(key, owner.seq(self.counter))
        content = [Message(BODY, 1)] * self.random.randrange(1, 60)
        segment = Segment(key, owner.seq(self.counter), content)
        self.counter += len(content)
        await append(store, owner.shard, segment, opens)
        self.kept.setdefault(key, []).append(segment)
        await owner.settle(self.flushes, key, acked=[(segment.first, segment.last)])
        self.flushes += 1

    async def read(self) -> None:
        for key, segments in self.kept.items():
            found = await self.owner.store.segments(self.owner.shard, key, 0, 1_000_000)
            assert found == segments

    async def drop(self) -> None:
        if len(self.kept) > 2:
            key = next(iter(self.kept))
            owner = self.owner
            row = Bucket(key, self.kept[key][0].first, closed=True, drained=True)
            await owner.store.mark_bucket(owner.shard, row)
            await owner.store.drop(owner.shard, key)
            del self.kept[key]


async def test_many_at_once_for_a_while(opened: Opened) -> None:
    """Writes, reads, drops, sweeps, vacuums and checkpoints all overlap."""
    limits = Limits(
        checkpoint_bytes=200 * KIB,
        finish_bytes=20 * KIB,
        places=3,
        tidy_ms=5,
        vacuum_bytes=64 * KIB,
        spare_bytes=64 * KIB,
    )
    store = await opened(limits)
    name = unique("queue")
    owners = await claimed_all(store, *[ShardKey(name, number) for number in range(12)])
    queues = [Queue(owner, number) for number, owner in enumerate(owners)]
    async with trio.open_nursery() as nursery:
        for queue in queues:
            nursery.start_soon(queue.work, trio.current_time() + 2)
    stats = store.stats()
    assert stats.checkpoints > 2
    assert stats.sweeps + stats.vacuums > 0
    store = await opened.again(store)
    for queue in queues:
        queue.owner.store = store
        await queue.read()
        assert len((await store.outline(queue.owner.shard)).buckets) == len(queue.kept)
    assert opened.sql("PRAGMA integrity_check") == [("ok",)]
