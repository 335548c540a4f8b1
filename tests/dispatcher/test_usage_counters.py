"""The counters: whatever crashes, lands late or is repeated, the rows add up to what happened."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.usage.counters import ShardCounters, write_off
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Backend
from pushlane_storage.memory import MemoryStore, MemoryTables
from pushlane_storage.tally import STORED, key_of, node_of, unpack_tally
from pushlane_storage.usage import merge
from tests.dispatcher.counters_world import FINE, Store, World
from tests.dispatcher.rig import TENANT, Rig, blocked, dispatching, memory_store, rig

Step = tuple[str, int, int]

WEIGHTS = {
    "turn": 40, "publish": 6, "settle": 8, "roll": 4, "flush": 8, "rest": 2, "drain": 6,
    "minute": 4, "claim": 2, "kill": 1, "fault": 2,
}  # fmt: skip


def make_steps(seed: int) -> list[Step]:
    chance = Random(seed)
    kinds = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=150)
    return [(kind, chance.randrange(4), chance.randint(1, 2)) for kind in kinds]


async def play(steps: list[Step], shared: bool) -> tuple[dict[str, int], dict[str, int]]:
    """What happened, and what the rows say when all are quiet."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, shared)
        world.claim()
        for step in steps:
            await take(world, *step)
        await calm(world)
        world.claim()
        await calm(world)
        world.current.wish("flush")
        await calm(world)
        nursery.cancel_scope.cancel()
    return {name: value for name, value in world.truth.items() if value}, world.counted()


async def take(world: World, kind: str, which: int, amount: int) -> None:
    owner = world.current if which < 2 else world.owners[-which % len(world.owners)]
    match kind:
        case "publish":
            world.current.publish(amount)
        case "settle":
            world.current.settle(amount, ("acked", "dead:rejected", "expired", "acked")[which])
        case "roll":
            world.current.roll()
        case "flush" | "rest" | "drain":
            owner.wish(kind)
        case "minute":
            world.minute += amount
        case "claim":
            world.claim()
        case "kill":
            world.kill(which)
        case "turn" | "fault":
            owner.store.fate = FINE if kind == "turn" else amount
            if owner.store.waiting is not None:
                owner.store.waiting.set()
    await wait_all_tasks_blocked()


async def calm(world: World) -> None:
    """Everybody, zombies too, comes to an end with what they are about."""
    await wait_all_tasks_blocked()
    while waiting := [owner for owner in world.owners if owner.store.waiting is not None]:
        for owner in waiting:
            owner.store.fate = FINE
            owner.store.waiting.set()
        await wait_all_tasks_blocked()


def search(shared: bool, examples: int) -> Callable[[], None]:
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, 1 << 40))
    def run(seed: int) -> None:
        truth, counted = trio.run(play, make_steps(seed), shared)
        assert counted == truth

    return run


@pytest.mark.parametrize("shared", [False, True])
def test_the_rows_add_up_to_what_happened(shared: bool) -> None:
    search(shared, 300)()


async def marks_at_once(*_: Any) -> None:
    """A bucket is marked before its numbers are in the tally."""
    await trio.lowlevel.checkpoint()


async def trusts(*_: Any) -> None:
    """A tally is relied on although another owner may not have seen it."""
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("shared", "kind", "name", "bug"),
    [(False, ShardCounters, "cover", marks_at_once), (True, Store, "confirm", trusts)],
)
def test_planted_bugs_are_found(
    shared: bool, kind: type, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, name, bug)
    with pytest.raises(AssertionError):
        search(shared, 2_000)()


# On a store of one process, as the dispatcher has it


async def test_a_new_shard_has_a_tally_before_it_serves() -> None:
    store = memory_store()
    async with rig(store) as r:
        key = key_of(TENANT, "q", r.runner.key)
        tally = unpack_tally(await store.usage.find(key))
        assert tally is not None
        assert (tally.base, tally.drained, tally.counted) == ({}, {}, frozenset())


