"""Where shards are, and where they are opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.browsing.question import GetStats
from pushlane_dispatcher.cluster.frames import Moved
from pushlane_dispatcher.cluster.placement import Place
from pushlane_dispatcher.cluster.router import Route, Router
from pushlane_dispatcher.cluster.serving import Elsewhere
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.queues.queues import Elsewhere as OwnedElsewhere
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import StoreUnknown
from pushlane_storage.member import Member, Owner
from pushlane_storage.slot import slot_of
from tests.dispatcher.cluster.pair import KEY, ROW

SLOT = slot_of(KEY)


class Remote:
    """A shard on another node."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.key = KEY
        self.running = True


class Node:
    """Another node, as an asker sees it."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.asked: list[int] = []
        """With how many hops."""
        self.left: list[Any] = []
        """Shards that nobody wants."""
        self.answer: Callable[[int], Any] = lambda _hops: Remote(process)
        self.pause = 0.0

    async def open(self, row: Any, number: int, hops: int, claims: Any) -> Any:
        self.asked.append(hops)
        await trio.sleep(self.pause)
        told = self.answer(hops)
        if isinstance(told, Exception):
            raise told
        return told

    def leave(self, shard: Any) -> None:
        self.left.append(shard)

    async def look(self, key: ShardKey, question: Any) -> Any:
        return self.process


class World:
    """What a router knows the rest by."""

    def __init__(self, **settings: Any) -> None:
        self.process = "a"
        self.nodes = {process: Node(process) for process in "bc"}
        self.owner: Owner | None = None
        """By the slot's row."""
        self.reads = 0
        self.down = False
        self.here: set[ShardKey] = set()
        self.opened_here = 0
        self.open_here: Callable[[], Awaitable[Any]] | None = None
        self.is_leaving = False
        self.places = [Place("b", "b")]
        me: Any = self
        self.router = Router(
            me, me, me, ClusterSettings(**settings), self._open_here, self.here.__contains__
        )

    async def owner_of(self, slot: int) -> Owner | None:
        assert slot == SLOT
        await trio.lowlevel.checkpoint()
        self.reads += 1
        if self.down:
            raise StoreUnknown("it does not answer")
        return self.owner

    def find(self, process: str) -> Member | None:
        return Member(process=process, name=process) if process in self.nodes else None

    async def wait(self, process: str) -> Node:
        await trio.lowlevel.checkpoint()
        if process not in self.nodes:
            raise Unsent("it is gone")
        return self.nodes[process]

    def asker(self, process: str) -> Node | None:
        return self.nodes.get(process)

    async def _open_here(self, row: Any, number: int, claims: Any) -> Any:
        await trio.lowlevel.checkpoint()
        self.opened_here += 1
        return "here" if self.open_here is None else await self.open_here()

    async def open(self) -> Any:
        return await self.router.open(ROW, 0, ())

    def has(self, process: str, epoch: int) -> None:
        self.owner = Owner(process, process, epoch)


async def test_nobody_has_it_so_its_place_gets_it(autojump_clock: Any) -> None:
    world = World()
    assert (await world.open()).process == "b"
    assert world.nodes["b"].asked == [0]
    assert (await world.open()).process == "b"
    assert (world.nodes["b"].asked, world.reads) == ([0], 1), "an open one is not opened again"


async def test_its_owner_has_it_wherever_it_belongs(autojump_clock: Any) -> None:
    world = World()
    world.has("c", 5)
    assert (await world.open()).process == "c"
    assert world.nodes["b"].asked == []


async def test_it_is_here(autojump_clock: Any) -> None:
    world = World()
    world.here.add(KEY)
    world.has("c", 5)
    assert await world.open() == "here"
    assert world.reads == 0


async def test_it_belongs_here(autojump_clock: Any) -> None:
    world = World()
    world.places = [Place("a", "a")]
    assert await world.open() == "here"


async def test_what_was_given_up_is_not_claimed_again(autojump_clock: Any) -> None:
    """Its row still names this node, and so does another one that has just read it."""
    world = World(reroute_ms=20)
    world.has("a", 5)

    def released() -> None:
        world.owner = None
        world.nodes["b"].answer = asked

    asked, world.nodes["b"].answer = world.nodes["b"].answer, lambda _: Moved(1, "a", 5)
    world.router._routes[SLOT] = Route("b", 0)
    async with trio.open_nursery() as nursery:
        answers: list[Any] = []

        async def open_it() -> None:
            answers.append(await world.open())

        nursery.start_soon(open_it)
        await trio.sleep(0.5)
        assert (answers, world.opened_here) == ([], 0)
        released()
    assert (answers[0].process, world.opened_here) == ("b", 0)


@pytest.mark.parametrize("believed", [False, True])
async def test_somebody_else_has_it_after_all(autojump_clock: Any, believed: bool) -> None:
    world = World()
    world.places = [Place("a", "a")]
    if believed:  # it was ours a moment ago
        world.here.add(KEY)

    async def lost() -> Any:
        world.here.clear()
        world.has("c", 6)
        raise OwnedElsewhere("q", Owner("c", "c", 6))

    world.open_here = lost
    assert (await world.open()).process == "c"
    assert world.nodes["c"].asked == [1]


async def test_a_node_sends_on_to_where_it_is(autojump_clock: Any) -> None:
    world = World()
    world.nodes["b"].answer = lambda _: Moved(1, "c", 7)
    assert (await world.open()).process == "c"
    assert (world.nodes["b"].asked, world.nodes["c"].asked) == ([0], [1])
    assert world.router._routes[SLOT] == Route("c", 7)


