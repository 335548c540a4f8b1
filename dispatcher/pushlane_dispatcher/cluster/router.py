"""The router: finds the node that has a shard, or is to have it, and opens it there.

Where a slot is, is remembered, and forgotten when somebody says otherwise. What is not known is
read from the slot's row; a slot that nobody has belongs to the node where it is placed. The first
node that is asked sends on to where it believes the slot to be; the second one takes what nobody
has, so two nodes that see different members send nobody to and fro.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import trio

from pushlane.wire.errors import PushlaneError, Unavailable
from pushlane_dispatcher.browsing.question import Look
from pushlane_dispatcher.cluster.frames import Moved
from pushlane_dispatcher.cluster.members import Members
from pushlane_dispatcher.cluster.peers import Peers
from pushlane_dispatcher.cluster.placement import placed
from pushlane_dispatcher.cluster.remote.shard import RemoteShard
from pushlane_dispatcher.cluster.serving import Elsewhere
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.queues.queues import Elsewhere as OwnedElsewhere
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import StoreError
from pushlane_storage.ownership import Ownership
from pushlane_storage.queue import QueueRow
from pushlane_storage.slot import slot_of

A = TypeVar("A")


class Route(NamedTuple):
    process: str
    epoch: int
    """Under which it has the slot; 0: it is only placed there."""


class Takeovers:
    """Slots of nodes that are gone, which were taken over here: from noticing that the owner is
    gone until a shard was open again."""

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.most = 0.0
        """The seconds of the longest one."""

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.most = max(self.most, seconds)


OpenHere = Callable[[QueueRow, int, Claims | None], Awaitable[ShardRunner]]


class Router:
    def __init__(
        self, ownership: Ownership, members: Members, peers: Peers, settings: ClusterSettings,
        open_here: OpenHere, is_here: Callable[[ShardKey], bool],
    ) -> None:  # fmt: skip
        """`is_here`: this process has the shard's slot."""
        self._ownership = ownership
        self._members = members
        self._peers = peers
        self._settings = settings
        self._open_here = open_here
        self._is_here = is_here
        self._routes: dict[int, Route] = {}
        self._remote: dict[ShardKey, RemoteShard] = {}
        self.forwarded = 0
        """Shards that were opened on other nodes."""
        self._orphans: dict[int, float] = {}
        """Slots whose owner is gone, since that was noticed."""
        self.takeovers = Takeovers()

    # For gateways here

    async def open(
        self, row: QueueRow, number: int, claims: Claims | None = None
    ) -> ShardRunner | RemoteShard:
        """A shard, here or elsewhere. `Unavailable` when nobody has it within `publish_ms`."""
        key = ShardKey(row.id, number)
        error: PushlaneError = Unavailable("no server of this queue can be reached", retry_ms=1_000)
        with trio.move_on_after(self._settings.publish_ms / 1000):
            hops = 0
            while True:
                try:
                    shard, hops = await self._try(row, number, key, hops, claims)
                except Unsent as fault:
                    error = fault
                    self._routes.pop(slot_of(key), None)
                    await trio.sleep(self._settings.reroute_ms / 1000)
                    continue
                if shard is not None:
                    return shard
                if hops > self._settings.hops:
                    await trio.sleep(self._settings.reroute_ms / 1000)
                    hops = 0
        raise error

    async def _try(
        self, row: QueueRow, number: int, key: ShardKey, hops: int, claims: Claims | None
    ) -> tuple[ShardRunner | RemoteShard | None, int]:
        """The shard; or None, and how many nodes have sent us on."""
        known = self._remote.get(key)
        if known is not None and known.running:
            return known, hops
        slot, own = slot_of(key), self._ownership.process
        process = own if self._is_here(key) else await self._locate(slot)
        if process == own:
            try:
                shard = await self._open_here(row, number, claims)
            except OwnedElsewhere as other:
                self._learn(slot, Route(other.owner.process, other.owner.epoch), own)
                return None, hops + 1
            self.opened(key)
            return shard, hops
        asker = await self._peers.wait(process)
        told = await asker.open(row, number, hops, claims or ())
        if isinstance(told, Moved):
            self._learn(slot, Route(told.process, told.epoch), process)
            return None, hops + 1
        self._orphans.pop(slot, None)
        known = self._remote.get(key)
        if known is not None and known.running:  # somebody else was quicker: one keeps the order
            asker.leave(told)
            return known, hops
        self._remote[key] = told
        self.forwarded += 1
        return told, hops

    def _learn(self, slot: int, route: Route, told_by: str) -> None:
        """From a node that was asked. A lower epoch is old news, unless the very node says it that
        was believed to have the slot."""
        known = self._routes.get(slot)
        if known is None or route.epoch >= known.epoch or known.process == told_by:
            self._routes[slot] = route

    async def _locate(self, slot: int) -> str:
        """The process that has a slot or is to have it. `Unsent`: its row still names this process,
        which has given it up."""
        route = self._routes.get(slot)
        if route is None or not self._is_there(route.process):
            route = await self._read(slot)
        if route is not None and route.process != self._ownership.process:
            self._routes[slot] = route
            return route.process
        self._routes.pop(slot, None)
        place = placed(slot, self._members.places)
        if place is None:
            raise Unsent("no server takes this queue now", retry_ms=1_000)
        if route is not None and place.process != self._ownership.process:
            raise Unsent("the queue moves to another server", retry_ms=100)
        return place.process

    async def _read(self, slot: int) -> Route | None:
        """By the slot's row; None: nobody has it who is there."""
        try:
            owner = await self._ownership.owner_of(slot)
        except StoreError as error:
            raise Unsent("the store could not answer", retry_ms=1_000) from error
        if owner is not None and not self._is_there(owner.process):
            self._orphans.setdefault(slot, trio.current_time())
            return None
        self._orphans.pop(slot, None)
        if owner is None:
            return None
        return Route(owner.process, owner.epoch)

    def opened(self, key: ShardKey) -> None:
        """A shard was opened here: perhaps in the place of a node that is gone."""
        gone_at = self._orphans.pop(slot_of(key), None)
        if gone_at is not None:
            self.takeovers.add(trio.current_time() - gone_at)

    @property
    def orphans(self) -> int:
        """Slots whose owner is gone, of those that somebody here has asked for since."""
        return len(self._orphans)

    def _is_there(self, process: str) -> bool:
        return process == self._ownership.process or self._members.find(process) is not None

    async def look(self, key: ShardKey, question: Look[A]) -> A:
        """Ask whoever has a shard open, and take it from nobody; `Unsent` when nobody can say."""
        slot = slot_of(key)
        route = self._routes.get(slot)
        if route is None or not route.epoch or not self._is_there(route.process):
            route = await self._read(slot)
        asker = None if route is None else self._peers.asker(route.process)
        if asker is None:
            raise Unsent("nobody who can be asked has it open", retry_ms=1_000)
        return await asker.look(key, question)

    def over(self, shard: RemoteShard) -> None:
        """It has stopped."""
        if self._remote.get(shard.key) is shard:
            del self._remote[shard.key]
            self._routes.pop(slot_of(shard.key), None)

    # For gateways elsewhere

    async def check(self, key: ShardKey, hops: int) -> None:
        """`serving.Elsewhere` unless the shard is ours to have."""
        if self._is_here(key):
            return
        slot = slot_of(key)
        route = await self._read(slot)
        if route is not None and route.process != self._ownership.process:
            raise Elsewhere(route.process, route.epoch)
        given_up = route is not None
        if given_up or not hops or self._members.is_leaving:
            place = placed(slot, self._members.places)
            if place is not None and place.process != self._ownership.process:
                raise Elsewhere(place.process, 0)
