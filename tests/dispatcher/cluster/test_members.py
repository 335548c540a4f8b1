"""Who is there, and who is dead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import trio

from pushlane_dispatcher.cluster.members import Members
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.member import Member


class Roster:
    """What the store says of members; their hearts beat unless they are stopped."""

    def __init__(self) -> None:
        self.process = "own"
        self.rows: dict[str, Member] = {}
        self.still: set[str] = set()
        self.fenced: list[tuple[str, float]] = []
        self.down = False

    def add(self, process: str, **fields: Any) -> None:
        self.rows[process] = Member(
            process=process, name=f"n-{process}", address=f"{process}:1", roles=("dispatcher",),
            **fields,
        )  # fmt: skip

    async def members(self) -> list[Member]:
        await trio.lowlevel.checkpoint()
        if self.down:
            raise StoreUnknown("it does not answer")
        return list(self.rows.values())

    async def fence(self, process: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.down:
            raise StoreUnknown("it does not answer")
        self.fenced.append((process, trio.current_time()))
        self.rows.pop(process, None)

    async def beat(self) -> None:
        await trio.sleep(0.1)
        while True:
            await trio.sleep(1)
            for process, row in self.rows.items():
                if process not in self.still:
                    self.rows[process] = msgspec.structs.replace(row, beat=row.beat + 1)


class Scene:
    def __init__(self) -> None:
        self.roster = Roster()
        for process in ("own", "b", "c", "d"):
            self.roster.add(process)
        self.changes = 0
        roster: Any = self.roster
        self.members = Members(roster, ClusterSettings(), self.changed)

    def changed(self) -> None:
        self.changes += 1

    @property
    def fenced(self) -> list[str]:
        return [process for process, _ in self.roster.fenced]


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with trio.open_nursery() as nursery:
        it = Scene()
        nursery.start_soon(it.members.run)
        nursery.start_soon(it.roster.beat)
        await trio.sleep(5)
        assert it.fenced == []
        yield it
        nursery.cancel_scope.cancel()


async def test_a_heart_that_stands_still_is_given_up_after_judge_ms(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.still.add("b")
        began = trio.current_time()
        await trio.sleep(9)
        assert it.fenced == []
        await trio.sleep(20)
        assert it.fenced == ["b"]
        assert 9 <= it.roster.fenced[0][1] - began <= 12, "a second or two for what was not seen"
        assert it.members.fenced == 1
        assert {member.process for member in it.members.others} == {"c", "d"}


async def test_who_refuses_twice_is_given_up_after_two_beats(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.still.add("b")
        began = trio.current_time()
        it.members.refused("b")
        await trio.sleep(4)
        assert it.fenced == [], "one refusal is chance"
        it.members.refused("b")
        await trio.sleep(0.1)
        assert it.fenced == ["b"]
        assert it.roster.fenced[0][1] - began < 5


async def test_two_refusals_and_two_beats_take_little_more_than_two_beats(
    autojump_clock: Any,
) -> None:
    async with scene() as it:
        it.roster.still.add("b")
        began = trio.current_time()
        it.members.refused("b")
        it.members.refused("b")
        await trio.sleep(10)
        assert it.roster.fenced[0][1] - began <= 3.5


async def test_refusals_do_not_count_while_the_heart_beats(autojump_clock: Any) -> None:
    async with scene() as it:
        for _ in range(20):
            it.members.refused("b")
            await trio.sleep(0.5)
        assert it.fenced == []


async def test_another_process_at_the_same_address_ends_the_old_one_at_once(
    autojump_clock: Any,
) -> None:
    async with scene() as it:
        it.roster.add("b2")
        it.members.replaced("b", "b2")
        it.members.replaced("unknown", "b2")
        await trio.sleep(0.01)
        assert it.fenced == ["b"]


async def test_two_nodes_with_one_address_are_both_alive(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.add("e")
        for _ in range(20):
            await trio.sleep(0.5)
            it.members.replaced("e", "b")
            it.members.replaced("c", "d")
        assert it.fenced == [], "b was there before e, and c and d came at once"
        it.roster.still.add("e")
        it.members.replaced("e", "b")
        it.members.replaced("e", "b")
        await trio.sleep(4)
        assert it.fenced == ["e"], "when it dies nobody is at its address either"


async def test_a_process_that_came_later_is_the_successor(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.add("b2")
        await trio.sleep(5)
        it.members.replaced("b", "b2")
        await trio.sleep(0.01)
        assert it.fenced == ["b"]


async def test_on_mere_silence_one_at_a_time(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.still |= {"b", "c", "d"}
        await trio.sleep(30)
        times = [at for _, at in it.roster.fenced]
        assert len(times) == 3
        assert all(later - at >= 2 for at, later in pairwise(times))


async def test_whose_own_heart_stands_still_gives_up_nobody(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.still |= {"own", "b", "c", "d"}
        await trio.sleep(60)
        assert it.fenced == []
        it.roster.still.clear()
        await trio.sleep(10)
        assert it.fenced == []


async def test_who_was_cut_off_from_the_store_counts_nothing_of_it(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.down = True
        await trio.sleep(60)
        it.roster.still.add("b")
        it.roster.down = False
        await trio.sleep(8)
        assert it.fenced == []
        await trio.sleep(5)
        assert it.fenced == ["b"]


async def test_a_fence_that_the_store_does_not_answer_is_tried_again(autojump_clock: Any) -> None:
    async with scene() as it:
        it.members.replaced("b", "b2")
        it.roster.down = True
        await trio.sleep(5)
        assert it.fenced == []
        it.roster.down = False
        await trio.sleep(1)
        assert it.fenced == ["b"]


async def test_who_was_not_in_the_roster_is_not_there(autojump_clock: Any) -> None:
    async with scene() as it:
        it.roster.rows.pop("own")
        it.roster.still |= {"b"}
        await trio.sleep(30)
        assert it.fenced == []


async def test_those_who_follow_hear_of_changes_and_not_of_beats(autojump_clock: Any) -> None:
    async with scene() as it:
        before = it.changes
        await trio.sleep(10)
        assert it.changes == before
        it.roster.add("e")
        await trio.sleep(0.3)
        assert it.changes == before + 1
        it.roster.rows["e"] = msgspec.structs.replace(it.roster.rows["e"], draining=True)
        await trio.sleep(0.3)
        assert it.changes == before + 2
        it.roster.rows.pop("e")
        await trio.sleep(0.3)
        assert it.changes == before + 3


async def test_how_old_its_roster_is(autojump_clock: Any) -> None:
    roster: Any = Roster()
    assert Members(roster, ClusterSettings(), lambda: None).roster_ms(7) is None
    async with scene() as it:
        assert (it.members.roster_ms(trio.current_time()) or 0) < 300
        it.roster.down = True
        await trio.sleep(5)
        assert (it.members.roster_ms(trio.current_time()) or 0) > 4_500


async def test_who_takes_slots(autojump_clock: Any) -> None:
    async with scene() as it:
        assert {place.process for place in it.members.places} == {"own", "b", "c", "d"}
        for process, fields in {
            "own": {"placed": True},
            "b": {"placed": True},
            "c": {"placed": True, "draining": True},
        }.items():
            row = it.roster.rows[process]
            it.roster.rows[process] = msgspec.structs.replace(row, **fields)
        await trio.sleep(0.5)
        assert {place.process for place in it.members.places} == {"own", "b"}
        it.members.leaving = True
        assert {place.process for place in it.members.places} == {"b"}
        assert it.members.is_leaving
        row = it.roster.rows["b"]
        it.roster.rows["b"] = msgspec.structs.replace(row, draining=True)
        it.roster.rows["d"] = msgspec.structs.replace(it.roster.rows["d"], draining=True)
        await trio.sleep(0.5)
        assert {place.process for place in it.members.places} == {"own"}
        assert not it.members.is_leaving, "nobody else could take them"
