"""An embedded store that looks as if tenants had worked with it for weeks: for pictures and tests.

Everything is drawn from a seed, and its times are given: the same arguments make the same rows.
"""

from __future__ import annotations

import math
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.message import Message, size_of
from pushlane_storage.outcome import append, settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Gone, Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.usage import bin_of

DAY = 24 * 60
WEEKS = 4
"""Before the period, of which the same days have usage too."""
STEP = 15
"""Minutes between two rows of usage in the period, and four times as many before."""
SEGMENT, BUCKET_SEGMENTS = 200, 20
"""Messages of a segment, and segments of a bucket."""
LANE = 4


class Kind(NamedTuple):
    """How a queue behaves."""

    tenant: str
    queue: str
    rate: float
    """Messages a minute at noon."""
    shards: int
    delivery_ms: float
    failing: float
    """The share of deliveries that are tried again."""


KINDS = (
    Kind("acme", "orders", 900, 4, 9, 0.010),
    Kind("acme", "emails", 320, 1, 60, 0.035),
    Kind("acme", "invoices", 45, 1, 18, 0.004),
    Kind("globex", "telemetry", 2_400, 8, 14, 0.002),
    Kind("globex", "alerts", 12, 1, 6, 0.001),
)


class Trouble(NamedTuple):
    """What the last day had: consumers of emails were down, telemetry fell silent."""

    emails: range
    telemetry: range


def write_usage(folder: Path, first: int, end: int, seed: int = 8) -> None:
    """Rows of a period, and of the same days in weeks before it."""
    rows = list(_usage(first, end, random.Random(seed)))
    with closing(sqlite3.connect(folder / "pushlane.db")) as connection:
        connection.executemany(
            "REPLACE INTO usage (tenant, queue, minute, node, counters) VALUES (?, ?, ?, ?, ?)",
            rows,
        )
        connection.commit()


Row = tuple[str, str, int, str, bytes]


def _usage(first: int, end: int, seed: random.Random) -> Iterator[Row]:
    trouble = Trouble(range(end - 10 * 60, end - 7 * 60), range(end - 16 * 60, end - 14 * 60))
    weeks = [n * 7 * DAY for n in range(WEEKS, 0, -1)]
    early = [range(first - ago, end - ago, 4 * STEP) for ago in weeks]
    for minutes in (*early, range(first, end, STEP)):
        for minute in minutes:
            for kind in KINDS:
                yield from _rows(kind, minute, minutes.step, trouble, seed)
            for tenant in ("acme", "globex"):
                yield _row(tenant, "", minute, "gate-1.1", _connections(minutes.step, seed))


def _rows(
    kind: Kind, minute: int, step: int, trouble: Trouble, seed: random.Random
) -> Iterator[Row]:
    down = kind.queue == "emails" and minute in trouble.emails
    silent = kind.queue == "telemetry" and minute in trouble.telemetry
    hour = minute / 60 % 24
    daily = 0.35 + 0.65 * math.exp(-(((hour - 14) / 5) ** 2))
    weekend = 0.4 if minute // DAY % 7 in (2, 3) else 1.0
    rate = kind.rate * daily * weekend * seed.uniform(0.9, 1.1) * (0.02 if silent else 1)
    published = int(rate * step)
    weights = [1.0 + 2.2 * (shard == 0 and kind.shards == 8) for shard in range(kind.shards)]
    retried = int(published * (0.45 if down else kind.failing * seed.uniform(0.7, 1.3)))
    dead = int(published * (0.06 if down else kind.failing / 40))
    for shard, weight in enumerate(weights):
        part = weight / sum(weights)
        exact = {"published": int(published * part), "acked": int((published - dead) * part)}
        if shard == 0 and dead:
            exact["dead.max_attempts"] = dead - dead // 4
            exact["dead.rejected"] = dead // 4
        yield _row(kind.tenant, kind.queue, minute, f"{kind.tenant}-{kind.queue}/{shard}", exact)
    slow = 60.0 if down else seed.uniform(0.9, 1.3) * (0.7 + daily)
    size = 220 if kind.queue == "telemetry" else 900
    counted = {
        "delivered": published + retried,
        "started": published + retried,
        "retried": retried,
        "bytes_in": published * size,
        "bytes_out": (published + retried) * size,
        "stored_byte_s": published * size * 30,
        "max.backlog": int(rate * (45 if down else 0.4) * seed.uniform(0.8, 1.2)) + 3,
        "max.oldest_ms": int(kind.delivery_ms * slow * 40),
        **_histogram("publish_ms", published, 4.5 * seed.uniform(0.9, 1.2), 0.4, seed),
        **_histogram("delivery_ms", published, kind.delivery_ms * slow, 0.8, seed),
        **_histogram("ack_ms", published, 35 * kind.delivery_ms**0.5, 0.9, seed),
    }
    yield _row(kind.tenant, kind.queue, minute, "gate-1.1", counted)


