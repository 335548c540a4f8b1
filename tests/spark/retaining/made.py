"""An embedded store as two owners left it: something that has ended, and something of each trap."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import trio

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.message import Message
from pushlane_storage.outcome import append, settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_id, make_seq
from pushlane_storage.settlement import Gone, Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite.store import SqliteStore
from tests.spark.retaining.ledger import Ledger
from tests.storage.samples import START

LANE = 4
ACKED, SEALED, MARKED, DAMAGED, OPEN = (BucketKey(LANE, 1, START + n) for n in range(5))
MARKS = MarkSummary(ids=1)
DAY = 24 * 3_600_000
LATER = START + 100 * DAY


class Made(NamedTuple):
    url: str
    queue_id: str
    ledger: Ledger


def make_store(folder: Path) -> Made:
    """Buckets of four: one acked, one of which a seal leaves two, one whose marks are needed for
    a while, one that is damaged, and one that is open."""
    queue_id = trio.run(_write, folder)
    with closing(sqlite3.connect(folder / "pushlane.db")) as connection, connection:
        body = "UPDATE payload SET body = x'91' WHERE id = (SELECT payload FROM segment"
        connection.execute(f"{body} WHERE first = ?)", (make_seq(1, 10),))
    ledger = Ledger()
    for counter in (*range(6), *range(6, 18)):
        id = make_id(queue_id, 0, LANE, make_seq(1, counter))
        if counter not in (10, 11):  # nobody can tell what became of what is damaged
            ledger.bodies[id] = str(counter)
            if counter < 14:
                ledger.ended.add(id)
    return Made(f"sqlite:{folder}", queue_id, ledger)


async def _write(folder: Path) -> str:
    store = await SqliteStore.open(folder)
    config = QueueConfig(archive="parquet", dedup_window_ms=DAY, retention_ms=DAY)
    queue = await store.catalog.create("default", "orders", config)
    shard = ShardKey(queue.id, 0)
    await store.ownership.claim(slot_of(shard), "first")
    places = {ACKED: (0, 4), SEALED: (4, 2), MARKED: (6, 4), DAMAGED: (10, 4), OPEN: (14, 4)}
    for key, (first, count) in places.items():
        opens = Bucket(key, make_seq(1, first))
        if key == SEALED:  # what a fenced owner wrote: the next bucket has the same numbers
            await append(store, shard, _segment(key, first, count), opens)
            continue
        await append(store, shard, _segment(key, first, 2), opens)
        await append(store, shard, _segment(key, first + 2, count - 2), None)
    ends = [Gone("expired", make_seq(1, 0), make_seq(1, 0))]
    for n, (key, (first, count)) in enumerate(places.items()):
        if key != OPEN:
            gone = ends if key == ACKED else []
            acked = (make_seq(1, first + len(gone)), make_seq(1, first + count - 1))
            await settle(store, shard, [Settlement(key, 1, n, [key], acked=[acked], gone=gone)])
            marks = MARKS if key == MARKED else MarkSummary()
            last_at = LATER - DAY // 2 if key == MARKED else START
            row = Bucket(key, make_seq(1, first), True, True, count, 100, last_at, marks)
            await store.mark_bucket(shard, row)
    await store.close()
    return queue.id


def _segment(key: BucketKey, first: int, count: int) -> Segment:
    messages = [Message(str(first + n).encode(), START) for n in range(count)]
    return Segment(key, make_seq(1, first), messages)


def seal_off(made: Made, counters: int) -> None:
    """A second owner: of the first one's epoch only so many messages exist."""

    async def write() -> None:
        store = await SqliteStore.open(Path(made.url.partition(":")[2]))
        shard = ShardKey(made.queue_id, 0)
        owner = await store.ownership.claim(slot_of(shard), "second")
        await store.write_seal(shard, Seal(owner, [(LANE, 1, counters)], [(1, 100)]))
        await store.close()

    trio.run(write)
    for counter in range(counters, 18):
        id = make_id(made.queue_id, 0, LANE, make_seq(1, counter))
        made.ledger.bodies.pop(id, None)
        made.ledger.ended.discard(id)
