"""The fence: which reads confirm which writes."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from pushlane_storage.cassandra.node import Fence
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown


class Row:
    """A node's row, read slowly."""

    def __init__(self) -> None:
        self.fenced = False
        self.gate = trio.Semaphore(0)
        self.error: Exception | None = None
        self.begun = 0

    async def is_unfenced(self) -> bool:
        self.begun += 1
        await self.gate.acquire()
        if self.error is not None:
            raise self.error
        return not self.fenced


@pytest.fixture
def row() -> Row:
    return Row()


@pytest.fixture
def fence(row: Row, nursery: trio.Nursery) -> Fence:
    fence = Fence(row.is_unfenced, "me")
    nursery.start_soon(fence.run)
    return fence


class Told:
    def __init__(self, fence: Fence) -> None:
        self.answers: list[Exception | None] = []
        fence.confirm_soon(self.answers.append)


async def test_one_read_serves_all_that_was_there_before_it_began(row: Row, fence: Fence) -> None:
    first, second = Told(fence), Told(fence)
    await trio.testing.wait_all_tasks_blocked()
    assert row.begun == 1
    late = [Told(fence), Told(fence)]  # the read under way says nothing about these
    row.gate.release()
    await trio.testing.wait_all_tasks_blocked()
    assert first.answers == second.answers == [None]
    assert [told.answers for told in late] == [[], []]
    assert row.begun == 2
    row.gate.release()
    await trio.testing.wait_all_tasks_blocked()
    assert [told.answers for told in late] == [[None], [None]]
    assert (fence.reads, fence.served) == (2, 4)


async def test_fenced_is_for_good(row: Row, fence: Fence) -> None:
    row.fenced = True
    row.gate.release()
    with pytest.raises(Fenced, match="me"):
        await fence.confirm()
    row.fenced = False
    with pytest.raises(Fenced):
        await fence.confirm()
    assert row.begun == 1


@pytest.mark.parametrize("fault", [StoreRefused("no"), StoreUnknown("what?")])
async def test_a_read_that_failed_leaves_it_unknown(
    row: Row, fence: Fence, fault: Exception
) -> None:
    """Also when the read was refused: the write itself is durable."""
    row.error = fault
    row.gate.release()
    with pytest.raises(StoreUnknown, match="stored, but not confirmed"):
        await fence.confirm()
    row.error = None
    row.gate.release()
    await fence.confirm()


async def test_whoever_waits_when_it_ends_is_told(row: Row) -> None:
    fence = Fence(row.is_unfenced, "me")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fence.run)
        under_way = Told(fence)
        await trio.testing.wait_all_tasks_blocked()
        waiting = Told(fence)
        nursery.cancel_scope.cancel()
    fence.dismiss()
    for told in (under_way, waiting):
        assert isinstance(told.answers[0], StoreUnknown)
