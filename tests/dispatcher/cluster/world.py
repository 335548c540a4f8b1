"""Several nodes in one process: dispatchers on one model of Cassandra, with links in memory.

A test can cut nodes off from each other, hold up what is on its way, and kill a node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import trio

from pushlane_dispatcher.cluster.cluster import Cluster, Network
from pushlane_dispatcher.cluster.peers import CannotReach, LinkLike, Refused, Replaced
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_leases.memory import InstantLeases, LeaseTable, MemoryLeases
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.member import Member
from tests.dispatcher.rig import mock_clock
from tests.storage.cassandra.model_ring import ModelRing, Tables

Serve = Callable[[LinkLike, str, str], Awaitable[None]]


class MemoryLink:
    """One end of a link."""

    def __init__(self, air: Air, own: str, other: str) -> None:
        self._air = air
        self._own, self._other = own, other
        self.peer: MemoryLink
        self._inbox: deque[tuple[float, bytes]] = deque()
        self._news = trio.Event()
        self._calls: list[Callable[[], None]] = []
        self.over = False

    def soon(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self._news.set()

    def send(self, frame: bytes) -> None:
        if not self.over and not self._air.is_cut(self._own, self._other):
            at = trio.current_time() + self._air.delay(self._own, self._other)
            self.peer._inbox.append((at, self._air.accents.get(self._own, bytes)(frame)))
            self._air.most_waiting = max(self._air.most_waiting, self.waiting)
            self.peer._news.set()

    @property
    def waiting(self) -> int:
        """What the other end has not taken."""
        return sum(len(frame) for _, frame in self.peer._inbox)

    async def room(self, below: int) -> None:
        while not self.over and self.waiting >= below:  # noqa: ASYNC110
            await trio.sleep(0.01)

    async def run(self, take: Callable[[bytes | memoryview], None]) -> None:
        while not self.over:
            while self._calls:
                self._calls.pop(0)()
            if not self._inbox:
                self._news = trio.Event()
                await self._news.wait()
                continue
            at, frame = self._inbox[0]
            if at > trio.current_time():
                await trio.sleep_until(at)
                continue
            await trio.lowlevel.checkpoint()
            if self._inbox and not self.over:
                self._inbox.popleft()
                self._air.frames += 1
                take(frame)

    def abort(self) -> None:
        for end in (self, self.peer):
            end.over = True
            end._news.set()


class Air:
    """Between the nodes."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: dict[str, MemoryNetwork] = {}
        """By address."""
        self.links: list[MemoryLink] = []
        self.cuts: set[frozenset[str]] = set()
        self.accents: dict[str, Callable[[bytes], bytes]] = {}
        """By address: what its frames are turned into, as of a node of another version."""
        self.most_delay = 0.0
        self._rng = Random(seed)
        self._last: dict[tuple[str, str], float] = {}
        self.frames = 0
        self.most_waiting = 0
        """Bytes on one link."""

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cuts

    def delay(self, one: str, other: str) -> float:
        return self._rng.random() * self.most_delay

    def cut(self, one: str, other: str) -> None:
        """Nothing gets through, and who listens for it hears of it."""
        self.cuts.add(frozenset((one, other)))
        self._abort({one, other})

    def join(self, one: str, other: str) -> None:
        self.cuts.discard(frozenset((one, other)))

    def drop(self, address: str) -> None:
        """All links of a node break."""
        for link in list(self.links):
            if address in (link._own, link._other):
                link.abort()

    def _abort(self, ends: set[str]) -> None:
        for link in list(self.links):
            if {link._own, link._other} == ends:
                link.abort()


class MemoryNetwork(Network):
    def __init__(self, air: Air, address: str) -> None:
        self._air = air
        self.address = address
        self.process: Callable[[], str] = lambda: ""
        self._serve: Serve | None = None
        self._nursery: trio.Nursery | None = None

    async def serve(self, serve: Serve) -> None:
        async with trio.open_nursery() as nursery:
            self._serve, self._nursery = serve, nursery
            self._air.nodes[self.address] = self
            try:
                await trio.sleep_forever()
            finally:
                self._serve = None
                self._air.nodes.pop(self.address, None)
                self._air.drop(self.address)

    async def dial(self, member: Member, lane: str) -> LinkLike:
        await trio.lowlevel.checkpoint()
        if self._air.is_cut(self.address, member.address):
            await trio.sleep(1)
            raise CannotReach("it does not answer")
        there = self._air.nodes.get(member.address)
        if there is None or there._serve is None or there._nursery is None:
            raise Refused
        if there is self:
            raise CannotReach("itself")
        if there.process() != member.process:
            raise Replaced(there.process(), there.address.partition(":")[0])
        here = MemoryLink(self._air, self.address, member.address)
        far = MemoryLink(self._air, member.address, self.address)
        here.peer, far.peer = far, here
        self._air.links += [here, far]
        there._nursery.start_soon(there._serve, far, self.process(), lane)
        return here


