"""A pair of links to every other node, kept up."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import trio

from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.peers import CannotReach, Peers, Refused, Replaced
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.departures import Unsent
from pushlane_storage.member import Member
from tests.dispatcher.cluster.world import until


class Link:
    """This node's end of a link; a test plays the other one."""

    waiting = 0

    def __init__(self, lane: str) -> None:
        self.lane = lane
        self.sent: list[bytes] = []
        self.inbox: deque[bytes] = deque()
        self.over = self.closed = False

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def soon(self, call: Callable[[], None]) -> None:
        """Nothing is asked here that gathers."""

    async def room(self, below: int) -> None:
        await trio.lowlevel.checkpoint()

    async def run(self, take: Any) -> None:
        try:
            while not self.over:
                await trio.sleep(0.01)
                while self.inbox and not self.over:
                    take(self.inbox.popleft())
        finally:
            self.closed = True

    def abort(self) -> None:
        self.over = True


class Members:
    """A roster that a test writes."""

    def __init__(self) -> None:
        self.others: list[Member] = []
        self.said: list[str] = []

    def refused(self, process: str) -> None:
        self.said.append(f"refused {process}")

    def replaced(self, process: str, by: str) -> None:
        self.said.append(f"replaced {process} by {by}")


class Scene:
    def __init__(self, nursery: trio.Nursery, **settings: Any) -> None:
        self.members = Members()
        self.links: list[Link] = []
        self.dials: list[float] = []
        self.faults: dict[str, Exception] = {}
        """By lane: why dialling fails."""
        self.pairs = True
        """The other node says that both are there."""
        roster: Any = self.members
        self.peers = Peers(
            roster, ClusterSettings(**settings), self.dial, lambda: 0, lambda: 0, lambda *_: None,
            nursery, lambda: 0.5,
        )  # fmt: skip

    async def dial(self, member: Member, lane: str) -> Link:
        self.dials.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if lane in self.faults:
            raise self.faults[lane]
        link = Link(lane)
        self.links.append(link)
        if lane == "rest" and self.pairs:
            link.inbox.append(frames.encode(frames.Paired()))
        return link

    def follow(self, *processes: str) -> None:
        self.members.others = [
            Member(process=each, name=each, address=f"{each}:1", roles=("dispatcher",))
            for each in processes
        ]
        self.peers.follow()

    async def linked(self) -> None:
        await until(lambda: self.peers.up() == ["b"])


async def test_links_are_there_and_come_back_when_they_break(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.follow("b")
        await scene.linked()
        asker = scene.peers.asker("b")
        assert asker is not None
        scene.links[1].abort()
        await until(lambda: not asker.up)
        await scene.linked()
        assert scene.peers.asker("b") is not asker
        assert [link.closed for link in scene.links] == [True, True, False, False]
        assert len(scene.dials) == 4
        nursery.cancel_scope.cancel()


async def test_who_waits_for_a_node_hears_that_it_is_there_or_gone(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.faults["rest"] = CannotReach("no way")
        scene.follow("b")
        told: list[Any] = []

        async def wait() -> None:
            try:
                told.append(await scene.peers.wait("b"))
            except Unsent as error:
                told.append(error)

        nursery.start_soon(wait)
        await trio.sleep(5)
        assert told == []
        del scene.faults["rest"]
        await until(lambda: told != [])
        assert told == [scene.peers.asker("b")]
        scene.links[0].abort()
        await trio.sleep(0.02)
        nursery.start_soon(wait)
        await trio.sleep(0.001)
        scene.follow()
        await until(lambda: len(told) == 2)
        assert isinstance(told[1], Unsent)
        with pytest.raises(Unsent):
            await scene.peers.wait("c")
        nursery.cancel_scope.cancel()


async def test_a_node_that_is_gone_is_let_go(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.follow("b")
        await scene.linked()
        asker = scene.peers.asker("b")
        scene.follow()
        await trio.sleep(1)
        assert asker is not None
        assert (asker.up, scene.peers.up(), scene.peers._peers) == (False, [], {})
        assert all(link.closed for link in scene.links)
        # Its task is over.


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Refused(), "refused b"),
        (Replaced("b2", "b"), "replaced b by b2"),
        (CannotReach(""), ""),
    ],
)
async def test_what_dialling_finds_is_told(
    autojump_clock: Any, fault: Exception, said: str
) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.faults["rest"] = fault
        scene.follow("b")
        await trio.sleep(10)
        assert set(scene.members.said) == ({said} if said else set())
        pauses = [
            round(later - at, 6) for at, later in zip(scene.dials, scene.dials[1:], strict=False)
        ]
        assert pauses == sorted(pauses), "each is longer than the last one"
        assert pauses[0] < 0.1
        assert max(pauses) <= 1
        nursery.cancel_scope.cancel()


