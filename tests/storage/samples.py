"""Short ways to say what tests store."""

import secrets
from collections.abc import Sequence
from typing import Any

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Backend
from pushlane_storage.message import Dead, Message
from pushlane_storage.outcome import append, settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Checkpoint, Gone, Leaving, Purge, Settlement, Void
from pushlane_storage.slot import slot_of

LANE = 4
START = 1_700_000_000_000

FULL_CONFIG = QueueConfig(
    lease_ms=1_001,
    max_attempts=2,
    max_deliveries=3,
    retention_end="dead_letter",
    reserve_ms=4,
    backoff_base_ms=5,
    backoff_max_ms=6,
    consumer_backoff_base_ms=7,
    consumer_backoff_max_ms=8,
    dedup_window_ms=9,
    max_message_bytes=10,
    max_messages=11,
    max_bytes=1 << 45,
    overflow="drop_oldest",
    auto_expand=True,
    retention_ms=13,
    archive="parquet",
    ordering="timestamp",
    reorder_window_ms=14,
    late_queue="late",
    late_to_head=True,
    dead_letter="",
    shards=15,
    encrypted=True,
    durability="all",
    paused=True,
)

FULL_MESSAGE = Message(
    body=bytes(range(256)),
    published_at=START + 1,
    is_data=True,
    key="klíč 🔑",
    headers={"trace": "a", "": "ü"},
    dedup="order-1",
    producer="producer-1",
    producer_seq=(1 << 53) - 1,
    not_before=START + 2,
    expires_at=START + 3,
    event_at=-5,
    dead=Dead("max_attempts", "orders", "id-1", 5, "no\nway \x00 ☹", START + 4),
)


def unique(prefix: str) -> str:
    """A name that no other run has used: durable back ends may keep what those stored."""
    return f"{prefix}-{secrets.token_hex(6)}"


def message(number: int = 0, **fields: Any) -> Message:
    return Message(b'{"n":%d}' % number, START + number, **fields)


def messages(count: int, **fields: Any) -> list[Message]:
    return [message(number, **fields) for number in range(count)]


class Owner:
    """The owner of one shard: knows its epoch, and writes what a test wants in few words."""

    def __init__(self, store: Backend, shard: ShardKey, epoch: int) -> None:
        self.store = store
        self.shard = shard
        self.epoch = epoch

    def bucket(self, lane: int = LANE, start: int = START) -> BucketKey:
        return BucketKey(lane, self.epoch, start)

    def seq(self, counter: int) -> int:
        return make_seq(self.epoch, counter)

    def segment(
        self, counter: int, content: list[Message], lane: int = LANE, start: int = START
    ) -> Segment:
        return Segment(self.bucket(lane, start), self.seq(counter), content)

    async def append(
        self, counter: int, content: list[Message], lane: int = LANE, start: int = START
    ) -> Segment:
        """Backend a segment. Each says that it opens its bucket with counter 0."""
        segment = self.segment(counter, content, lane, start)
        await append(self.store, self.shard, segment, Bucket(segment.bucket, self.seq(0)))
        return segment

    async def settle(self, n: int, *keys: BucketKey, **fields: Any) -> list[Settlement]:
        """Write one flush that says the same of each bucket."""
        rows = [Settlement(key, self.epoch, n, list(keys), **fields) for key in keys]
        await settle(self.store, self.shard, rows)
        return rows

    async def drain(self, key: BucketKey) -> None:
        row = Bucket(key, self.seq(0), closed=True, drained=True)
        await self.store.mark_bucket(self.shard, row)


async def claimed_all(store: Backend, *shards: ShardKey) -> list[Owner]:
    """The owners of these shards. Shards may share a slot: then they share the claim."""
    epochs = {
        slot: await store.ownership.claim(slot, "node-1") for slot in set(map(slot_of, shards))
    }
    return [Owner(store, shard, epochs[slot_of(shard)]) for shard in shards]


async def claimed(store: Backend, queue_id: str | None = None) -> Owner:
    """The owner of shard 0 of a queue, by default a fresh one.

    It may fence what a test claimed before: tests with several shards use `claimed_all`.
    """
    return (await claimed_all(store, ShardKey(queue_id or unique("queue"), 0)))[0]


def seqs_of(segments: Sequence[Segment]) -> list[int]:
    """The seqs that segments hold, in the order in which they came."""
    return [seq for segment in segments for seq in range(segment.first, segment.last + 1)]


def full_settlement(owner: Owner, n: int, key: BucketKey) -> Settlement:
    """A row that uses every field."""
    gone = [Gone("expired", 5, 6), Gone("purged", 8, 9)]
    voids = [Void(10, 1 << 60, 2, 3, START, "chyba ☹"), Void(11, 7, 0, 1)]
    leaving = [Leaving(12, "max_attempts", "orders.dead", 5, None, START)]
    return Settlement(
        key,
        owner.epoch,
        n,
        [key],
        acked=[(0, 3), (1 << 62, (1 << 62) + 1)],
        gone=gone,
        voids=voids,
        leaving=leaving,
        purges=[Purge(0, 100, [1, 2]), Purge(9, 7)],
        checkpoint=Checkpoint([(0, 1)], gone, voids, leaving),
    )
