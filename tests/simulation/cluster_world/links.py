"""The network between nodes: links that delay, break, and are cut for a while, one way or both.

Frames of one direction keep their order. What is sent while its direction is cut waits, as TCP has
it, and arrives when the cut is over, unless one end has given the link up by then: an end that
hears nothing for `SILENCE_MS` does. A paused node is silent, and takes nothing; a dead one has
closed its links, or is silent, too, when its whole machine is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from pushlane_dispatcher.cluster.cluster import Network
from pushlane_dispatcher.cluster.peers import CannotReach, LinkLike, Refused, Replaced
from pushlane_storage.member import Member
from tests.simulation.replicated.ring import Reply
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.cluster_world.node import ClusterNode

SILENCE_MS = 400
DIAL_MS = 300

Serve = Callable[[LinkLike, str, str], Awaitable[None]]
Take = Callable[[bytes | memoryview], None]


class Air:
    """Between all nodes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listening: dict[str, NodeNetwork] = {}
        """By address."""
        self.silent: dict[str, None] = {}
        """Addresses of machines that are gone."""
        self.frames = 0
        self._ends: dict[LinkEnd, None] = {}
        self._closing: dict[LinkEnd, None] = {}
        """Ends that are over, whose peers can't hear that before a cut is."""
        self._cuts: dict[tuple[str, str], int] = {}
        """By the names of nodes, from and to: how many cuts there are."""

    def is_cut(self, start: ClusterNode, end: ClusterNode) -> bool:
        return (start.member, end.member) in self._cuts

    def cut(self, start: str, end: str, ms: int) -> None:
        """Nothing gets from one node to another for a while."""
        way = start, end
        self._cuts[way] = self._cuts.get(way, 0) + 1
        for link in self._of(lambda link: (link.own.member, link.peer.own.member) == way):
            link.peer.watch()
        self.world.after(ms, self._join, way)

    def _join(self, way: tuple[str, str]) -> None:
        if way not in self._cuts:
            return
        self._cuts[way] -= 1
        if not self._cuts[way]:
            del self._cuts[way]
            self._go_on(way)

    def _go_on(self, way: tuple[str, str]) -> None:
        for link in [*self._ends, *self._closing]:
            if (link.own.member, link.peer.own.member) == way:
                self._closing.pop(link, None)
                link.go_on()

    def heal(self) -> None:
        """All cuts are over."""
        ways, self._cuts = list(self._cuts), {}
        for way in ways:
            self._go_on(way)

    def fell_silent(self, node: ClusterNode) -> None:
        """It was paused, or its machine is gone: the others notice after a while."""
        for link in self._of(lambda link: link.own is node):
            link.peer.watch()

    def break_one(self) -> None:
        """A link breaks, and both ends hear of it."""
        ends = self._of(lambda link: True)
        if ends:
            self.world.fault("link.broken")
            end = self.world.rng.choice(ends)
            end.over_now()
            end.peer.over_now()

    def died(self, node: ClusterNode, machine: bool) -> None:
        """`machine`: nothing is left that could say so."""
        listening = self.listening.get(node.address)
        if listening is not None and listening.node is node:
            del self.listening[node.address]
        if machine:
            self.silent[node.address] = None
            self.fell_silent(node)
        for link in self._of(lambda link: link.own is node):
            if not machine:
                link.close()
            link.over_now()

    def join(self, link: LinkEnd) -> None:
        self._ends[link] = None

    def leave(self, link: LinkEnd) -> None:
        self._ends.pop(link, None)

    def hold(self, link: LinkEnd) -> None:
        """Something of it waits for a cut to end."""
        if link.over:
            self._closing[link] = None

    def _of(self, wanted: Callable[[LinkEnd], bool]) -> list[LinkEnd]:
        return [link for link in self._ends if wanted(link)]


