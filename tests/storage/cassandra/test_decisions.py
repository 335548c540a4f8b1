"""Lightweight transactions whose answers are lost: decided by reading again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.ring import Change, Range, Row
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.cassandra.tables import SLOTS
from pushlane_storage.interface import StoreError, StoreRefused, StoreUnknown
from pushlane_storage.queue import QueueConfig, QueueRow
from tests.held import held, let_go
from tests.storage.cassandra.conftest import Join
from tests.storage.cassandra.model_ring import FaultyRing, ModelRing, Tables

NEW = {"epoch": 1, "process": "p", "owner": "o", "dc": "", "nonce": "mine"}
FATES = ["fine", "lost", "done", "refused"]


def script(*fates: str) -> Callable[[str, object], str]:
    """These fates for transactions and serial reads, in order; then all is fine."""
    todo = list(fates)

    def fate(kind: str, _: object) -> str:
        return todo.pop(0) if todo and kind in ("change", "serial") else "fine"

    return fate


def is_mine(row: Row | None) -> bool:
    return row is not None and row["nonce"] == "mine"


def make(*fates: str) -> tuple[ModelRing, Decisions]:
    ring = ModelRing()
    return ring, Decisions(FaultyRing(ring, script(*fates)), 4)


CLAIM = Change(SLOTS, (1,), None, NEW)


async def test_one_that_was_done_and_unknown_counts_as_done() -> None:
    ring, decisions = make("done")
    assert (await decisions.decide(CLAIM, is_mine)).applied
    assert ring.counts == {"change": 1, "read serial": 1}


async def test_one_that_was_lost_is_done_again() -> None:
    _, decisions = make("lost")
    assert (await decisions.decide(CLAIM, is_mine)).applied
    assert is_mine(await decisions.read(SLOTS, (1,)))


async def test_somebody_else_was_faster() -> None:
    ring, decisions = make("lost")
    await ring.change(CLAIM._replace(row={**NEW, "nonce": "theirs"}))
    decided = await decisions.decide(CLAIM, is_mine)
    assert not decided.applied
    assert decided.row is not None
    assert decided.row["nonce"] == "theirs"


async def test_refused_is_refused() -> None:
    _, decisions = make("refused")
    with pytest.raises(StoreRefused):
        await decisions.decide(CLAIM, is_mine)
    assert await decisions.read(SLOTS, (1,)) is None


@pytest.mark.parametrize(
    "fates",
    [
        ("done", "refused"),
        ("lost", "refused"),
        ("done", "lost"),
        ("lost", "fine", "refused"),
        ("lost", "fine") * 4,
    ],
)
async def test_what_was_unknown_once_is_never_refused(fates: tuple[str, ...]) -> None:
    _, decisions = make(*fates)
    with pytest.raises(StoreUnknown):
        await decisions.decide(CLAIM, is_mine)


async def test_when_nobody_can_tell_it_is_unknown() -> None:
    ring, decisions = make("lost")
    await ring.change(CLAIM._replace(row={**NEW, "nonce": "theirs"}))
    with pytest.raises(StoreUnknown, match="others have changed"):
        await decisions.decide(CLAIM, lambda _: None)


async def test_those_of_one_partition_wait_for_each_other() -> None:
    under_way = most = 0

    class Slow(ModelRing):
        async def change(self, change: Change) -> bool:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await trio.testing.wait_all_tasks_blocked()
            under_way -= 1
            return await super().change(change)

    decisions = Decisions(Slow(), 4)
    applied: list[bool] = []

    async def run(slot: int) -> None:
        change = CLAIM._replace(key=(slot,))
        applied.append((await decisions.decide(change, is_mine)).applied)

    async with trio.open_nursery() as nursery:
        for slot in (1, 1, 1, 2):
            nursery.start_soon(run, slot)
    assert most == 2
    assert sorted(applied) == [False, False, True, True]


async def test_serial_reads_of_one_partition_wait_for_each_other() -> None:
    """Side by side they make each other fail, and with enough of them all tries are used up."""
    under_way = most = 0

    class Slow(ModelRing):
        async def read(self, range: Range) -> list[Row]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await trio.testing.wait_all_tasks_blocked()
            under_way -= 1
            return await super().read(range)

    decisions = Decisions(Slow(), 4)
    async with trio.open_nursery() as nursery:
        for slot in (1, 1, 1, 2):
            nursery.start_soon(decisions.read, SLOTS, (slot,))
    assert most == 2


@given(st.lists(st.sampled_from(FATES), max_size=12))
def test_queues_under_any_faults(fates: list[str]) -> None:
    """What is answered is true: made is there, refused is not, and nobody else is blamed."""

    async def attempt(call: Awaitable[QueueRow]) -> QueueRow | type[StoreError]:
        try:
            return await call
        except StoreError as error:
            return type(error)

    async def run() -> None:
        ring = ModelRing()
        faulty = FaultyRing(ring, lambda *_: "fine")
        store = await held(CassandraStore.over(faulty, Limits()))
        other = await held(CassandraStore.over(ring, Limits()))
        faulty.fate = script(*fates)
        before = None
        made = await attempt(store.catalog.create("t", "q", QueueConfig()))
        if isinstance(made, QueueRow):
            assert await other.catalog.read("t", "q") == made
            before = made
            made = await attempt(store.catalog.update(made, QueueConfig(paused=True)))
        found = await other.catalog.read("t", "q")
        if isinstance(made, QueueRow):
            assert found == made
        else:
            assert made is StoreUnknown or (made is StoreRefused and found == before)
        faulty.fate = script()
        await let_go(store)
        await let_go(other)

    trio.run(run)


@given(st.lists(st.sampled_from(FATES), max_size=20))
def test_claims_under_any_faults(fates: list[str]) -> None:
    """Every epoch that is answered was won, once, and is the newest."""

    async def run() -> None:
        ring = ModelRing()
        faulty = FaultyRing(ring, lambda *_: "fine")
        store = await held(CassandraStore.over(faulty, Limits()))
        faulty.fate = script(*fates)
        won: list[int] = []
        for _ in range(5):
            try:
                won.append(await store.ownership.claim(1, "node"))
            except StoreError:
                continue
            [row] = ring.tables.partition(SLOTS, (1,)).rows.values()
            assert row["epoch"][1] == won[-1]
            assert row["process"][1] == store.ownership.node.process
        assert won == sorted(set(won))
        faulty.fate = script()
        await let_go(store)

    trio.run(run)


async def test_a_store_that_can_not_register_is_not_opened(join: Join, tables: Tables) -> None:
    with pytest.raises(StoreRefused):
        await join(FaultyRing(ModelRing(tables), lambda *_: "refused"))
