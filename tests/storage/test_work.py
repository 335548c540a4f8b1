"""Doing it again: for as long as a database is restarted, and not for ever."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from pushlane_storage.interface import QueueExists, StoreDamaged, StoreRefused, StoreUnknown
from pushlane_storage.work import PAUSES_S, patiently


class Work:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


async def test_it_is_done_again(autojump_clock: MockClock) -> None:
    work = Work(StoreUnknown(), StoreRefused())
    assert await patiently(work) == "done"
    assert work.calls == 3
    assert trio.current_time() == pytest.approx(sum(PAUSES_S[:2]), abs=0.01)


async def test_it_has_an_end(autojump_clock: MockClock) -> None:
    work = Work(*[StoreUnknown(str(number)) for number in range(20)])
    with pytest.raises(StoreUnknown, match=str(len(PAUSES_S))):
        await patiently(work)
    assert sum(PAUSES_S) > 30


@pytest.mark.parametrize("error", [QueueExists("q"), StoreDamaged("x"), ValueError("x")])
async def test_what_stays_as_it_is(error: Exception) -> None:
    work = Work(error)
    with pytest.raises(type(error)):
        await patiently(work)
    assert work.calls == 1