async def test_old_news_change_no_route(autojump_clock: Any) -> None:
    world = World()
    world.router._routes[SLOT] = Route("c", 7)
    world.router._learn(SLOT, Route("b", 6), "x")
    assert world.router._routes[SLOT] == Route("c", 7)
    world.router._learn(SLOT, Route("b", 8), "x")
    assert world.router._routes[SLOT] == Route("b", 8)


async def test_the_owner_itself_knows_that_it_is_no_longer(autojump_clock: Any) -> None:
    """It gave the slot back: then nobody's epoch is higher, and it must not take it again."""
    world = World()
    world.router._routes[SLOT] = Route("c", 7)
    world.nodes["c"].answer = lambda _: Moved(1, "b", 0)
    assert (await world.open()).process == "b"
    assert (world.nodes["c"].asked, world.nodes["b"].asked) == ([0], [1])


async def test_nodes_that_send_to_and_fro_are_not_asked_without_end(autojump_clock: Any) -> None:
    world = World(publish_ms=1_000)
    world.nodes["b"].answer = lambda _: Moved(1, "c", 0)
    world.nodes["c"].answer = lambda _: Moved(1, "b", 0)
    began = trio.current_time()
    with pytest.raises(Unavailable):
        await world.open()
    assert trio.current_time() - began == pytest.approx(1, abs=0.01)
    asked = len(world.nodes["b"].asked) + len(world.nodes["c"].asked)
    assert asked <= 4 * 1_000 / 50 + 4


async def test_a_row_of_who_is_gone_counts_for_nothing(autojump_clock: Any) -> None:
    world = World()
    world.has("gone", 3)
    world.router._routes[SLOT] = Route("gone", 3)
    assert (await world.open()).process == "b"
    world.router.opened(KEY)
    assert world.router.takeovers.count == 0, "it was taken over elsewhere"


async def test_a_node_that_goes_while_it_is_asked(autojump_clock: Any) -> None:
    world = World()
    world.has("c", 5)

    def go(_: int) -> Any:
        del world.nodes["c"]
        return Unsent("the links broke")

    world.nodes["c"].answer = go
    assert (await world.open()).process == "b"


async def test_a_store_that_does_not_answer_is_asked_again(autojump_clock: Any) -> None:
    world = World()
    world.down = True
    async with trio.open_nursery() as nursery:
        found: list[Any] = []

        async def ask() -> None:
            found.append(await world.open())

        nursery.start_soon(ask)
        await trio.sleep(5)
        assert found == []
        world.down = False
    assert found[0].process == "b"


async def test_what_a_node_refuses_is_refused(autojump_clock: Any) -> None:
    world = World()
    world.nodes["b"].answer = lambda _: NotFound("there is no queue q")
    with pytest.raises(NotFound):
        await world.open()


async def test_nobody_is_there(autojump_clock: Any) -> None:
    world = World(publish_ms=2_000)
    world.places = []
    with pytest.raises(PushlaneError) as raised:
        await world.open()
    assert raised.value.code == "unavailable"


async def test_two_who_open_it_at_once_get_the_same_one(autojump_clock: Any) -> None:
    world = World()
    world.nodes["b"].pause = 1
    found: list[Any] = []

    async def ask() -> None:
        found.append(await world.open())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    assert found[0] is found[1]
    assert world.router.forwarded == 1
    assert len(world.nodes["b"].left) == 1, "of the two that were opened one is not wanted"


async def test_one_that_has_stopped_is_looked_for_anew(autojump_clock: Any) -> None:
    world = World()
    world.has("c", 5)
    shard = await world.open()
    shard.running = False
    world.router.over(shard)
    assert (world.router._remote, world.router._routes) == ({}, {})
    world.has("b", 6)
    assert (await world.open()).process == "b"
    world.router.over(shard)  # once more: that was the old one
    assert KEY in world.router._remote


async def test_who_only_looks_takes_it_from_nobody(autojump_clock: Any) -> None:
    world = World()
    with pytest.raises(Unsent):
        await world.router.look(KEY, GetStats())
    world.has("c", 5)
    found: Any = await world.router.look(KEY, GetStats())
    assert found == "c"
    world.down = True
    with pytest.raises(Unsent):
        await world.router.look(KEY, GetStats())


async def test_who_may_have_it_when_another_node_asks(autojump_clock: Any) -> None:
    world = World()
    with pytest.raises(Elsewhere) as raised:
        await world.router.check(KEY, 0)
    assert (raised.value.process, raised.value.epoch) == ("b", 0)
    await world.router.check(KEY, 1)  # the second one that is asked takes it
    world.is_leaving = True
    with pytest.raises(Elsewhere):
        await world.router.check(KEY, 1)
    world.is_leaving = False
    world.has("c", 5)
    with pytest.raises(Elsewhere) as raised:
        await world.router.check(KEY, 1)
    assert (raised.value.process, raised.value.epoch) == ("c", 5)
    world.has("a", 5)  # it was given up, and its row does not say so yet
    with pytest.raises(Elsewhere) as raised:
        await world.router.check(KEY, 1)
    assert (raised.value.process, raised.value.epoch) == ("b", 0)
    world.has("c", 5)
    world.here.add(KEY)
    await world.router.check(KEY, 0)
