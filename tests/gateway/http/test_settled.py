"""What is remembered of settled receipts."""

from __future__ import annotations

import pytest
import trio

from pushlane_dispatcher.settled import Settled
from pushlane_gateway.http.settings import HttpSettings


async def test_numbers_are_sorted() -> None:
    settled = Settled(30_000, 10)
    settled.keep("p", "queue", {1, 2, 4})
    assert settled.sort("queue", ("p", 1, 5)) == ([("p", 1, 2), ("p", 4, 4)],
                                                 [("p", 3, 3), ("p", 5, 5)])  # fmt: skip
    assert settled.sort("other", ("p", 1, 2)) == ([], [("p", 1, 2)])
    assert settled.sort("queue", ("r", 1, 2)) == ([], [("r", 1, 2)])


async def test_for_a_while() -> None:
    settled = Settled(30_000, 10)
    settled.keep("p", "queue", {1})
    await trio.sleep(20)
    settled.keep("r", "queue", {1})
    await trio.sleep(11)
    assert settled.sort("queue", ("p", 1, 1))[0] == []
    assert settled.sort("queue", ("r", 1, 1))[0] == [("r", 1, 1)]
    assert len(settled) == 1


async def test_as_many_as_there_may_be() -> None:
    settled = Settled(30_000, 2)
    for prefix in "pqr":
        settled.keep(prefix, "queue", {1})
        assert len(settled) <= 2
    assert settled.sort("queue", ("p", 1, 1))[0] == []
    assert settled.sort("queue", ("q", 1, 1))[0] == [("q", 1, 1)]


@pytest.mark.parametrize("name", HttpSettings.__struct_fields__)
def test_settings_are_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0"):
        HttpSettings(**{name: 0})