async def test_what_was_there_before_anybody_counted_is_not_counted() -> None:
    store = memory_store()
    async with rig(store, settings=Settings(usage=False)) as r:
        await r.publish(b"1", b"2")
        assert await store.usage.read(TENANT, 0, 1 << 40) == []
    async with rig(store) as r:
        await r.publish(b"3")
        assert await read_usage(r) == {"published": 1}


async def test_who_counts_again_knows_that_something_is_missing() -> None:
    store = memory_store()
    quick = Bounds(bucket_messages=2)
    async with rig(store, bounds=quick) as r:
        await r.publish(b"1")
        assert await read_usage(r) == {"published": 1}
    async with rig(store, bounds=quick, settings=Settings(usage=False)) as r:
        await consume(r, b"2", b"3", b"4")  # its bucket is drained, and its numbers are gone
    async with rig(store, bounds=quick) as r:
        await r.publish(b"5")
        assert await read_usage(r) == {"published": 2}


async def test_drained_buckets_stay_counted_over_restarts() -> None:
    store = memory_store()
    for round in range(1, 4):
        async with rig(store, bounds=Bounds(bucket_messages=2)) as r:
            await consume(r, b"1", b"2", b"3", b"4", b"5")
            assert await read_usage(r) == {"published": 5 * round, "acked": 5 * round}


async def test_rows_tell_how_much_more_or_less_is_stored() -> None:
    store = memory_store()
    async with rig(store) as r:
        await r.publish(bytes(1_000), bytes(1_000))
        key = r.runner.key
    filled = await read_changes(store, key)
    assert len(filled) == 1
    assert filled[0] > 2_000
    async with rig(store) as r:
        await trio.sleep(600)
        r.consumer(acking=True)
        await trio.sleep(60)
    assert await read_changes(store, key) == [filled[0], -filled[0]]


async def test_a_shard_at_rest_needs_no_row() -> None:
    """Rows are not kept for good, and nothing is counted again when they are gone."""
    tables = MemoryTables()
    async with rig(MemoryStore(tables)) as r:
        await r.publish(b"1", b"2")
        key = r.runner.key
        await trio.sleep(700)
    tables._usage = {place: row for place, row in tables._usage.items() if not place.minute}
    async with rig(MemoryStore(tables)) as r:
        assert r.runner.key == key
        await r.publish(b"3")
        assert await read_usage(r) == {"published": 1}


@pytest.mark.parametrize("is_open", [True, False])
async def test_what_lay_in_a_deleted_queue(is_open: bool) -> None:
    store = memory_store()
    async with rig(store) as r:
        await r.publish(bytes(1_000))
        key = r.runner.key
        await trio.sleep(100)
        if is_open:
            await r.dispatcher.delete(TENANT, "q")
    if not is_open:
        async with dispatching(MemoryStore(store.tables)) as dispatcher:
            await dispatcher.delete(TENANT, "q")
    filled, *others, emptied = await read_changes(store, key)
    assert (filled + emptied, sum(others)) == (0, 0)
    assert filled > 1_000
    for _ in range(2):
        await write_off(store.usage, TENANT, "q", key, 1 << 40)
    assert sum(await read_changes(store, key)) == 0


async def read_changes(store: Backend, key: ShardKey) -> list[int]:
    rows = await store.usage.read(TENANT, 1, 1 << 40, "q")
    return [row.counters.get(STORED, 0) for row in rows if row.key.node == node_of(key)]


async def consume(r: Rig, *bodies: bytes) -> None:
    """One after the other, so that buckets roll."""
    consumer = r.consumer(acking=True)
    for body in bodies:
        await r.publish(body)
        await trio.sleep(1)
    consumer.leave()
    await blocked()


async def read_usage(r: Rig) -> dict[str, int]:
    await r.dispatcher.usage_writer.flush_shards([r.runner.key])
    found: dict[str, int] = {}
    for row in await r.dispatcher._context.store.usage.read(TENANT, 1, 1 << 40, "q"):
        if row.key.node == node_of(r.runner.key):
            merge(found, row.counters)
    return {name: value for name, value in found.items() if value and name != STORED}
