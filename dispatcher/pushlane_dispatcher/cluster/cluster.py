"""The cluster, as one node has it: who is there, links to all, where shards are, what others ask.

dispatcher ──▶ Router ──▶ Peers ──▶ Asker ══link══▶ Serving ──▶ dispatcher of another node
                 │          ▲
                 └─ Members ┘   (who is there, who is dead, where slots belong)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol

import msgspec
import trio

from pushlane.wire.errors import Conflict, NotFound
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.counters import LinkCounters
from pushlane_dispatcher.cluster.members import Members
from pushlane_dispatcher.cluster.observer import Observer
from pushlane_dispatcher.cluster.peers import LinkLike, Peers
from pushlane_dispatcher.cluster.placement import placed, to_give_up
from pushlane_dispatcher.cluster.rates import Rates
from pushlane_dispatcher.cluster.remote.shard import RemoteShard, Sent
from pushlane_dispatcher.cluster.repeats import Repeats
from pushlane_dispatcher.cluster.router import Router
from pushlane_dispatcher.cluster.serving import Elsewhere, Serving
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import Load, Report
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.queues.queues import Elsewhere as OwnedElsewhere
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.shards import Shards
from pushlane_storage.bucket import ShardKey
from pushlane_storage.member import DISPATCHER, Member
from pushlane_storage.ownership import Ownership
from pushlane_storage.queue import QueueRow
from pushlane_storage.slot import SLOTS, slot_of

log = logging.getLogger(__name__)


class Network(Protocol):
    """How nodes reach each other."""

    async def dial(self, member: Member, lane: str) -> LinkLike:
        """A link to a node; `Refused`, `Replaced` or `CannotReach` (peers.py)."""
        ...

    async def serve(self, serve: Callable[[LinkLike, str, str], Awaitable[None]]) -> None:
        """A task: hand each link that another node dialled to `serve`, with the node's process and
        the lane."""
        ...

    def ahead_ms(self, process: str) -> int | None:
        """By how much a process's clock is ahead of ours; None: nobody knows."""
        return None

    def numbers(self) -> LinkCounters | None:
        """What is counted on links; None: nothing is."""
        return None


