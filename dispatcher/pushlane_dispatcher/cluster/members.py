"""Members: who is there, and who is dead.

Every node looks at the roster once a beat, and at all others all the time. A node is fenced when

- its address answers with a process that came later: it was started again;
- its address refused twice, and its heart has stood still for two beats;
- its heart has stood still for `judge_ms`. Only time counts in which our own heart beat: who is cut
  off from the store itself can't tell who is dead, and fences nobody.

A wrong guess is safe and costs a takeover. So on mere silence no more than one node is fenced at a
time: when many seem dead, the fault is more likely ours.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator

import msgspec
import trio

from pushlane_dispatcher.cluster.placement import Place
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import Gone
from pushlane_storage.interface import StoreError
from pushlane_storage.member import DISPATCHER, Member
from pushlane_storage.ownership import Ownership

log = logging.getLogger(__name__)

REFUSALS = 2
BEATS = 2
REMEMBERED = 16
"""Nodes that are gone, for operators."""
LEFT = "it left, or another node fenced it"


class Watched:
    """Another node, as we saw it last."""

    __slots__ = ("look", "member", "refusals", "silent_ms", "successor")

    def __init__(self, member: Member, look: int) -> None:
        self.member = member
        self.look = look
        """The number of the look that found it first."""
        self.silent_ms = 0.0
        """How long its beat has stood still, while ours went on."""
        self.refusals = 0
        """How often in a row its address refused us since."""
        self.successor = False
        """Its address answered as a process that came after it."""


class Members:
    def __init__(
        self, ownership: Ownership, settings: ClusterSettings, changed: Callable[[], None]
    ) -> None:
        """`changed` is told when somebody has come or gone, or says something else of itself."""
        self._ownership = ownership
        self._settings = settings
        self._changed = changed
        self._watched: dict[str, Watched] = {}
        self._own: Member | None = None
        self.leaving = False
        """This node takes no slots: it drains."""
        self._looked_at: float | None = None
        self._seen_at: float | None = None
        self._looks = 0
        self._news = trio.Event()
        self.fenced = 0
        """Nodes that this one has fenced."""
        self.last_fenced_at = -1e9
        self._gone: deque[tuple[float, Member, str]] = deque(maxlen=REMEMBERED)

    async def run(self) -> None:
        """A task."""
        while True:
            try:
                await self.look()
                await self._judge()
            except StoreError as error:
                self._looked_at = None  # what we did not see is nobody's silence
                log.info("the members were not looked at: %s", error)
            with trio.move_on_after(self._settings.look_ms / 1000):
                await self._news.wait()
            self._news = trio.Event()

    async def look(self) -> None:
        """Read the roster."""
        found = {member.process: member for member in await self._ownership.members()}
        now, first = trio.current_time(), self._looked_at is None
        self._seen_at = now
        self._looks += 1
        own = found.pop(self._ownership.process, None)
        beating = own is not None and (self._own is None or own.beat != self._own.beat)
        passed = 0.0 if self._looked_at is None else now - self._looked_at
        before = self._shown()
        for process in self._watched.keys() - found.keys():
            self._gone.append((now, self._watched[process].member, LEFT))
        self._watched = {
            process: self._watched.get(process) or Watched(member, self._looks)
            for process, member in found.items()
        }
        for process, member in found.items():
            watched = self._watched[process]
            if member.beat != watched.member.beat:
                watched.silent_ms, watched.refusals = 0.0, 0
            elif beating:
                # Should we have stood still ourselves, that is not the other's silence.
                watched.silent_ms += min(passed * 1000, 2 * self._settings.heart_ms)
            watched.member = member
        if own is not None:
            self._own = own
        if beating or self._looked_at is None:
            self._looked_at = now
        if first or self._shown() != before:
            self._changed()

    def _shown(self) -> list[Member]:
        """What the others say of themselves, but for their beats."""
        return [_still(watched.member) for watched in self._watched.values()]

    @property
    def is_leaving(self) -> bool:
        """This node keeps no slots, if it ever had any. One that drains goes on with them while
        nobody else could take any."""
        if self._own is not None and DISPATCHER not in self._own.roles:
            return True
        return self.leaving and any(map(takes_slots, self.others))

    # Who is dead

    def refused(self, process: str) -> None:
        """Nobody listens at its address."""
        watched = self._watched.get(process)
        if watched is not None:
            watched.refusals += 1
            self._news.set()

    def replaced(self, process: str, by: str) -> None:
        """Another process answers at its address.

        One that came later has taken its place. One that was there before is another node, and
        somebody gave both the same address by mistake: that alone is nobody's death.
        """
        watched, other = self._watched.get(process), self._watched.get(by)
        if watched is not None:
            if other is None or other.look > watched.look:
                watched.successor = True
            else:
                watched.refusals += 1
            self._news.set()

    async def _judge(self) -> None:
        now = trio.current_time()
        for process, watched in list(self._watched.items()):
            reason = self._verdict(watched, now)
            if reason is None:
                continue
            log.warning("node %s (%s) is fenced: %s", watched.member.name, process, reason)
            await self._ownership.fence(process)
            self.fenced += 1
            self.last_fenced_at = now
            self._gone.append((now, watched.member, reason))
            del self._watched[process]
            self._changed()

    def _verdict(self, watched: Watched, now: float) -> str | None:
        settings = self._settings
        if watched.successor:
            return "another process has its address"
        if watched.refusals >= REFUSALS and watched.silent_ms >= BEATS * settings.heart_ms:
            return "it is not at its address, and its heart stands still"
        hasty = now - self.last_fenced_at < settings.haste_ms / 1000
        if watched.silent_ms >= settings.judge_ms and not hasty:
            return f"its heart has stood still for {settings.judge_ms} ms"
        return None

    def roster_ms(self, now: float) -> int | None:
        """How long ago the roster was read; None: it was not yet."""
        return None if self._seen_at is None else int((now - self._seen_at) * 1000)

    def gone(self, now: float) -> Iterator[Gone]:
        """Who went last, the newest first, and why."""
        for at, member, why in reversed(self._gone):
            yield Gone(
                name=member.name,
                process=member.process,
                why=why,
                ago_ms=int((now - at) * 1000),
            )

    # Who is there

    @property
    def own(self) -> Member | None:
        """This node, as others see it; None: nobody has looked yet."""
        return self._own

    @property
    def others(self) -> Iterable[Member]:
        return [watched.member for watched in self._watched.values()]

    @property
    def all(self) -> list[Member]:
        """With this one, as it was seen last."""
        return [*([] if self._own is None else [self._own]), *self.others]

    def find(self, process: str) -> Member | None:
        """Another node, if it is there."""
        watched = self._watched.get(process)
        return None if watched is None else watched.member

    @property
    def places(self) -> list[Place]:
        """Nodes that may own slots, this one included."""
        own = [] if self._own is None or self.is_leaving else [self._own]
        there = [*own, *filter(takes_slots, self.others)]
        # Nobody takes part before somebody reached it; the only ones there need nobody for that.
        placed = [member for member in there if member.placed] or there
        return [Place(member.name, member.process, member.weight) for member in placed]


def takes_slots(member: Member) -> bool:
    return DISPATCHER in member.roles and not member.draining and bool(member.address)


def _still(member: Member) -> Member:
    return msgspec.structs.replace(member, beat=0)
