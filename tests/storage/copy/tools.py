"""A store that has everything, and what a store holds as its readers see it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.interface import Backend
from pushlane_storage.message import Dead, Message
from pushlane_storage.note import KeptNumbers, Note
from pushlane_storage.outcome import settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.settlement import Gone, Leaving, Purge, Settlement, Void
from pushlane_storage.slot import slot_of
from pushlane_storage.url import open_store
from pushlane_storage.usage import Usage, UsageKey
from tests.held import held, let_go
from tests.services import service
from tests.storage.cassandra.tools import NODE, SURE, connection_to
from tests.storage.samples import (
    FULL_CONFIG,
    FULL_MESSAGE,
    START,
    Owner,
    claimed_all,
    full_settlement,
    message,
    messages,
    unique,
)

QUICK = msgspec.structs.replace(SURE, beat_ms=200, judge_ms=1_000, poll_ms=20)
"""Who is dead is found out soon. Nobody who is alive is judged in these tests."""
TENANTS = ("default", "düsseldorf")
SHARDS = 2
HOUR = 3_600_000


class World(msgspec.Struct):
    """The names of what `fill` has made."""

    shards: list[ShardKey]
    last: int
    """The greatest epoch that anything was stored with."""


async def fill(url: str) -> World:
    """Two epochs of a store in which every kind of row stands."""
    store = await held(open_store(url))
    orders = await store.catalog.create(TENANTS[0], "orders", QueueConfig(shards=SHARDS))
    orders = await store.catalog.update(orders, QueueConfig(shards=SHARDS, retention_ms=HOUR))
    dead = await store.catalog.create(TENANTS[0], "orders.dead", QueueConfig(dead_letter=""))
    await store.catalog.create(TENANTS[1], "orders", FULL_CONFIG)
    going = await store.catalog.create(TENANTS[1], "going", QueueConfig())
    await store.catalog.mark_deleting(going)
    shards = [ShardKey(orders.id, number) for number in range(SHARDS)] + [ShardKey(dead.id, 0)]
    for owner in await claimed_all(store, *shards):
        await _first_epoch(owner)
    await store.usage.put([_usage("orders", 7, 1, published=3), _usage("orders", 1_441, acked=2)])
    await let_go(store)
    store = await held(open_store(url))
    owners = await claimed_all(store, *shards)
    for owner in owners:
        await _second_epoch(owner)
    later = [_usage("ключ", 1_441), _usage("orders", 7, 2 << 32, published=4, dead=5)]
    await store.usage.put([*later, _usage("orders", 0, 9, minute=7)])
    await let_go(store)
    return World(shards, max(owner.epoch for owner in owners))


async def _first_epoch(owner: Owner) -> None:
    await owner.store.write_seal(owner.shard, Seal(owner.epoch, [], []))
    for lane in (0, 4, 9):
        await owner.append(0, messages(40, producer="p1", producer_seq=lane), lane)
        await owner.append(40, [FULL_MESSAGE, message(1, dedup="d1"), message(2, key="k")], lane)
    low, middle = owner.bucket(0), owner.bucket(4)
    await owner.settle(0, low, middle, acked=[(owner.seq(0), owner.seq(9))])
    await settle(owner.store, owner.shard, [full_settlement(owner, 1, middle)])
    void = Void(owner.seq(11), 1 << 40, 2, 3, START, "no")
    leaving = Leaving(owner.seq(12), "max_attempts", "orders.dead", 5, "no", START)
    await owner.settle(2, middle, voids=[void], leaving=[leaving])
    purge = Settlement(CONTROL, owner.epoch, 3, [CONTROL], purges=[Purge(9, owner.seq(3), [1])])
    await settle(owner.store, owner.shard, [purge])
    marks = MarkSummary(2, 1, {"p1": (40, 39), "ü": (1, 7)})
    closed = Bucket(middle, owner.seq(0), True, False, 43, 3_000, START + 42, marks)
    await owner.store.mark_bucket(owner.shard, closed)
    await _drain(owner, low)
    await _drop(owner, START + 1)


async def _drain(owner: Owner, key: BucketKey) -> None:
    """Everything in it has ended, and its dedup marks still count."""
    gone = [Gone("expired", owner.seq(10), owner.seq(42))]
    await owner.settle(4, key, gone=gone)
    row = Bucket(key, owner.seq(0), True, True, 43, 3_000, START + 42)
    await owner.store.mark_bucket(owner.shard, row)


async def _drop(owner: Owner, start: int) -> None:
    """A bucket that is not there any more."""
    await owner.append(43, messages(2, not_before=START + 5 * HOUR), 4, start)
    key = owner.bucket(4, start)
    await owner.drain(key)
    await owner.store.drop(owner.shard, key)


async def _second_epoch(owner: Owner) -> None:
    old = owner.epoch - 1
    counters = [(lane, old, 43) for lane in (0, 4, 9)]
    await owner.store.write_seal(owner.shard, Seal(owner.epoch, counters, [(old, 5)]))
    kept = [KeptNumbers("p1", START, 3, [(4, 2, 4, owner.seq(0)), (9, 1, -1, 0)])]
    await owner.store.write_note(owner.shard, Note(owner.epoch, 3, "t", "q", START, kept, False))
    for number in range(30):
        due = START + number * 7 * HOUR if number % 3 else START + 1
        await owner.append(number, [message(number, key=f"k{number % 4}", not_before=due)])
    letter = Dead("max_attempts", "orders", "id-1", 5, "no", START)
    await owner.append(30, [Message(b"1", START, dead=letter, dedup="dead id-1")])
    for n in range(8):
        await owner.settle(n, owner.bucket(), acked=[(owner.seq(n), owner.seq(n))])


def _usage(queue: str, at: int, version: int = 0, /, **counters: int) -> Usage:
    return Usage(UsageKey(TENANTS[0], queue, at, "node-1"), counters, version)


async def contents(url: str, world: World) -> dict[str, Any]:
    """Everything, through the interface that the dispatcher has."""
    store = await held(open_store(url))
    found: dict[str, Any] = {}
    for tenant in TENANTS:
        found[tenant] = await store.catalog.list(tenant, "", 100)
        found[f"usage of {tenant}"] = await store.usage.read(tenant, 0, 3_000)
    for shard in world.shards:
        found[f"{shard}"] = await _shard(store, shard)
    await let_go(store)
    return found


async def _shard(store: Backend, shard: ShardKey) -> list[Any]:
    buckets = (await store.outline(shard)).buckets
    every_due = slot_of(shard), 1 << 60, 1_000
    found: list[Any] = [
        (await store.outline(shard)).seals,
        (await store.outline(shard)).note,
        [due._replace(tenant="", queue="") for due in await store.ownership.due_shards(*every_due)],
        buckets,
        await store.settlements(shard, CONTROL),
        await store.due(shard, 0, 1 << 60, 1_000),
    ]
    for key in [bucket.key for bucket in buckets]:
        found.append(await store.heads(shard, key))
        found.append(await store.segments(shard, key, 0, 1 << 40))
        found.append(await store.settlements(shard, key))
    return found


def rows_in(contents: dict[str, Any]) -> int:
    """A guard: what is compared is not nothing."""
    return len(msgspec.msgpack.encode(contents))


@contextmanager
def keyspaces() -> Iterator[Any]:
    """URLs of keyspaces that are not there yet, and are gone afterwards."""
    made: list[str] = []

    def make(options: str = "") -> str:
        made.append(unique("copy").replace("-", "_"))
        return service(NODE).cassandra_url(made[-1]) + options

    try:
        yield make
    finally:
        for keyspace in made:
            connection_to(NODE).execute(f"DROP KEYSPACE IF EXISTS {keyspace}", 60.0)


def cql(text: str) -> list[Any]:
    return connection_to(NODE).execute(text, 60.0)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
