"""Stores to measure with, written as an owner would write them, but without a dispatcher.

Queues of several tenants, a week of buckets, thousands of keys of which some are hot. Nearly all
buckets are closed and drained; the newest of each shard are open, half acked. Usage is there for
every minute of that week and of those before it, which metrics compare it with.
"""

from __future__ import annotations

from functools import partial
from random import Random

import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend
from pushlane_storage.message import Message, size_of
from pushlane_storage.outcome import append, settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Gone, Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.tally import node_of
from pushlane_storage.url import open_store
from pushlane_storage.usage import Usage, UsageKey
from pushlane_storage.wall import wall_clock

QUEUES = (("acme", "orders"), ("acme", "mail"), ("globex", "orders"), ("initech", "jobs"))
CONFIG = QueueConfig(archive="parquet", max_messages=100_000_000)
KEYS = 5_000
SEGMENT = 250
"""Messages of a flush: what a busy server stores together."""
BUCKET = 20_000
OPEN = 2
"""Buckets of each queue that are not closed."""
LANE = 4
LATENCIES = ("publish_ms", "delivery_ms", "ack_ms")
WEEK_MS = 7 * 24 * 3_600_000
BODY_BYTES = 200
WEEKS = 5
USAGE_ROWS = 1_000
"""That are written together."""


async def fill(url: str, messages: int) -> int:
    """How many there are in the end: whole buckets."""
    async with open_store(url) as store:
        each = max(OPEN + 1, messages // BUCKET // len(QUEUES))
        async with trio.open_nursery() as nursery:
            for number, (tenant, name) in enumerate(QUEUES):
                row = await store.catalog.create(tenant, name, CONFIG)
                shard = ShardKey(row.id, 0)
                nursery.start_soon(_Shard(store, shard, Random(number)).fill, each)
                nursery.start_soon(_count, store, tenant, name, shard, each * BUCKET)
        return each * BUCKET * len(QUEUES)


class _Shard:
    def __init__(self, store: Backend, shard: ShardKey, random: Random) -> None:
        self._store = store
        self._shard = shard
        self._random = random
        self._epoch = self._flushes = 0

    async def fill(self, buckets: int) -> None:
        self._epoch = await self._store.ownership.claim(slot_of(self._shard), "bench")
        end = wall_clock() - 3_600_000
        for number in range(buckets):
            start = end - WEEK_MS + number * WEEK_MS // buckets
            await self._bucket(number, start, WEEK_MS // buckets, number < buckets - OPEN)

    async def _bucket(self, number: int, start: int, length: int, is_closed: bool) -> None:
        key = BucketKey(LANE, self._epoch, start)
        first = make_seq(self._epoch, number * BUCKET)
        opens: Bucket | None = Bucket(key, first)
        size = 0
        for offset in range(0, BUCKET, SEGMENT):
            found = self._messages(start, offset, length)
            size += sum(map(size_of, found))
            await append(self._store, self._shard, Segment(key, first + offset, found), opens)
            opens = None
        await self._settle(key, first, BUCKET if is_closed else BUCKET // 2)
        if is_closed:
            closed = Bucket(key, first, True, True, BUCKET, size, start + length - 1)
            await self._store.mark_bucket(self._shard, closed)

    def _messages(self, start: int, offset: int, length: int) -> list[Message]:
        return [
            self._message(start + n * length // BUCKET) for n in range(offset, offset + SEGMENT)
        ]

    def _message(self, at: int) -> Message:
        # Squared: some keys are much busier than others.
        number = int(KEYS * self._random.random() ** 2)
        body = b'{"number":%d,"text":"' % number
        return Message(body.ljust(BODY_BYTES - 2, b"x") + b'"}', at, key=f"key-{number}")

    async def _settle(self, key: BucketKey, first: int, count: int) -> None:
        """All acked, but for one in a thousand that is dead."""
        dead = range(first, first + count, 1_000)
        acked = [(seq + 1, min(seq + 999, first + count - 1)) for seq in dead]
        gone = [Gone("dead:max_attempts", seq, seq) for seq in dead]
        row = Settlement(key, self._epoch, self._flushes, [key], acked=acked, gone=gone)
        await settle(self._store, self._shard, [row])
        self._flushes += 1


async def _count(store: Backend, tenant: str, queue: str, shard: ShardKey, messages: int) -> None:
    """Usage by the minute, as if so many messages passed in each week."""
    end = wall_clock() // 60_000
    minutes = WEEK_MS // 60_000
    published = max(1, messages // minutes)
    exact = {"published": published, "acked": published, "stored_bytes": 0}
    bins = {f"{name}.{bin}": 1 for name in LATENCIES for bin in range(4, 24)}
    counted = dict.fromkeys(("delivered", "started"), published)
    counted |= {"bytes_in": published * BODY_BYTES, "max.backlog": 9, **bins}
    rows = [
        Usage(UsageKey(tenant, queue, minute, node), counters, 1)
        for minute in range(end - WEEKS * minutes, end)
        for node, counters in ((node_of(shard), exact), ("bench.1", counted))
    ]
    for start in range(0, len(rows), USAGE_ROWS):
        await store.usage.put(rows[start : start + USAGE_ROWS])


def fill_now(url: str, messages: int) -> int:
    return trio.run(partial(fill, url, messages))
