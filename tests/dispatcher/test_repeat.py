from collections.abc import Awaitable, Callable
from itertools import islice

import pytest
import trio

from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.repeat import Undecided, pauses, until_decided, until_done
from pushlane_storage.interface import Fenced, StoreRefused, StoreUnknown

SETTINGS = Settings(repeat_base_ms=100, repeat_max_ms=500, decide_ms=10_000)


class Tries:
    """A write that ends as scripted, then well."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0

    async def __call__(self) -> None:
        await trio.lowlevel.checkpoint()
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)


def test_pauses_double_up_to_a_bound() -> None:
    assert list(islice(pauses(SETTINGS), 5)) == [0.1, 0.2, 0.4, 0.5, 0.5]


async def test_a_write_that_succeeds_is_written_once() -> None:
    write = Tries()
    assert await until_decided(write, SETTINGS)
    assert write.count == 1


async def test_an_unknown_outcome_is_written_again_after_a_pause() -> None:
    write = Tries(StoreUnknown("?"), StoreUnknown("?"))
    assert await until_decided(write, SETTINGS)
    assert write.count == 3
    assert trio.current_time() == pytest.approx(0.3)


async def test_a_refusal_can_be_undone() -> None:
    write = Tries(StoreRefused("no"))
    assert not await until_decided(write, SETTINGS, lambda: True)
    assert write.count == 1


async def test_a_refusal_that_can_not_be_undone_is_written_again() -> None:
    write = Tries(StoreRefused("no"))
    assert await until_decided(write, SETTINGS)
    assert write.count == 2


async def test_a_refusal_after_an_unknown_outcome_undoes_nothing() -> None:
    write = Tries(StoreUnknown("?"), StoreRefused("no"))
    assert await until_decided(write, SETTINGS, lambda: pytest.fail("it may be stored"))
    assert write.count == 3


async def test_what_stays_unknown_is_undecided() -> None:
    write = Tries(*[StoreUnknown("?")] * 1000)
    with pytest.raises(Undecided):
        await until_decided(write, SETTINGS)
    assert trio.current_time() == pytest.approx(10)


async def test_a_store_that_hangs_is_undecided_too() -> None:
    with pytest.raises(Undecided):
        await until_decided(trio.sleep_forever, SETTINGS)
    assert trio.current_time() == pytest.approx(10)


@pytest.mark.parametrize("error", [Fenced("gone"), ZeroDivisionError()])
async def test_every_other_error_comes_through(error: Exception) -> None:
    with pytest.raises(type(error)):
        await until_decided(Tries(error), SETTINGS)


async def test_reads_are_tried_for_as_long_as_it_takes() -> None:
    faults: list[Exception] = [StoreUnknown("?"), StoreRefused("no")]
    tries = Tries(*faults * 30)

    async def read() -> str:
        await tries()
        return "here"

    call: Callable[[], Awaitable[str]] = read
    assert await until_done(call, SETTINGS) == "here"
    assert tries.count == 61
    assert trio.current_time() > 20
