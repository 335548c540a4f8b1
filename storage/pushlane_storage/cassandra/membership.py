"""Membership: this process among those that share the keyspace.

Holds the identity under which it claims, and replaces it when it was fenced. Its tasks (heartbeats,
fence reads, watches) have one parent, which ends with the store. What it shows of itself, and what
others show, is in the roster.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
import trio

from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.home import Home
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.node import Node, is_there
from pushlane_storage.cassandra.ring import Change, Ring
from pushlane_storage.cassandra.roster import Roster
from pushlane_storage.cassandra.slots import Slots
from pushlane_storage.cassandra.tables import NODES
from pushlane_storage.cassandra.watch import Watches
from pushlane_storage.interface import Fenced, ProcessMissing, StoreError
from pushlane_storage.member import PROCESS_BYTES, Member
from pushlane_storage.work import gather

log = logging.getLogger(__name__)


@asynccontextmanager
async def join(
    ring: Ring,
    decisions: Decisions,
    limits: Limits,
    address: str,
    home: Home,
    randbytes: Callable[[int], bytes],
) -> AsyncIterator[Membership]:
    """Be one of them until the block ends: then everything is given back."""
    error: Exception | None = None
    scope = trio.CancelScope(shield=True)
    async with trio.open_nursery() as parent:
        try:
            tasks = await parent.start(_run_in, scope)
            membership = Membership(ring, decisions, limits, address, home, randbytes, tasks)
            await membership.register()
            try:
                yield membership
            finally:
                with trio.CancelScope(shield=True):
                    await membership.leave()
        except Exception as raised:
            error = raised  # not from inside the nursery: it would come out in a group
        finally:
            scope.cancel()  # also when we are cancelled: nothing else ends the tasks
    if error is not None:
        raise error


async def _run_in(scope: trio.CancelScope, task_status: trio.TaskStatus[trio.Nursery]) -> None:
    """The parent of all tasks. They go on while what is cancelled outside comes to its end."""
    with scope:
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()


class Membership:
    """The `Ownership` of the replicated store. Made by `join`."""

    shared = True

    def __init__(
        self,
        ring: Ring,
        decisions: Decisions,
        limits: Limits,
        address: str,
        home: Home,
        randbytes: Callable[[int], bytes],
        tasks: trio.Nursery,
    ) -> None:
        self._ring = ring
        self._decisions = decisions
        self._limits = limits
        self._address = address
        self._home = home
        self._randbytes = randbytes
        self._tasks = tasks
        self._registering = trio.Lock()
        self.watches = Watches(ring, decisions, limits, tasks)
        self.slots = slots = Slots(
            ring, decisions, self.watches, self.current, home, limits, randbytes
        )
        self.claim, self.next_epoch, self.release = slots.claim, slots.next_epoch, slots.release
        self.confirm, self.due_shards = slots.confirm, slots.due_shards
        self.owner_of, self.owners = slots.owner_of, slots.owners
        self._member = Member(process="", name=address)
        """What it shows of itself, under whichever identity."""
        self._roster = Roster(ring, partial(is_there, ring, decisions), limits)
        self.secret = b""
        self.fenced = 0
        self._past_reads = self._past_served = self._past_beats = 0
        self._abandoned = False

    async def register(self, *, draining: bool = False) -> None:
        node = Node(
            self._randbytes(PROCESS_BYTES).hex(),
            lambda: self._member,
            self._address,
            self._home.dc,
            self._ring,
            self._decisions,
            self._limits,
        )
        await node.register(draining=draining)
        self.node = node
        self._tasks.start_soon(node.run)

    async def current(self) -> Node:
        """An identity that is not known to be fenced."""
        async with self._registering:
            if self.node.fence.is_down:
                log.warning("fenced as %s: going on as a new process", self.node.process)
                old = self.node
                # Nobody has reached the new process yet; what an operator wants stays.
                self._member = msgspec.structs.replace(self._member, placed=False)
                await self.register(draining=old.draining)
                self.fenced += 1
                self._past_reads += old.fence.reads
                self._past_served += old.fence.served
                self._past_beats += old.beats
                old.stop()
            return self.node

    async def lost(self) -> list[tuple[int, int]]:
        """What this process claimed and others have by now. Fenced, it goes on as a new one."""
        with suppress(Fenced):
            await self.node.fence.confirm()
        lost = await self.slots.compare()
        await self.current()
        return lost

    # Members

    @property
    def process(self) -> str:
        return self.node.process

    @property
    def draining(self) -> bool:
        return self.node.draining

    @property
    def beat_failing_ms(self) -> int:
        return self.node.beat_failing_ms

    def introduce(self, member: Member) -> None:
        self._member = member
        self.node.beat_soon()

    async def members(self) -> list[Member]:
        others = await self._roster.others((await self.current()).process)
        node = await self.current()  # it may have been fenced meanwhile
        there = [member for member in others if member.process != node.process]
        return sorted([*there, node.member], key=lambda member: member.process)

    async def fence(self, process: str) -> None:
        assert process != self.node.process, "nobody fences itself"
        await self.watches.fence(process)

    async def set_draining(self, process: str, draining: bool) -> None:
        change = Change(NODES, (process,), {"fenced": False}, {"draining": draining})
        decided = await self._decisions.decide(change, lambda _: False)
        if not decided.applied:
            raise ProcessMissing(f"process {process} has left, or was fenced")

    # The end

    async def leave(self) -> None:
        """Give everything back, in good order and within a time.

        That this process has left is enough for others. The slots' rows are put in order as well,
        so that they needn't look for it.
        """

        if self._abandoned:
            return
        with trio.move_on_after(self._limits.close_ms / 1000) as patience:
            try:
                await self.node.retire()
            except StoreError as error:
                log.warning("this process could not sign off, others must wait: %s", error)
            with suppress(StoreError):
                await gather(self.slots.release, self.slots.held(), self._limits.reads)
        if patience.cancelled_caught:
            log.warning("this process could not sign off in time, others may have to wait")
        self.abandon()

    def abandon(self) -> None:
        """End all tasks, and give nothing back: as a process that dies."""
        self._abandoned = True
        self.node.fence.dismiss()
        self._tasks.cancel_scope.cancel()

    # Numbers

    @property
    def fence_reads(self) -> int:
        return self._past_reads + self.node.fence.reads

    @property
    def confirmed(self) -> int:
        return self._past_served + self.node.fence.served

    @property
    def beats(self) -> int:
        return self._past_beats + self.node.beats