def _histogram(
    name: str, count: int, middle: float, spread: float, seed: random.Random
) -> dict[str, int]:
    """So many durations, of which sixty are drawn."""
    found: dict[str, int] = {}
    for _ in range(60):
        number = bin_of(int(seed.lognormvariate(math.log(middle), spread)))
        found[f"{name}.{number}"] = found.get(f"{name}.{number}", 0) + max(count // 60, 1)
    return found


def _connections(step: int, seed: random.Random) -> dict[str, int]:
    count = seed.randint(18, 24)
    return {"connections": count, "connection_ms": count * step * 60_000}


def _row(tenant: str, queue: str, minute: int, node: str, counters: dict[str, int]) -> Row:
    return tenant, queue, minute, node, msgspec.msgpack.encode([1, counters])


def write_messages(folder: Path, count: int, first: int, end: int, seed: int = 8) -> None:
    """So many messages of a period, in shards as the queues have them."""
    trio.run(_write_messages, folder, count, first, end, random.Random(seed))


async def _write_messages(
    folder: Path, count: int, first: int, end: int, seed: random.Random
) -> None:
    store = await SqliteStore.open(folder)
    try:
        whole = sum(kind.rate for kind in KINDS)
        for kind in KINDS:
            config = QueueConfig(shards=kind.shards)
            row = await store.catalog.create(kind.tenant, kind.queue, config)
            part = max(1, int(count * kind.rate / whole / kind.shards))
            for shard in range(kind.shards):
                content = _messages(kind, part, first, end, seed)
                await _fill(store, ShardKey(row.id, shard), content, 60_000 * first)
    finally:
        await store.close()


def _messages(
    kind: Kind, count: int, first: int, end: int, seed: random.Random
) -> Iterator[Message]:
    body = b'{"%s":"' % kind.queue.encode() + b"x" * (180 if kind.queue == "telemetry" else 420)
    for number in range(count):
        at = 60_000 * first + number * 60_000 * (end - first) // count
        key = f"{kind.queue[:-1]}-{min(int(seed.paretovariate(0.7)), 5_000)}"
        yield Message(body[: seed.randint(40, len(body))] + b'"}', at, key=key)


async def _fill(
    store: SqliteStore, shard: ShardKey, content: Iterator[Message], start: int
) -> None:
    """Buckets of segments: two thirds of each are acked, a few of them dead."""
    epoch = await store.ownership.claim(slot_of(shard), "sample")
    counter = n = 0
    while messages := list(islice(content, SEGMENT * BUCKET_SEGMENTS)):
        key = BucketKey(LANE, epoch, start + counter)
        bucket = Bucket(key, make_seq(epoch, counter))
        for at in range(0, len(messages), SEGMENT):
            segment = Segment(key, bucket.first + at, messages[at : at + SEGMENT])
            await append(store, shard, segment, bucket if at == 0 else None)
        third = len(messages) // 3
        acked = [(bucket.first, bucket.first + 2 * third)]
        gone = [Gone("dead:rejected", bucket.first + 2 * third + 1, bucket.first + 2 * third + 2)]
        rows = [Settlement(key, epoch, n, [key], acked=acked, gone=gone if third > 2 else [])]
        await settle(store, shard, rows)
        size, last = sum(map(size_of, messages)), messages[-1].published_at
        closed = msgspec.structs.replace(
            bucket, closed=True, count=len(messages), size=size, last_at=last
        )
        await store.mark_bucket(shard, closed)
        counter, n = counter + len(messages), n + 1


def make_store(folder: Path) -> None:
    """An empty one."""

    async def make() -> None:
        await (await SqliteStore.open(folder)).close()

    trio.run(make)
