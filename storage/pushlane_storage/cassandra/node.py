"""A node: this process as the others see it, under one identity.

Its row in `nodes` is made once and then only ever fenced, or removed when it leaves in good order;
no row counts as fenced. A process that was fenced goes on under a new identity: what it held under
the old one is lost to it.

A write of an owner counts when, after it was durable, the owner was not fenced. So a quorum read of
its own row is begun after the write: if that shows no fence, the fence was not there on a quorum
when the read began, and whoever sets it later reads what was written before. One read serves every
write that was durable before it began; while it is under way the next group gathers.

Heartbeats only help others to guess. The number itself is the stamp, so a clock that steps back
can't hide them. Each goes to two tables: into a row of its own, by which this process is judged,
and into the roster, where others see all that it shows of itself. With each it reads its own row as
well: so it learns that it was fenced, or that it is to give its slots away, also when it writes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import trio

from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.limits import DAY_SECONDS, Limits
from pushlane_storage.cassandra.ring import Change, Ring, Row, Write, read_row, write_stages
from pushlane_storage.cassandra.roster import entry, removal
from pushlane_storage.cassandra.tables import HEARTBEATS, NODES, keyed
from pushlane_storage.interface import Fenced, Outcome, StoreError, StoreUnknown
from pushlane_storage.member import Member
from pushlane_storage.outcome import outcome_of


class Fence:
    """Whether what this process just stored counts."""

    def __init__(self, is_unfenced: Callable[[], Awaitable[bool]], name: str) -> None:
        self._is_unfenced = is_unfenced
        self._name = name
        self._waiting: list[Outcome] = []
        self._wake = trio.Event()
        self.is_down = False
        """It was seen: nothing counts any more, for good."""
        self.reads = 0
        """Those that confirmed something …"""
        self.served = 0
        """… and the writes that they confirmed."""

    def fault(self) -> Fenced:
        return Fenced(f"this process ({self._name}) was fenced by another one")

    def confirm_soon(self, done: Outcome) -> None:
        """Call back when a read that begins after this call has shown no fence."""
        self._waiting.append(done)
        self._wake.set()

    async def confirm(self) -> None:
        """Come back when such a read has shown no fence."""
        await outcome_of(self.confirm_soon)

    def look_soon(self) -> None:
        """Read the row, though nobody waits for it."""
        self._wake.set()

    async def run(self) -> None:
        """A task, for as long as the process uses this identity."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            group, self._waiting = self._waiting, []
            error: Exception | None = _CLOSED
            self.reads += bool(group) and not self.is_down
            try:
                error = await self._look()
            finally:
                for done in group:
                    done(error)
            self.served += len(group)

    async def _look(self) -> Exception | None:
        if self.is_down:
            return self.fault()
        try:
            self.is_down = not await self._is_unfenced()
        except StoreError as error:
            # What was written is durable; only whether it counts is not known.
            return StoreUnknown(f"stored, but not confirmed: {error}")
        return self.fault() if self.is_down else None

    def dismiss(self) -> None:
        """Nobody looks any more."""
        group, self._waiting = self._waiting, []
        for done in group:
            done(_CLOSED)


_CLOSED = StoreUnknown("stored, but not confirmed: the store is closed")


log = logging.getLogger(__name__)


class Node:
    def __init__(
        self,
        process: str,
        shown: Callable[[], Member],
        address: str,
        dc: str,
        ring: Ring,
        decisions: Decisions,
        limits: Limits,
    ) -> None:
        """`shown` answers what it shows of itself."""
        self.process = process
        self.fence = Fence(self._is_unfenced, process)
        self.draining = False
        """By its row: an operator wants it."""
        self.beats = 0
        self.beating = True
        """Tests stop the heart of a node."""
        self._shown = shown
        self._address = address
        self._dc = dc
        self._ring = ring
        self._decisions = decisions
        self._limits = limits
        self._scope = trio.CancelScope()
        self._hurry = trio.Event()
        self._landed = trio.current_time()
        """When the last heartbeat that landed was begun."""

    async def register(self, *, draining: bool = False) -> None:
        row = {
            "address": self._address, "dc": self._dc, "fenced": False, "draining": draining,
        }  # fmt: skip
        change = Change(NODES, (self.process,), None, row)
        decided = await self._decisions.decide(change, lambda found: found is not None)
        if not decided.applied:
            raise StoreUnknown(f"there is a process {self.process} already")
        self.draining = draining
        await self._beat()

    # What others see

    @property
    def member(self) -> Member:
        """What the last heartbeat showed, or the next one will."""
        shown = self._shown()
        return msgspec.structs.replace(
            shown,
            process=self.process,
            beat=self.beats,
            draining=shown.draining or self.draining,
        )

    def beat_soon(self) -> None:
        """There is something new to show."""
        self._hurry.set()

    async def run(self) -> None:
        """A task: the heart, and the fence. What was fenced goes on answering that it was."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fence.run)
            with self._scope:
                await self._live()

    async def _live(self) -> None:
        while True:
            with trio.move_on_after(self._limits.beat_ms / 1000):
                await self._hurry.wait()
            self._hurry = trio.Event()
            if self.fence.is_down:
                return
            if self.beating:
                await self._try_beat()
                self.fence.look_soon()

    def stop(self) -> None:
        """No more heartbeats."""
        self._scope.cancel()

    async def _try_beat(self) -> None:
        try:
            await self._beat()
        except StoreError as error:
            log.warning("no heartbeat: %s", error)

    async def _beat(self) -> None:
        began = trio.current_time()
        self.beats += 1
        row = keyed(HEARTBEATS, (self.process,), beat=self.beats)
        beat = Write(HEARTBEATS, [row], stamp=self.beats, ttl=DAY_SECONDS)
        writes = [beat, entry(self.member)]
        await outcome_of(lambda done: write_stages(self._ring, [writes], done))
        self._landed = began

    @property
    def beat_failing_ms(self) -> int:
        """How long its next heartbeat is overdue, by more than another one would take; or 0."""
        beat = self._limits.beat_ms / 1000
        overdue = trio.current_time() - self._landed - beat
        return int(overdue * 1000) if overdue > beat else 0

    # Its row

    async def _is_unfenced(self) -> bool:
        row = await read_row(self._ring, NODES, (self.process,))
        if row is not None and self.draining != (row["draining"] is True):
            self.draining = not self.draining
            self.beat_soon()
        return is_alive(row)

    async def retire(self) -> None:
        """Leave in good order: from here on its slots are anybody's."""
        change = Change(NODES, (self.process,), {"fenced": False}, None)
        await self._decisions.decide(change, lambda _: True)
        with suppress(StoreError):  # somebody else does it
            await self._ring.write(removal(self.process))


def is_alive(row: Row | None) -> bool:
    """What a node's row says of it."""
    return row is not None and row["fenced"] is False


async def is_there(ring: Ring, decisions: Decisions, process: str) -> bool:
    """Whether a process neither left nor was fenced."""
    if is_alive(await read_row(ring, NODES, (process,))):
        return True
    return is_alive(await decisions.read(NODES, (process,)))
