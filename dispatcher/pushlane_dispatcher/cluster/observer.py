"""The observer: what a node knows of the others, for operators.

It asks every node that is linked for a report, all the time: so whoever wants the status waits for
no node, and a dead one costs nobody anything. It also says in the log, once, what an operator has
to fix: that nobody reaches this node, or that two nodes have one name.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.cluster.counters import LinkCounters
from pushlane_dispatcher.cluster.members import Members
from pushlane_dispatcher.cluster.peers import Peer, Peers
from pushlane_dispatcher.cluster.placement import placed
from pushlane_dispatcher.cluster.rates import Rates
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import (
    ClusterStatus,
    Load,
    NodeStatus,
    Problem,
    Report,
    State,
)
from pushlane_dispatcher.shard.shards import Lateness
from pushlane_storage.interface import StoreError
from pushlane_storage.member import Member
from pushlane_storage.ownership import Ownership
from pushlane_storage.slot import SLOTS

log = logging.getLogger(__name__)

LASTING = ("not_placed", "same_name", "same_address")
"""Problems that every start brings for a moment: the log speaks of those that last."""


class Observer:
    def __init__(
        self, ownership: Ownership, members: Members, peers: Peers, settings: ClusterSettings,
        own: Callable[[Load, Rates], Report], late: Callable[[], Lateness],
        ahead_ms: Callable[[str], int | None], links: Callable[[], LinkCounters | None],
    ) -> None:  # fmt: skip
        """`own` makes this node's report, `late` says how late its shards are, `ahead_ms` by how
        much a process's clock is ahead of ours, `links` what was counted on links."""
        self._ownership = ownership
        self._members = members
        self._peers = peers
        self._settings = settings
        self._own = own
        self._ask_lateness = late
        self._ahead_ms = ahead_ms
        self._links = links
        self._rates = Rates()
        self._states: dict[str, tuple[State, float]] = {}
        self._reports: dict[str, tuple[Report, float]] = {}
        """Of other processes, with the seconds that it took."""
        self._late: Lateness | None = None
        """Of the shards here, as of the last look: many may ask, and there may be many shards."""
        self._told: set[Problem] = set()
        self._doubted: dict[Problem, float] = {}
        self.load: Callable[[], Load] = Load
        """What the gateway here counts: it says so when it is open."""

    async def run(self) -> None:
        """A task."""
        while True:
            self._look()
            with trio.move_on_after(self._settings.report_ms / 1000):
                async with trio.open_nursery() as nursery:
                    for process in self._peers.up():
                        nursery.start_soon(self._ask, process)
                await trio.sleep_forever()

    def report(self) -> Report:
        """Of this node."""
        late = self.late
        return msgspec.structs.replace(
            self._own(self.load(), self._rates),
            oldest_ms=late.oldest_ms,
            lag_ms=late.lag_ms,
            roster_ms=self._members.roster_ms(trio.current_time()),
        )

    @property
    def late(self) -> Lateness:
        """How late the shards here are, as of the last look: there may be many of them."""
        if self._late is None:
            self._late = self._ask_lateness()
        return self._late

    async def _ask(self, process: str) -> None:
        asker = self._peers.asker(process)
        began = trio.current_time()
        if asker is not None:
            try:
                report = await asker.report()
            except PushlaneError:  # its links broke
                return
            self._reports[process] = report, trio.current_time() - began

    # States

    def _look(self) -> None:
        now, load = trio.current_time(), self.load()
        self._rates.note(now, load.published, load.delivered)
        self._late = self._ask_lateness()
        there = {member.process: member for member in self._everybody()}
        for known in (self._states, self._reports):
            for process in known.keys() - there.keys():
                known.pop(process)
        for member in there.values():
            state = self._state(member)
            if self._states.get(member.process, (None,))[0] != state:
                self._states[member.process] = state, now
        self._tell(now)

    def _everybody(self) -> list[Member]:
        own = self._members.own
        return [*([] if own is None else [own]), *self._members.others]

    def _is_own(self, member: Member) -> bool:
        return member.process == self._ownership.process

    def _state(self, member: Member) -> State:
        if not self._is_own(member) and self._peers.asker(member.process) is None:
            return "unreachable"
        if member.draining:
            return "draining"
        return "up" if member.placed else "not_placed"

    def states(self) -> dict[str, float]:
        """How many nodes are in each."""
        return {
            "up": 0, "unreachable": 0, "draining": 0, "not_placed": 0,
            **Counter(map(self._state, self._everybody())),
        }  # fmt: skip

    def breakers(self) -> dict[str, float]:
        """How many nodes are reached through breakers in each state."""
        return {"closed": 0, "open": 0, "half_open": 0, **Counter(self._peers.breakers().values())}

    def latencies(self) -> dict[str, float]:
        """By name of the node, in seconds: of its last answer."""
        names = {member.process: member.name for member in self._everybody()}
        return {
            names[process]: seconds
            for process, (_, seconds) in self._reports.items()
            if process in names and self._peers.asker(process) is not None
        }

    # What is wrong

    def _tell(self, now: float) -> None:
        """Say in the log, once, what has lasted for `doubt_ms`. Links and clocks say it there
        themselves."""
        found = {one for one in self.problems() if one.code in LASTING}
        self._doubted = {problem: self._doubted.get(problem, now) for problem in found}
        self._told &= found
        for problem, since in self._doubted.items():
            if problem not in self._told and now - since >= self._settings.doubt_ms / 1000:
                self._told.add(problem)
                log.warning("%s", problem.text)

    def problems(self) -> list[Problem]:
        return [
            *self._unreachable(), *self._unplaced(), *self._same_names(), *self._same_addresses(),
            *self._clocks(), *self._versions(), *self._refusals(), *self._store(),
        ]  # fmt: skip

    def _unreachable(self) -> Iterator[Problem]:
        for member in self._members.others:
            if self._state(member) == "unreachable":
                why = self._why(member)
                yield Problem(
                    code="unreachable",
                    nodes=(member.name,),
                    text=f"node {member.name} can't be reached: {why}",
                )

    def _why(self, member: Member) -> str:
        if not member.address:
            return "it says no address for other nodes"
        peer: Peer | None = self._peers.find(member.process)
        return (peer and peer.fault) or "it was not reached yet"

    def _unplaced(self) -> Iterator[Problem]:
        own = self._members.own
        if own is not None and not own.placed and list(self._members.others):
            yield Problem(
                code="not_placed",
                nodes=(own.name,),
                text=f"no other node has reached this one at {own.address}, so it takes no queues:"
                " is cluster.address (or cluster.listen) right, does a firewall keep them out, do"
                " all have the same key?",
            )

    def _same_names(self) -> Iterator[Problem]:
        for name, members in self._sharing("name"):
            places = ", ".join(sorted(member.address or "?" for member in members))
            yield Problem(
                code="same_name",
                nodes=(name,),
                text=f"{len(members)} nodes are called {name} ({places}), and one of them gets"
                " no queues: give each a cluster.name of its own",
            )

    def _same_addresses(self) -> Iterator[Problem]:
        for address, members in self._sharing("address"):
            names = tuple(sorted(member.name for member in members))
            yield Problem(
                code="same_address",
                nodes=names,
                text=f"{' and '.join(names)} say that they are at {address}, and only one of them"
                " is: give each a cluster.address (or cluster.listen) of its own",
            )

    def _sharing(self, field: Literal["name", "address"]) -> Iterator[tuple[str, list[Member]]]:
        """What several nodes say of themselves, and which."""
        found: dict[str, list[Member]] = {}
        for member in self._everybody():
            found.setdefault(getattr(member, field), []).append(member)
        for value, members in sorted(found.items()):
            if value and len(members) > 1:
                yield value, members

    def _clocks(self) -> Iterator[Problem]:
        for member in self._members.others:
            ahead = self._ahead_ms(member.process)
            if ahead is not None and abs(ahead) > self._settings.clock_ms:
                yield Problem(
                    code="clock",
                    nodes=(member.name,),
                    text=f"the clock of node {member.name} is {ahead / 1000:+.0f} s from ours: set"
                    " both by NTP",
                )

    def _versions(self) -> Iterator[Problem]:
        found = {member.version: member.name for member in self._everybody() if member.version}
        if len(found) > 1:
            text = ", ".join(f"{name} runs {version}" for version, name in sorted(found.items()))
            yield Problem(
                code="version",
                nodes=tuple(sorted(found.values())),
                text=f"not all nodes are of one version ({text}): finish the upgrade",
            )

    def _refusals(self) -> Iterator[Problem]:
        counters, since = self._links(), trio.current_time() - self._settings.refused_ms / 1000
        refused = {} if counters is None else counters.refused
        for code in ("wrong_key", "other_cluster", "old_version", "new_version", "certificate"):
            last = refused.get(code)
            if last is not None and last.at >= since:
                yield Problem(
                    code="refused", nodes=(), text=f"this node refuses a link from {last.text}"
                )

    def _store(self) -> Iterator[Problem]:
        failing, own = self._ownership.beat_failing_ms, self._members.own
        if failing > 2 * self._settings.heart_ms and own is not None:
            yield Problem(
                code="store",
                nodes=(own.name,),
                text=f"the store takes no heartbeats of this node for {failing} ms: others will"
                " fence it",
            )

    # The status

    async def status(self) -> ClusterStatus:
        """Waits for the store, and for no more than `status_ms`."""
        now, owned = trio.current_time(), await self._owned()
        places = self._members.places
        wanted = Counter(
            place.process for slot in range(SLOTS) if (place := placed(slot, places)) is not None
        )
        nodes = [
            self._node(member, now, owned, wanted[member.process]) for member in self._everybody()
        ]
        there = {node.process for node in nodes}
        return ClusterStatus(
            shared=True,
            cluster=self._settings.cluster,
            nodes=tuple(sorted(nodes, key=lambda node: (node.name, node.process))),
            orphans=None if owned is None else sum(owned[one] for one in owned.keys() - there),
            gone=tuple(self._members.gone(now)),
            problems=tuple(self.problems()),
        )

    async def _owned(self) -> Counter[str] | None:
        """Slots by process; None: the store doesn't say."""
        with trio.move_on_after(self._settings.status_ms / 1000):
            try:
                owners = await self._ownership.owners()
            except StoreError:
                return None
            return Counter(owner.process for owner in owners.values())
        return None

    def _node(
        self, member: Member, now: float, owned: Counter[str] | None, wanted: int
    ) -> NodeStatus:
        own, state = self._is_own(member), self._state(member)
        known = self._states.get(member.process)
        report, seconds = (self.report(), None) if own else self._heard(member.process)
        return NodeStatus(
            name=member.name,
            process=member.process,
            this=own,
            state=state,
            state_ms=int((now - known[1]) * 1000) if known and known[0] == state else 0,
            why=self._why(member) if state == "unreachable" else None,
            version=member.version,
            address=member.address,
            url=member.url,
            roles=member.roles,
            weight=member.weight,
            slots=None if owned is None else owned[member.process],
            placed=wanted,
            clock_ahead_ms=None if own else self._ahead_ms(member.process),
            breaker=self._peers.breakers().get(member.process),
            latency_ms=None if seconds is None else round(seconds * 1000, 3),
            **({} if report is None else msgspec.structs.asdict(report)),
        )

    def _heard(self, process: str) -> tuple[Report | None, float | None]:
        """What a node said last; nothing of one that can't be asked now."""
        if self._peers.asker(process) is None:
            return None, None
        return self._reports.get(process, (None, None))
