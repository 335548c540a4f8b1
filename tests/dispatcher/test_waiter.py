import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.waiter import Waiter


async def test_an_answer_that_was_there_first() -> None:
    waiter: Waiter[str] = Waiter()
    waiter("yes")
    assert await waiter.wait() == "yes"


async def test_an_answer_that_comes_later(nursery: trio.Nursery) -> None:
    waiter: Waiter[str] = Waiter()
    answers = []

    async def wait() -> None:
        answers.append(await waiter.wait())

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    waiter("yes")
    await wait_all_tasks_blocked()
    assert answers == ["yes"]


async def test_an_error_is_raised() -> None:
    waiter: Waiter[str] = Waiter()
    waiter("ticket", Unavailable("no"))
    with pytest.raises(Unavailable):
        await waiter.wait()


async def test_who_is_cancelled_only_stops_waiting() -> None:
    waiter: Waiter[str] = Waiter()
    with trio.CancelScope() as scope:
        scope.cancel()
        await waiter.wait()
    assert scope.cancelled_caught
    waiter("too late, but no harm")


def test_a_second_answer_is_our_bug() -> None:
    waiter: Waiter[str] = Waiter()
    waiter("yes")
    with pytest.raises(AssertionError, match="twice"):
        waiter("no")


async def test_no_answer_at_all() -> None:
    waiter: Waiter[int] = Waiter()
    waiter.fail(ValueError("a bug"))
    assert waiter.answered
    with pytest.raises(ValueError, match="a bug"):
        await waiter.wait()


async def test_none_is_an_answer() -> None:
    waiter: Waiter[None] = Waiter()
    waiter(None)
    assert await waiter.wait() is None  # type: ignore[func-returns-value]