class Node:
    """A node in a task of its own: it can be stopped in good order, or killed."""

    dispatcher: Dispatcher
    store: CassandraStore
    cluster: Cluster

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.network = MemoryNetwork(world.air, f"{name}:1")
        self.address = self.network.address
        self.scope = trio.CancelScope()
        self.ready = trio.Event()
        self.leave = trio.Event()
        self.over = trio.Event()

    @property
    def process(self) -> str:
        return self.store.ownership.process

    def linked(self, *others: Node) -> bool:
        return {other.process for other in others} <= set(self.cluster.peers.up())

    async def live(self, options: dict[str, Any]) -> None:
        try:
            with self.scope:
                await self._live(**options)
        finally:
            self.over.set()
            if self in self.world.nodes:
                self.world.nodes.remove(self)

    async def _live(
        self,
        settings: Settings | None = None,
        cluster: ClusterSettings | None = None,
        bounds: Bounds | None = None,
        limits: Limits | None = None,
        about: dict[str, Any] | None = None,
        redis: bool = True,
        ring_of: Callable[[ModelRing], Any] = lambda ring: ring,
    ) -> None:
        """`about`: what it says of itself that is not so, or not usual. `ring_of`: how it sees
        Cassandra."""
        clock, ring = mock_clock(), ModelRing(self.world.tables)
        ring.wall = clock.system
        async with CassandraStore.over(
            ring_of(ring), limits or Limits(), randbytes=self.world.rng.randbytes
        ) as self.store:
            self.network.process = lambda: self.process
            member = msgspec.structs.replace(
                Member(
                    process="",
                    name=self.name,
                    address=self.address,
                    roles=("gateway", "dispatcher"),
                ),
                **(about or {}),
            )
            async with open_dispatcher(
                self.store,
                FarLeases(self.world.leases) if redis else InstantLeases(),
                clock=clock,
                owner=self.name,
                settings=settings,
                bounds=bounds,
                chance=self.world.rng.random,
                prefix=lambda: self.world.rng.randbytes(8).hex(),
                network=self.network,
                member=member,
                cluster=cluster or ClusterSettings(),
            ) as self.dispatcher:
                assert self.dispatcher.cluster is not None
                self.cluster = self.dispatcher.cluster
                self.world.nodes.append(self)
                self.ready.set()
                await self.leave.wait()
                self.world.nodes.remove(self)


class World:
    """Nodes that come and go."""

    def __init__(self, nursery: trio.Nursery, seed: int = 0) -> None:
        self.tables = Tables()
        self.leases = LeaseTable()
        self.air = Air(seed)
        self.rng = Random(f"world {seed}")
        self.nodes: list[Node] = []
        self._nursery = nursery

    async def start(self, name: str, **options: Any) -> Node:
        """One more node."""
        node = Node(self, name)
        self._nursery.start_soon(node.live, options)
        await node.ready.wait()
        return node

    def kill(self, node: Node) -> None:
        """As kill -9 does."""
        self.nodes.remove(node)
        node.store.ownership.abandon()
        self.air.drop(node.address)
        self.air.nodes.pop(node.address, None)
        node.scope.cancel()

    async def stop(self, node: Node) -> None:
        """In good order."""
        node.leave.set()
        await node.over.wait()

    async def linked(self) -> None:
        """Until all see each other, and that all take part in placement."""
        await until(lambda: all(self._is_settled(node) for node in self.nodes))

    def _is_settled(self, node: Node) -> bool:
        others = [other for other in self.nodes if other is not node]
        members = node.cluster.members.all
        return node.linked(*others) and sum(one.placed for one in members) == len(self.nodes)


class FarLeases(MemoryLeases):
    """A lease cache that outlives its process."""

    instant = None


@asynccontextmanager
async def cluster(count: int, seed: int = 0, **options: Any) -> AsyncIterator[World]:
    """A world with so many nodes, called a, b, c …, that see each other."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, seed)
        for number in range(count):
            await world.start("abcdefgh"[number], **options)
        await world.linked()
        yield world
        for node in list(world.nodes):
            await world.stop(node)
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool], seconds: float = 120) -> None:
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.05)
