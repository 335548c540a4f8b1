"""Batches, the pace, and what is told of messages; the rest is seen in test_publishing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from pushlane import Item, TooLarge
from pushlane_spark import sending
from pushlane_spark.errors import PublishFailed
from pushlane_spark.sending import Outgoing, Tally, target


def messages(*sizes: int) -> Iterator[Outgoing]:
    return (Outgoing(str(n), Item(data=b"x" * size)) for n, size in enumerate(sizes))


def test_batches_have_a_size() -> None:
    third = sending.BATCH_BYTES // 4
    found = list(sending._batches(messages(third, third, third, third, 1), 1_000))
    assert [len(batch) for batch in found] == [2, 2, 1] or [len(b) for b in found] == [3, 2]
    assert [len(batch) for batch in sending._batches(messages(*[1] * 25), 10)] == [10, 10, 5]
    huge = list(sending._batches(messages(sending.BATCH_BYTES * 2, 1), 10))
    assert [len(batch) for batch in huge] == [1, 1]
    assert list(sending._batches(messages(), 10)) == []


@pytest.mark.parametrize(("rate", "batch"), [(None, 500), (20.0, 2), (0.5, 1), (1e9, 500)])
def test_a_rate_makes_small_batches(rate: float | None, batch: int) -> None:
    assert sending._at_once(target("q", "ws://h", None, 500, rate)) == batch


def test_nothing_needs_no_server() -> None:
    assert sending.send(target("q", "ws://127.0.0.1:1", None), messages()) == Tally()


def test_the_environment_of_the_driver_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHLANE_URL", "wss://there")
    monkeypatch.setenv("PUSHLANE_TOKEN", "secret")
    found = target("q", None, None)
    assert (found.url, found.token) == ("wss://there", "secret")
    assert target("q", "ws://here", "mine").token == "mine"


def test_where_a_loop_runs_already() -> None:
    async def work() -> int:
        return 7

    async def notebook() -> int:
        return sending.run(work())

    assert asyncio.run(notebook()) == 7


def test_an_error_of_the_server_has_its_code() -> None:
    async def work() -> None:
        raise TooLarge("big")

    with pytest.raises(PublishFailed, match="too_large: big") as failed:
        sending.run(work())
    assert failed.value.code == "too_large"


def test_tallies_add_up() -> None:
    tally = Tally(stored=1)
    for n in range(sending.EXAMPLES + 2):
        tally.refuse(str(n), TooLarge("big"))
    tally.add(Tally(stored=2, duplicates=3, refused={"bad_request": 1}))
    assert (tally.stored, tally.duplicates) == (3, 3)
    assert tally.refused == {"too_large": sending.EXAMPLES + 2, "bad_request": 1}
    assert [one.name for one in tally.examples] == [str(n) for n in range(sending.EXAMPLES)]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(tally), type=Tally) == tally