class LinkEnd:
    """One end of a link, and the way from it to its peer."""

    peer: LinkEnd

    def __init__(self, air: Air, own: ClusterNode) -> None:
        self.own = own
        self.over = False
        self.waiting = 0
        """Bytes that are on their way, or held up."""
        self._air = air
        self._world = air.world
        self._take: Take | None = None
        self._inbox: deque[bytes] = deque()
        self._ended = trio.Event()
        self._room = trio.Event()
        self._at = 0
        self._way: deque[bytes | None] = deque()
        """What waits for a cut to end; None: that this end has closed."""
        self._heard_at = air.world.now
        air.join(self)

    # What the product sees

    def send(self, frame: bytes) -> None:
        if not self.over:
            self.waiting += len(frame)
            self.own.send_now(self._depart, bytes(frame))

    def soon(self, call: Callable[[], None]) -> None:
        """After all else that happens at this moment."""
        self._world.after(0, self.own.take, self._gather, call)

    def _gather(self, call: Callable[[], None]) -> None:
        if not self.over:
            call()

    async def room(self, below: int) -> None:
        while not self.over and self.waiting >= below:
            await self._room.wait()

    async def run(self, take: Take) -> None:
        self._take = take
        while self._inbox and not self.over:
            take(self._inbox.popleft())
        await self._ended.wait()

    def abort(self) -> None:
        if not self.over:
            self.over_now()
            self.own.send_now(self._depart, None)

    # On the way

    def close(self) -> None:
        """Its process is dead: the machine says so."""
        self._depart(None)

    def _depart(self, frame: bytes | None) -> None:
        self._at = max(self._at, self._world.now + self._world.latency())
        self._world.after(self._at - self._world.now, self._travel, frame)

    def _travel(self, frame: bytes | None) -> None:
        self._way.append(frame)
        self.go_on()

    def go_on(self) -> None:
        """What waits gets through, unless the way is cut."""
        while self._way and not self._air.is_cut(self.own, self.peer.own):
            frame = self._way.popleft()
            self.waiting = max(0, self.waiting - len(frame or b""))
            self._make_room()
            self.peer.own.take(self.peer._arrive, frame)
        if self._way:
            self._air.hold(self)

    def _arrive(self, frame: bytes | None) -> None:
        self._heard_at = self._world.now
        if frame is None:
            self.over_now()
        elif not self.over:
            self._air.frames += 1
            if self._take is None:
                self._inbox.append(frame)
            else:
                self._take(frame)

    # Its end

    def over_now(self) -> None:
        """This end has given it up."""
        self.over = True
        self.waiting = 0
        self._air.leave(self)
        if self._way:
            self._air.hold(self)
        self._ended.set()
        self._make_room()

    def _make_room(self) -> None:
        self._room.set()
        self._room = trio.Event()

    def watch(self) -> None:
        """Perhaps nothing comes any more: beats would."""
        self._world.after(SILENCE_MS, self._judge, self._world.now)

    def _judge(self, since: int) -> None:
        far = self.peer.own
        silent = self._air.is_cut(far, self.own) or far.is_away
        if silent and not self.over and self._heard_at <= since:
            self._world.fault("link.silent")
            self.own.take(self.abort)
        elif silent and not self.over:
            self.watch()


class NodeNetwork(Network):
    """The network as one node has it (`cluster.Network`)."""

    def __init__(self, air: Air, node: ClusterNode) -> None:
        self.node = node
        self._air = air
        self._world = air.world
        self._serve: Serve | None = None
        self._nursery: trio.Nursery | None = None

    async def serve(self, serve: Serve) -> None:
        async with trio.open_nursery() as nursery:
            self._serve, self._nursery = serve, nursery
            self._air.silent.pop(self.node.address, None)
            self._air.listening[self.node.address] = self
            try:
                await trio.sleep_forever()
            finally:
                self._serve = None
                if self._air.listening.get(self.node.address) is self:
                    self._air.died(self.node, machine=False)

    async def dial(self, member: Member, lane: str) -> LinkLike:
        reply = Reply()
        self.node.send(self._knock, member, lane, reply)
        link: LinkEnd = await reply.wait()
        return link

    def _knock(self, member: Member, lane: str, reply: Reply) -> None:
        """It arrives at the other one's address."""
        there = self._air.listening.get(member.address)
        if there is None and member.address not in self._air.silent:
            self.node.receive(reply, None, Refused())
        elif there is None or there.node.is_away or self._is_cut(there.node):
            self._world.fault("link.unreachable")
            late = CannotReach("it does not answer")
            self._world.after(DIAL_MS, self.node.take, reply, None, late)
        elif there.node.process != member.process:
            self._world.fault("link.replaced")
            self.node.receive(reply, None, Replaced(there.node.process, there.node.address))
        else:
            self.node.receive(self._linked, there, lane, reply)

    def _is_cut(self, there: ClusterNode) -> bool:
        return self._air.is_cut(self.node, there) or self._air.is_cut(there, self.node)

    def _linked(self, there: NodeNetwork, lane: str, reply: Reply) -> None:
        """Both know each other."""
        if there._serve is None or there._nursery is None or there.node.dead:
            reply(None, Refused())
            return
        here, far = LinkEnd(self._air, self.node), LinkEnd(self._air, there.node)
        here.peer, far.peer = far, here
        there._nursery.start_soon(there._serve, far, self.node.process, lane)
        reply(here)