class Cluster:
    def __init__(
        self, ownership: Ownership, settings: ClusterSettings, member: Member, network: Network,
        shards: Shards, now: Callable[[], int], wall: Callable[[], int],
        chance: Callable[[], float], resume_ms: int, nursery: trio.Nursery,
        open_queue: Callable[[str, str], Awaitable[object]],
        row_of: Callable[[str, str, str], Awaitable[QueueRow]],
        stopped: Callable[[QueueRow], None],
    ) -> None:  # fmt: skip
        """`member` is what others see of this node.

        `open_queue` opens a queue for callers here, `row_of` reads the row of a queue with an
        id, `stopped` is told of each remote shard that is gone."""
        self._ownership = ownership
        self._settings = settings
        self._member = member
        self._network = network
        self._shards = shards
        self._now = now
        self._wall = wall
        self._resume_ms = resume_ms
        self._nursery = nursery
        self._row_of = row_of
        self._stopped = stopped
        self.start_soon = nursery.start_soon
        self.repeats = Repeats(settings, open_queue, nursery.start_soon, wall)
        self.members = Members(ownership, settings, self._members_changed)
        self.peers = Peers(
            self.members, settings, network.dial, now, wall, self._lost, nursery, chance
        )
        self.router = Router(
            ownership, self.members, self.peers, settings, self._open, shards.has_slot
        )
        self._placed_as = ""
        """The process that others have reached: after a fence it is another one."""
        self.observer = Observer(
            ownership, self.members, self.peers, settings, self._report, shards.lateness,
            network.ahead_ms, network.numbers,
        )  # fmt: skip
        self.report = self.observer.report
        self._pairs: dict[str, _Pair] = {}
        self._servings: dict[Serving, None] = {}
        self._stopping = False
        self.yield_session: Callable[[str, int], bytes | None] = lambda _session, _term: None
        """What the gateway here does when a client goes on with its session at another node."""
        self.moves = 0
        """Slots that were given up because they belong elsewhere."""

    async def run(self) -> None:
        """A task."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._network.serve, self.serve)
            self._ownership.introduce(self._member)
            nursery.start_soon(self.members.run)
            nursery.start_soon(self._rebalance)
            nursery.start_soon(self.observer.run)

    def _members_changed(self) -> None:
        self.peers.follow()
        if not list(self.members.others):
            self._be_placed()  # there is nobody who could have reached it

    def _be_placed(self) -> None:
        """Take part in placement: others can reach this node, as the process that it is now."""
        process = self._ownership.process
        if self._placed_as != process:
            self._placed_as = process
            self._show(placed=True)

    def _show(self, **changes: Any) -> None:
        """Tell the others something else of this node."""
        self._member = msgspec.structs.replace(self._member, **changes)
        self._ownership.introduce(self._member)

    # Gateways here

    def _lost(self, shard: RemoteShard, sent: list[Sent]) -> None:
        self.router.over(shard)
        self._stopped(shard.row)
        if sent:
            self.repeats.add(shard, sent)

    # Gateways elsewhere

    async def serve(self, link: LinkLike, process: str, lane: str) -> None:
        """Serve a link that another node dialled, until it is over."""
        pair: _Pair | None = None

        def take(frame: bytes | memoryview) -> None:
            nonlocal pair
            if pair is None:
                asked = frames.decode_asked(frame)
                if not isinstance(asked, frames.Pair):
                    raise msgspec.ValidationError(f"{type(asked).__name__} before Pair")
                pair = self._pair(asked.id, link, process, lane)
            elif pair.serving is None:
                raise msgspec.ValidationError("a request before both links are there")
            else:
                pair.serving.take(frame)

        try:
            await link.run(take)
        except msgspec.DecodeError as error:
            member = self.members.find(process)
            log.warning(
                "the links of node %s are cut: it says what this node does not understand: %s",
                process if member is None else member.name, error,
            )  # fmt: skip
        finally:
            if pair is not None:
                self._part(pair)

    def _pair(self, id: str, link: LinkLike, process: str, lane: str) -> _Pair:
        pair = self._pairs.setdefault(f"{process} {id}", _Pair(f"{process} {id}"))
        pair.links[lane] = link
        if len(pair.links) == 2:
            data, rest = pair.links["data"], pair.links["rest"]

            def cut(why: str) -> None:
                log.warning("the links of %s are cut: %s", process, why)
                data.abort()
                rest.abort()

            pair.serving = Serving(
                self, data, rest, self._now, self._wall, self._settings, self._resume_ms, cut
            )
            self._servings[pair.serving] = None
            self._be_placed()
            rest.send(frames.encode(frames.Paired()))
        return pair

    def _part(self, pair: _Pair) -> None:
        """One link of a pair is over: so is the other."""
        self._pairs.pop(pair.id, None)
        for link in pair.links.values():
            link.abort()
        if pair.serving is not None and pair.serving in self._servings:
            del self._servings[pair.serving]
            pair.serving.over()

    def take_over(self, key: ShardKey, epoch: int, piece: bytes, last: bool) -> None:
        self._shards.handed.take(key, epoch, piece, self._wall(), last=last)

    def running(self, key: ShardKey) -> ShardRunner | None:
        return self._shards.running(key)

    async def open_for_peer(
        self, tenant: str, queue: str, key: ShardKey, hops: int, claims: Claims
    ) -> ShardRunner:
        await self.router.check(key, hops)
        row = await self._row_of(tenant, queue, key.queue_id)
        if not 0 <= key.shard < row.config.shards:
            raise NotFound(f"queue {queue} has no shard {key.shard}")
        try:
            runner = await self._open(row, key.shard, claims)
        except OwnedElsewhere as other:
            raise Elsewhere(other.owner.process, other.owner.epoch) from None
        self.router.opened(key)
        return runner

    async def _open(self, row: QueueRow, number: int, claims: Claims | None) -> ShardRunner:
        """A shard, here. A node that drains takes no slot back that it just gave up; one that only
        serves clients has one at most for a moment, when it deletes a queue that nobody has open.
        """
        if DISPATCHER not in self._member.roles:
            raise Unsent("this server only serves clients", retry_ms=100)
        if self.members.is_leaving and not self._shards.has_slot(ShardKey(row.id, number)):
            raise Unsent("this server drains", retry_ms=100)
        return await self._shards.open(row, number, claims)

    def shard_stopped(self, runner: ShardRunner) -> None:
        """Of ours: those who use it elsewhere hear of it."""
        for serving in list(self._servings):
            serving.stopped(runner)

    # For operators

    def introduce(self, url: str, load: Callable[[], Load]) -> None:
        """Clients reach this node there, and `load` counts what they do."""
        self.observer.load = load
        self._show(url=url)

    def _report(self, load: Load, rates: Rates) -> Report:
        return Report(
            sessions=load.sessions,
            published=round(rates.per_second(0), 1),
            delivered=round(rates.per_second(1), 1),
            shards=len(self._shards),
            links=len(self.peers.up()),
            fencings=self.members.fenced,
            takeovers=self.router.takeovers.count,
            moves=self.moves,
        )

    def numbers(self) -> dict[str, float]:
        """What is counted here, for metrics."""
        places, own = self.members.places, self._ownership.process
        slots = self._shards.slots_since()
        takeovers, late = self.router.takeovers, self.observer.late
        roster_ms = self.members.roster_ms(trio.current_time())
        return {
            "fencings": self.members.fenced,
            "forwarded": self.router.forwarded,
            "lag_seconds": late.lag_ms / 1000,
            "moves": self.moves,
            "not_handed": self._shards.not_handed,
            "oldest_seconds": (late.oldest_ms or 0) / 1000,
            "peers": len(self.peers.up()),
            "repeats": self.repeats.repeated,
            "roster_seconds": (roster_ms or 0) / 1000,
            "slots": len(slots),
            "slots_elsewhere": sum(
                (place := placed(slot, places)) is not None and place.process != own
                for slot in slots
            ),
            "slots_orphaned": self.router.orphans,
            "slots_placed": sum(map(self.belongs_here, range(SLOTS))),
            "takeover_seconds": takeovers.seconds,
            "takeover_seconds_most": takeovers.most,
            "takeovers": takeovers.count,
        }

    def node_states(self) -> dict[str, float]:
        return self.observer.states()

    def breakers(self) -> dict[str, float]:
        return self.observer.breakers()

    def latencies(self) -> dict[str, float]:
        return self.observer.latencies()

    def link_numbers(self) -> dict[str, float]:
        """What is counted on links, for metrics."""
        counters = self._network.numbers()
        if counters is None:
            return {}
        return {
            "accept_failures": counters.accept_failures,
            "failures": counters.failures,
            "frames_received": counters.frames_in,
            "frames_sent": counters.frames_out,
            "bytes_received": counters.bytes_in,
            "bytes_sent": counters.bytes_out,
            "open": counters.open,
            "opened": counters.opened,
            "overruns": counters.overruns,
            "strangers": counters.strangers,
        }

    def link_words(self, which: Literal["ends", "refusals", "unreached"]) -> dict[str, int]:
        """Why links ended, were refused, or could not be had."""
        counters = self._network.numbers()
        return {} if counters is None else dict(getattr(counters, which))

    # Placement

    def belongs_here(self, slot: int) -> bool:
        """Whether this node is to have a slot."""
        place = placed(slot, self.members.places)
        return place is not None and place.process == self._ownership.process

    async def _rebalance(self) -> None:
        """A task: gives up slots that belong elsewhere, a few at a time."""
        while True:
            await trio.sleep(self._settings.place_ms / 1000)
            self._drain(self._ownership.draining or self._stopping)
            await self._give_up_some()

    async def _give_up_some(self) -> bool:
        """Whether there were slots to give up."""
        settings, places = self._settings, self.members.places
        slots = to_give_up(
            self._shards.slots_since(), self._ownership.process, places,
            int(trio.current_time() * 1000), 0 if self.members.is_leaving else settings.tenure_ms,
            settings.moves,
        )  # fmt: skip
        if slots:
            log.info("%d slots belong to other nodes by now: they are given up", len(slots))
            await self.give_up(slots)
        return bool(slots)

    async def give_up(self, slots: list[int]) -> None:
        """Let others have these slots, with all that is out of them."""
        await self._shards.give_up(slots, self._hand_over)
        self.moves += len(slots)

    async def _hand_over(self, key: ShardKey, epoch: int, pieces: Sequence[bytes]) -> bool:
        place = placed(slot_of(key), self.members.places)
        if place is not None and place.process == self._ownership.process:
            return True
        asker = None if place is None else self.peers.asker(place.process)
        if asker is None:
            return False
        with trio.move_on_after(self._settings.hand_ms / 1000):
            return await asker.hand_over(key, epoch, pieces)
        return False

    # Leaving

    def _drain(self, draining: bool) -> None:
        """Say to the others that no slot belongs here, or that they may come again."""
        if draining is not self.members.leaving:
            log.info("this node %s", "drains" if draining else "takes slots again")
            self.members.leaving = draining
            self._show(draining=draining)

    async def leave(self) -> None:
        """Give all slots to others, if there are any: this node stops."""
        self._stopping = True
        self._drain(True)
        with trio.move_on_after(self._settings.leave_ms / 1000):
            held = len(self._shards.slots_since())
            while await self._give_up_some():
                before, held = held, len(self._shards.slots_since())
                if held == before:  # somebody needs them for a moment
                    await trio.sleep(self._settings.reroute_ms / 1000)

    async def set_draining(self, name: str, draining: bool) -> None:
        """Have a node give its slots to others, or let it take some again.

        `Conflict` when nobody would be left to take them.
        """
        there = [member for member in self.members.all if member.name == name]
        if not there:
            raise NotFound(f"there is no node {name}")
        rest = [place for place in self.members.places if place.name != name]
        if draining and not rest:
            raise Conflict(f"node {name} can't be drained: no other node could take its slots")
        for member in there:
            await self._ownership.set_draining(member.process, draining)


class _Pair:
    """Two links of another node."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.links: dict[str, LinkLike] = {}
        self.serving: Serving | None = None