async def test_requests_go_only_where_links_are_up(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery, redial_max_ms=60_000, redial_base_ms=60_000)
        scene.follow("b")
        assert scene.peers.breakers() == {"b": "open"}, "nobody has tried yet"
        scene.pairs = False
        await until(lambda: len(scene.links) == 2)
        assert scene.peers.breakers() == {"b": "half_open"}
        scene.links[0].inbox.append(frames.encode(frames.Paired()))
        await scene.linked()
        assert scene.peers.breakers() == {"b": "closed"}
        scene.faults["rest"] = CannotReach("no way")
        scene.links[1].abort()
        await until(lambda: scene.peers.breakers() == {"b": "open"})
        await trio.sleep(30)
        assert scene.peers.breakers() == {"b": "open"}
        assert len(scene.dials) == 2, "one attempt after each pause"
        await trio.sleep(40)
        assert len(scene.dials) == 3
        nursery.cancel_scope.cancel()


async def test_the_first_link_is_closed_when_the_second_one_fails(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.faults["data"] = CannotReach("no more")
        scene.follow("b")
        await trio.sleep(1)
        assert len(scene.links) > 1
        assert all(link.closed for link in scene.links)
        nursery.cancel_scope.cancel()


async def test_links_that_are_no_pair_for_the_other_node_are_dialled_again(
    autojump_clock: Any,
) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery, pair_ms=1_000)
        scene.pairs = False
        scene.follow("b")
        await trio.sleep(0.9)
        assert len(scene.links) == 2
        scene.pairs = True
        await scene.linked()
        assert scene.links[0].closed
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "frame",
    [
        b"\xc1",
        b"what?",
        b"\x92\x63\x01",
        frames.encode(frames.Gone(1, "x", "y"))[:-1],
        frames.encode(frames.Detach(1, 2)),
    ],
)
@pytest.mark.parametrize("lane", [0, 1])
async def test_a_node_that_says_what_nobody_understands_loses_its_links_only(
    autojump_clock: Any, caplog: pytest.LogCaptureFixture, frame: bytes, lane: int
) -> None:
    caplog.set_level(logging.WARNING)
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.follow("b")
        await scene.linked()
        asker = scene.peers.asker("b")
        assert asker is not None
        scene.links[lane].inbox.append(frame)
        await until(lambda: not asker.up)
        await scene.linked()
        assert "does not understand" in caplog.text
        nursery.cancel_scope.cancel()


async def test_a_node_that_answers_before_it_is_a_pair(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.pairs = False
        scene.follow("b")
        await until(lambda: len(scene.links) == 2)
        scene.links[0].inbox.append(frames.encode(frames.Credited(1)))
        await until(lambda: scene.links[0].closed)
        scene.pairs = True
        await scene.linked()
        nursery.cancel_scope.cancel()


async def test_every_node_with_an_address_is_dialled(autojump_clock: Any) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        scene.members.others = [
            Member(process="b", name="b", address="", roles=("dispatcher",)),
            Member(process="c", name="c", address="c:1", roles=("gateway",)),
            Member(process="d", name="d", address="d:1", roles=("dispatcher",), draining=True),
        ]
        scene.peers.follow()
        await until(lambda: scene.peers.up() == ["c", "d"])
        assert list(scene.peers._peers) == ["c", "d"]
        nursery.cancel_scope.cancel()
