"""Settles that go together: each is answered as if it had gone alone."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.frames import decode_asked, encode
from pushlane_dispatcher.cluster.remote import settles
from pushlane_dispatcher.cluster.remote.settles import Settles
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.runs import runs_of_numbers
from tests.dispatcher.cluster.pair import FakeHost, FakeShard, Heard, Pair, attach


class Shard:
    """A remote shard, as far as settles go."""

    def __init__(self, ref: int = 1) -> None:
        self.ref = ref
        self.gone: list[Any] = []

    def settled(self, prefix: str, generation: int, receipts: Any) -> None:
        self.gone += receipts


class Scene:
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.sent: list[Any] = []
        self.got: list[Any] = []
        self.settles = Settles(self.calls.append, self._request, self.sent.append)

    def _request(self, got: Any) -> int:
        self.got.append(got)
        return len(self.got)

    def add(
        self, shard: Any, *receipts: Any, act: Act = START, generation: int = 1,
        silently: bool = True, prefix: str = "p",
    ) -> Heard:  # fmt: skip
        heard = Heard()
        self.settles.add(shard, prefix, generation, act, receipts, heard, silently)
        return heard

    @property
    def asked(self) -> list[list[Any]]:
        return [frame.receipts for frame in self.sent]

    def write(self) -> None:
        calls, self.calls[:] = [*self.calls], []
        for call in calls:
            call()


def p(low: int, high: int = 0) -> tuple[str, int, int]:
    return "p", low, high or low


def test_what_says_the_same_goes_in_one_frame_before_the_next_write() -> None:
    scene, shard = Scene(), Shard()
    heard = [scene.add(shard, p(n)) for n in (1, 2, 3, 7)]
    assert (scene.sent, len(scene.calls)) == ([], 1)
    scene.write()
    assert scene.asked == [[p(1, 3), p(7)]]
    scene.got[0](frames.Settled(1))
    tickets = [ticket for one in heard for ticket in one.all]
    assert [(ticket.lost, ticket.duplicate) for ticket in tickets] == [([], [])] * 4
    scene.write()
    assert len(scene.sent) == 1


def test_each_hears_what_it_lost_itself() -> None:
    scene, shard = Scene(), Shard()
    heard = [scene.add(shard, p(1)), scene.add(shard, p(2, 4)), scene.add(shard, p(5))]
    scene.write()
    scene.got[0](frames.Settled(1, [p(1), p(3, 4)], [p(4, 5)]))
    tickets = [one.all[0] for one in heard]
    assert [ticket.lost for ticket in tickets] == [[p(1)], [p(3, 4)], []]
    assert [ticket.duplicate for ticket in tickets] == [[], [p(4)], [p(5)]]
    assert shard.gone == [p(1), p(3, 4)]


def test_who_acks_has_none_of_it_any_more() -> None:
    scene, shard = Scene(), Shard()
    scene.add(shard, p(1), act=ACK)
    scene.add(shard, p(2), act=ACK)
    scene.write()
    scene.got[0](frames.Settled(1, [p(1)]))
    assert shard.gone == [p(1, 2)]


def test_all_of_them_fail_together() -> None:
    scene, shard = Scene(), Shard()
    heard = [scene.add(shard, p(1)), scene.add(shard, p(2))]
    scene.write()
    error = Unavailable("gone")
    scene.got[0](error)
    assert [one.all for one in heard] == [[error]] * 2


@pytest.mark.parametrize(
    "other",
    [
        {"act": ACK}, {"act": Act("nack", delay_ms=5)}, {"generation": 2}, {"silently": False},
        {"prefix": "q"},
    ],
)  # fmt: skip
def test_what_says_something_else_comes_behind(other: dict[str, Any]) -> None:
    scene, shard = Scene(), Shard()
    scene.add(shard, p(1))
    scene.add(shard, (other.get("prefix", "p"), 2, 2), **other)
    scene.add(shard, p(3))
    scene.write()
    assert [receipts[0][1:] for receipts in scene.asked] == [(1, 1), (2, 2), (3, 3)]


def test_so_does_what_is_said_of_another_shard() -> None:
    scene = Scene()
    scene.add(Shard(1), p(1))
    scene.add(Shard(2), p(2))
    scene.write()
    assert [frame.ref for frame in scene.sent] == [1, 2]


def test_a_receipt_that_is_settled_twice_is_asked_about_twice() -> None:
    scene, shard = Scene(), Shard()
    for run in (p(1, 3), p(3), p(2), p(3)):
        scene.add(shard, run, act=ACK)
    scene.write()
    assert scene.asked == [[p(1, 3)], [p(3)], [p(2, 3)]]


def test_what_names_several_runs_or_none_goes_alone() -> None:
    scene, shard = Scene(), Shard()
    heard = scene.add(shard, p(1), ("z", 2, 2))
    scene.add(shard, p(3))
    scene.add(shard)
    scene.add(shard, p(4))
    scene.write()
    assert scene.asked == [[p(1), ("z", 2, 2)], [p(3)], [], [p(4)]]
    scene.got[0](frames.Settled(1, [("z", 2, 2)]))
    assert heard.all[0].lost == [("z", 2, 2)]


def test_what_goes_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settles, "MOST", 5)
    scene, shard = Scene(), Shard()
    for run in (p(1, 3), p(4), p(5), p(6), p(7, 17), p(18)):
        scene.add(shard, run)
    scene.write()
    assert scene.asked == [[p(1, 5)], [p(6)], [p(7, 17)], [p(18)]]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 5)), max_size=20),
    st.sets(st.integers(1, 45)), st.sets(st.integers(1, 20)),
)  # fmt: skip
def test_each_is_answered_as_if_it_had_gone_alone(
    runs: list[tuple[int, int]], held: set[int], writes: set[int]
) -> None:
    """The first ack of what is held counts; the owner takes them in the order asked."""
    scene, shard = Scene(), Shard()
    heard = []
    for number, (low, more) in enumerate(runs):
        heard.append(scene.add(shard, p(low, low + more), act=ACK))
        if number in writes:
            scene.write()
    scene.write()

    def answer(left: set[int], asked: list[Any]) -> list[Any]:
        lost = []
        for _, low, high in asked:
            numbers = [n for n in range(low, high + 1) if n not in left]
            lost += runs_of_numbers("p", numbers)
            left.difference_update(range(low, high + 1))
        return lost

    left = {*held}
    for got, asked in zip(scene.got, scene.asked, strict=True):
        got(frames.Settled(1, answer(left, asked)))
    left = {*held}
    alone = [answer(left, [p(low, low + more)]) for low, more in runs]
    assert [one.all[0].lost for one in heard] == alone


async def test_everything_else_that_is_asked_goes_behind_them(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        pair = Pair(FakeHost(nursery, FakeShard()))
        shard = await pair.open()
        ear = await attach(pair, shard, explicit=True)
        heard = Heard()
        settle = partial(shard.settle, "p0", 1, START, answer=heard, silently=True)
        settle(receipts=[("p0", 1, 1)])
        settle(receipts=[("p0", 2, 2)])
        shard.credit("p0", ear, 5)
        settle(receipts=[("p0", 3, 3)])
        shard.detach("p0", ear, 1_000)
        asked = [decode_asked(frame) for frame in pair.asked["rest"].frames]
        kinds = [type(frame).__name__ for frame in asked]
        assert kinds == ["Settle", "SetCredit", "Settle", "Detach"]


async def test_those_that_have_not_gone_when_the_links_break_are_answered(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        pair = Pair(FakeHost(nursery, FakeShard()))
        shard = await pair.open()
        await attach(pair, shard, explicit=True)
        heard = Heard()
        shard.settle("p0", 1, START, [("p0", 1, 1)], heard, silently=True)
        shard.settle("p0", 1, START, [("p0", 2, 2)], heard, silently=True)
        pair.over()
        assert [type(told) for told in heard.all] == [Unavailable] * 2
        assert pair.kept == {}


async def test_what_is_held_is_said_once_before_the_next_write(autojump_clock: Any) -> None:
    """The newest word counts, a delivery says it as well, and a credit is confirmed behind it."""
    async with trio.open_nursery() as nursery:
        owner = FakeShard()
        pair = Pair(FakeHost(nursery, owner))
        shard = await pair.open()
        ear = await attach(pair, shard)
        sink = owner.sinks["p0"]
        sink.holds(3, 0)
        sink.holds(2, 1)
        await pair.settle_down()
        assert ear.said == [("holds", 2)]
        sink.holds(1, 0)
        owner.push("p0", 1, b"1")
        await pair.settle_down()
        assert ear.said[1:] == [("deliver", b"1")]
        sink.holds(4, 0)
        pair.serving.take(encode(frames.SetCredit(sink.number, 99, 5)))
        told = [frames.decode_told(frame) for frame in pair.told["data"].frames]
        assert [type(one) for one in told] == [frames.Holds, frames.Credited]
        sink.holds(5, 0)
        sink.ended("unavailable", "stopped", [])
        await pair.settle_down()
        assert ear.said[2:] == [("holds", 4), ("ended", "unavailable", [])]
