"""Whole stores on real nodes: opening, closing, taking over, damage, numbers."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import trio

from pushlane_dispatcher.node import CannotOpen, open_node
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Write
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import SEGMENTS, keyed
from pushlane_storage.damage import Damage
from pushlane_storage.interface import Fenced, ProcessMissing, StoreRefused, StoreUnknown
from pushlane_storage.member import Member, Owner
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.url import open_store as open_url
from tests.held import held, let_go
from tests.services import service
from tests.storage.cassandra.test_owners import owner_of, stop_heart, take_over
from tests.storage.cassandra.tools import (
    NODE,
    RING,
    SURE,
    address_of,
    open_ring,
    open_store,
    quick,
    until,
)
from tests.storage.samples import START, claimed, messages, seqs_of


@pytest.mark.parametrize("kind", [NODE, RING])
async def test_a_process_that_stopped_is_fenced_and_can_not_hurt(kind: str) -> None:
    first, second = await open_store(kind, quick()), await open_store(kind, quick())
    old = await owner_of(first)
    stored = await old.append(0, messages(3))
    with pytest.raises(StoreRefused, match="alive"):
        await owner_of(second, old.shard)
    stop_heart(first)
    _, _, seal = await take_over(second, old.shard)
    assert seal.counters == [(4, old.epoch, 3)]
    with pytest.raises(Fenced):
        await old.append(3, messages(2))
    found = await second.segments(old.shard, stored.bucket, 0, 100)
    assert seqs_of(found) == [old.seq(number) for number in range(5)], "it did land"
    new, _, seal = await take_over(second, old.shard)
    assert seal.counters == [(4, old.epoch, 3)]
    again = await first.ownership.claim((old.epoch * 31) % 256, "elsewhere")
    assert again >= 1, "it goes on as another process"
    assert first.stats().fenced == 1
    assert new.epoch == old.epoch + 2
    await let_go(first)
    await let_go(second)


@pytest.mark.parametrize("kind", [NODE, RING])
async def test_members_see_each_other_drain_and_fence(kind: str) -> None:
    first, second = await open_store(kind, quick()), await open_store(kind, quick())
    one, two = first.ownership, second.ownership
    one.introduce(Member(process="", name="alpha", address="10.0.0.1:1", placed=True))
    before = one.process

    async def shows(process: str, **fields: object) -> None:
        """Wait until the second one sees the first like this."""
        with trio.fail_after(60):
            while True:
                for member in await two.members():
                    if member.process == process and all(
                        getattr(member, name) == value for name, value in fields.items()
                    ):
                        return
                await trio.sleep(0.01)

    await shows(before, name="alpha", address="10.0.0.1:1", placed=True, draining=False)
    for draining in (True, False):
        await two.set_draining(before, draining)
        await shows(before, draining=draining)
        assert one.draining == draining
    epoch = await one.claim(7, "alpha")
    for serial in (False, True):
        assert await two.owner_of(7, serial=serial) == Owner(before, "alpha", epoch)
    assert (await two.owners())[7] == Owner(before, "alpha", epoch)
    await two.fence(before)
    assert await two.claim(7, "beta") == epoch + 1, "at once"
    assert [number for number, _ in await one.lost()] == [7]
    await shows(one.process, name="alpha", placed=False)
    with pytest.raises(ProcessMissing):
        await two.set_draining(before, True)
    await let_go(first)
    there = {member.process for member in await two.members()}
    assert there.isdisjoint({before, one.process})
    assert two.beat_failing_ms == 0
    await let_go(second)


@pytest.mark.parametrize("kind", [NODE, RING])
async def test_many_claims_at_once_of_two_processes(kind: str) -> None:
    """Each slot has one owner, and both keep what they have."""
    first, second = await open_store(kind, quick()), await open_store(kind, quick())
    won: dict[int, list[CassandraStore]] = {slot: [] for slot in range(16)}

    async def claim(store: CassandraStore, slot: int) -> None:
        while True:
            try:
                await store.ownership.claim(slot, "node")
            except StoreUnknown:  # on a slow machine they get into each other's way
                continue
            except StoreRefused:
                return
            won[slot].append(store)
            return

    async with trio.open_nursery() as nursery:
        for slot in won:
            for store in (first, second):
                nursery.start_soon(claim, store, slot)
    assert {slot: len(owners) for slot, owners in won.items()} == dict.fromkeys(won, 1)
    assert first.stats().slots + second.stats().slots == 16
    await let_go(first)
    for slot in won:
        await second.ownership.claim(slot, "node")
    await let_go(second)


async def test_closing_leaves_no_thread_behind() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    address = address_of(NODE)
    for _ in range(2):
        store = await held(CassandraStore.open(address, SURE))
        await claimed(store)
        assert len(threading.enumerate()) > len(before)
        await let_go(store)

    def is_quiet() -> bool:
        there = {thread.ident: thread.name for thread in threading.enumerate()}
        return not {name for ident, name in there.items() if ident not in before and _ours(name)}

    await until(is_quiet)


def _ours(name: str) -> bool:
    """Trio keeps idle threads for a while, for whoever comes next."""
    return not name.startswith("Trio thread")


async def test_a_damaged_segment_written_by_somebody_else() -> None:
    told: list[Damage] = []
    store = await open_store(damaged=told.append)
    owner = await claimed(store)
    for number in (0, 2, 4):
        await owner.append(number, messages(2))
    ring = await open_ring()
    key = (*owner.shard, *owner.bucket(), owner.seq(2))
    row = keyed(SEGMENTS, key, payload=b"\xffgarbage")
    await ring.write(Write(SEGMENTS, [row], stamps.written(owner.bucket()) + 1, 1_000))
    await ring.close()
    found = await store.segments(owner.shard, owner.bucket(), 0, 100)
    assert seqs_of(found) == [owner.seq(number) for number in (0, 1, 4, 5)]
    assert [damage.first for damage in told] == [owner.seq(2)]
    assert store.stats().damaged == 1
    assert len(await store.heads(owner.shard, owner.bucket())) == 3
    await let_go(store)


async def test_the_largest_segments() -> None:
    store = await open_store()
    owner = await claimed(store)
    bound = Limits().row_bytes
    big = await owner.append(0, [Message(b"x" * (bound - 1_000), START)])
    [found] = await store.segments(owner.shard, big.bucket, 0, 1)
    assert found == big
    with pytest.raises(StoreRefused, match=f"at most {bound}"):
        await owner.append(1, [Message(b"x" * bound, START)])
    await let_go(store)


async def test_numbers() -> None:
    store = await open_store()
    before = store.stats()
    owner = await claimed(store)
    await owner.append(0, messages(2))
    after = store.stats()
    assert after.slots == 1
    assert after.confirmed == before.confirmed + 1
    assert after.fence_reads == before.fence_reads + 1
    assert after.requests > before.requests
    assert (after.in_flight, after.waiting, after.unknown, after.refused) == (0, 0, 0, 0)
    await let_go(store)


async def test_a_read_of_usage_is_bounded() -> None:
    store = await open_store()
    with pytest.raises(StoreRefused, match="up to 400 days"):
        await store.usage.read("t", 0, 400 * 1440)
    assert await store.usage.read("t", 0, 400 * 1440 - 1) == []
    await let_go(store)


async def test_a_store_by_its_url() -> None:
    store = await held(open_url(service(NODE).cassandra_url(address_of(NODE).keyspace)))
    assert isinstance(store, CassandraStore)
    await let_go(store)


async def test_a_node_on_cassandra() -> None:
    url = service(NODE).cassandra_url(address_of(NODE).keyspace)
    async with open_node(url) as dispatcher:
        await dispatcher.create("t", "orders", QueueConfig())
        done = await dispatcher.publish("t", "orders", [Message(b"1", START), Message(b"2", START)])
        assert all(done.ids)
        assert dispatcher.store_numbers()["confirmed"] >= 2
    async with open_node(url) as dispatcher:
        for body, ident in zip((b"1", b"2"), done.ids, strict=True):
            assert ident is not None
            message, _ = await dispatcher.message("t", "orders", ident)
            assert message.body == body
        await dispatcher.delete("t", "orders")


async def test_a_node_that_can_not_be_opened() -> None:
    for url in ("cassandra://127.0.0.1:1/k", "cassandra://h/p?migrate=x"):
        with pytest.raises(CannotOpen):
            async with open_node(url):
                raise AssertionError("opened")


def test_others_do_not_pay_for_the_driver() -> None:
    script = (
        "import sys, pushlane_storage.cassandra.store, pushlane_dispatcher.node;"
        " print('cassandra.cluster' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
