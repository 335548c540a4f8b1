"""Members: what a process shows of itself, and who is there."""

from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import pytest

from pushlane_storage.interface import Backend, ProcessMissing
from pushlane_storage.member import Member
from tests.storage.cassandra.tools import until

Reopen = Callable[[], Awaitable[Backend]]

SHOWN = Member(
    process="whatever it says here",
    name="node-1",
    address="10.0.0.1:8421",
    url="wss://one.example:8420",
    cell="east",
    roles=("gateway", "dispatcher"),
    version="1.2.3",
    links=(1, 3),
    weight=50,
    placed=True,
    started_at=1_700_000_000_000,
    beat=-7,
)


async def own(store: Backend) -> Member:
    """What a process shows of itself."""
    process = store.ownership.process
    [member] = [one for one in await store.ownership.members() if one.process == process]
    return member


def learned(store: Backend, draining: bool) -> bool:
    return store.ownership.draining == draining


class MemberConformance:
    async def test_a_process_is_a_member(self, store: Backend) -> None:
        members = await store.ownership.members()
        assert members == sorted(members, key=lambda member: member.process)
        member = await own(store)
        assert (member.address, member.placed, member.draining) == ("", False, False)
        assert not store.ownership.draining
        assert store.ownership.beat_failing_ms == 0

    async def test_it_shows_what_it_was_introduced_with(self, store: Backend) -> None:
        store.ownership.introduce(SHOWN)
        found = await own(store)
        assert found.beat >= 0
        process = store.ownership.process
        assert found == msgspec.structs.replace(SHOWN, process=process, beat=found.beat)
        store.ownership.introduce(msgspec.structs.replace(found, draining=True, weight=1))
        assert (await own(store)).weight == 1
        assert (await own(store)).draining
        assert not store.ownership.draining, "that is what an operator wants"

    async def test_each_start_is_another_process(self, store: Backend, reopen: Reopen) -> None:
        store.ownership.introduce(SHOWN)
        before = store.ownership.process
        store = await reopen()
        assert store.ownership.process != before
        assert before not in [member.process for member in await store.ownership.members()]
        assert (await own(store)).address == "", "nothing was introduced yet"

    async def test_an_operator_drains_a_process(self, store: Backend) -> None:
        ownership = store.ownership
        store.ownership.introduce(SHOWN)
        for draining in (True, True, False):
            await ownership.set_draining(ownership.process, draining)
            await until(partial(learned, store, draining))
            assert (await own(store)).draining == draining

    async def test_who_is_not_there_is_not_drained(self, store: Backend, reopen: Reopen) -> None:
        before = store.ownership.process
        store = await reopen()
        for process in (before, "nobody"):
            with pytest.raises(ProcessMissing):
                await store.ownership.set_draining(process, True)

    async def test_who_has_left_needs_no_fence(self, store: Backend, reopen: Reopen) -> None:
        before = store.ownership.process
        store = await reopen()
        await store.ownership.fence(before)
        await store.ownership.fence("nobody")
        assert before not in [member.process for member in await store.ownership.members()]

    async def test_nobody_fences_itself(self, store: Backend) -> None:
        with pytest.raises(AssertionError, match="itself"):
            await store.ownership.fence(store.ownership.process)
