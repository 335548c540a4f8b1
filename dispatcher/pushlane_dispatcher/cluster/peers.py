"""Peers: a pair of links to every other node, dialled as soon as it is there and kept up.

Links are there before anybody needs them: so who dies is noticed at once, and the first request
waits for no handshake. A node that can't be reached is tried again, at first quickly.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
import trio

from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.members import Members
from pushlane_dispatcher.cluster.remote.asker import Asker, Lost, Way
from pushlane_dispatcher.cluster.remote.shard import CUT
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import Breaker
from pushlane_dispatcher.core.departures import Unsent
from pushlane_storage.member import Member

log = logging.getLogger(__name__)


class LinkLike(Way, Protocol):
    """What is used of a link (`link.Link`)."""

    async def run(self, take: Callable[[bytes | memoryview], None]) -> None: ...

    def abort(self) -> None: ...


class Refused(Exception):
    """Nobody listens there."""


class Replaced(Exception):
    """Another process answers there."""

    def __init__(self, process: str, name: str) -> None:
        super().__init__(f"{name} ({process})")
        self.process = process
        self.name = name
        """Of its node."""


class CannotReach(Exception):
    """It can't be reached now, for whatever reason: the message says which."""


Dial = Callable[[Member, str], Awaitable[LinkLike]]
"""A link to a member, for a lane; `Refused`, `Replaced` or `CannotReach`."""


class Peer:
    """Another node: the links to it, when they are up."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.asker: Asker | None = None
        self.scope = trio.CancelScope()
        self.changed = trio.Event()
        """Its links came up, or it is no more."""
        self.gone = False
        self.dialling = False
        self.fault = ""
        """Why it can't be reached; empty: it can, or nobody has tried yet."""

    @property
    def breaker(self) -> Breaker:
        """Requests go to a node only over links that are up. Those that broke are dialled again
        after a pause, which is longer each time: one attempt, for all who wait."""
        if self.asker is not None and self.asker.up:
            return "closed"
        return "half_open" if self.dialling else "open"

    def tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()


class Peers:
    def __init__(
        self, members: Members, settings: ClusterSettings, dial: Dial, now: Callable[[], int],
        wall: Callable[[], int], lost: Lost, nursery: trio.Nursery, chance: Callable[[], float],
    ) -> None:  # fmt: skip
        self._members = members
        self._settings = settings
        self._dial = dial
        self._now = now
        self._wall = wall
        self._lost = lost
        self._nursery = nursery
        self._chance = chance
        self._peers: dict[str, Peer] = {}

    def follow(self) -> None:
        """Have links to exactly those who are there."""
        wanted = {member.process: member for member in self._members.others if member.address}
        for process, peer in list(self._peers.items()):
            if process not in wanted:
                del self._peers[process]
                peer.gone = True
                peer.scope.cancel()
                peer.tell()
        for process, member in wanted.items():
            found = self._peers.get(process)
            if found is None:
                found = self._peers[process] = Peer(member)
                self._nursery.start_soon(self._keep, found)
            found.member = member

    def asker(self, process: str) -> Asker | None:
        """Of a node that can be asked now."""
        peer = self._peers.get(process)
        asker = None if peer is None else peer.asker
        return asker if asker is not None and asker.up else None

    def find(self, process: str) -> Peer | None:
        return self._peers.get(process)

    async def wait(self, process: str) -> Asker:
        """The same, once it can be asked; `Unsent` when it is gone."""
        while True:
            peer = self._peers.get(process)
            if peer is None:
                raise Unsent(CUT, retry_ms=100)
            if peer.asker is not None and peer.asker.up:
                return peer.asker
            await peer.changed.wait()

    def up(self) -> list[str]:
        """The processes to which links are up."""
        return [process for process in self._peers if self.asker(process) is not None]

    def breakers(self) -> dict[str, Breaker]:
        """By process."""
        return {process: peer.breaker for process, peer in self._peers.items()}

    async def _keep(self, peer: Peer) -> None:
        """A task: keep the links to a node up for as long as it is there."""
        pause = self._settings.redial_base_ms
        with peer.scope:
            while not peer.gone:
                if await self._connect(peer):
                    pause = self._settings.redial_base_ms
                await trio.sleep(pause * (0.5 + self._chance() / 2) / 1000)
                pause = min(2 * pause, self._settings.redial_max_ms)

    async def _connect(self, peer: Peer) -> bool:
        """Dial, and serve until it is over. False: it could not be reached."""
        process, address = peer.member.process, peer.member.address
        peer.dialling = True
        try:
            async with self._pair(peer.member) as (data, rest):
                await self._serve(peer, data, rest)
                return True
        except Refused:
            self._failed(peer, f"nobody listens at {address}")
            self._members.refused(process)
        except Replaced as other:
            self._failed(peer, f"another process answers at {address}, of node {other.name}")
            self._members.replaced(process, other.process)
        except CannotReach as error:
            self._failed(peer, f"{address}: {error}")
        finally:
            peer.dialling = False
        return False

    def _failed(self, peer: Peer, fault: str) -> None:
        """Say so in the log, unless that was said just now."""
        if peer.fault != fault:
            peer.fault = fault
            log.warning("node %s can't be reached: %s", peer.member.name, fault)

    @asynccontextmanager
    async def _pair(self, member: Member) -> AsyncIterator[tuple[LinkLike, LinkLike]]:
        rest = await self._dial(member, "rest")
        try:
            data = await self._dial(member, "data")
        except BaseException:
            rest.abort()
            with trio.CancelScope(shield=True):
                await rest.run(lambda _: None)  # nobody else closes it
            raise
        try:
            yield data, rest
        finally:
            data.abort()
            rest.abort()

    async def _serve(self, peer: Peer, data: LinkLike, rest: LinkLike) -> None:
        asker = Asker(
            peer.member.process, data, rest, self._now, self._wall, self._lost, self._settings
        )
        id = secrets.token_hex(8)

        def begin(frame: bytes | memoryview) -> None:
            """The first frame says that both lanes are there."""
            if peer.asker is None:
                told = frames.decode_told(frame)
                if not isinstance(told, frames.Paired):
                    raise msgspec.ValidationError(f"{type(told).__name__} before Paired")
                peer.asker, peer.fault, peer.dialling = asker, "", False
                log.info("node %s is linked", peer.member.name)
                peer.tell()
            else:
                asker.take(frame)

        try:
            async with trio.open_nursery() as nursery:

                async def run(link: LinkLike, take: Callable[[bytes | memoryview], None]) -> None:
                    try:
                        await link.run(take)
                    except msgspec.DecodeError as error:
                        self._failed(peer, f"it says what this node does not understand: {error}")
                    nursery.cancel_scope.cancel()

                async def lose_patience() -> None:
                    """They are no pair for the other node when our process changed in between."""
                    await trio.sleep(self._settings.pair_ms / 1000)
                    if peer.asker is not asker:
                        nursery.cancel_scope.cancel()

                nursery.start_soon(lose_patience)
                nursery.start_soon(run, data, asker.take)
                nursery.start_soon(run, rest, begin)
                pair = frames.encode(frames.Pair(id))
                data.send(pair)
                rest.send(pair)
        finally:
            peer.asker = None
            asker.over()
