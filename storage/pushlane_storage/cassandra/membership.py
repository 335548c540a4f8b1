"""Membership: this process among those that share the keyspace.

Holds the identity under which it claims, and replaces it when it was fenced. Its tasks (heartbeats,
fence reads, watches) have one parent, which ends with the store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

import trio

from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.home import Home
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.node import Node
from pushlane_storage.cassandra.ring import Ring
from pushlane_storage.cassandra.slots import Slots
from pushlane_storage.cassandra.watch import Watches
from pushlane_storage.interface import Fenced, StoreError

log = logging.getLogger(__name__)

PROCESS_BYTES = 16


class Membership:
    """Made by `join`."""

    def __init__(
        self,
        ring: Ring,
        decisions: Decisions,
        limits: Limits,
        address: str,
        home: Home,
        randbytes: Callable[[int], bytes],
    ) -> None:
        self._ring = ring
        self._decisions = decisions
        self._limits = limits
        self._address = address
        self._home = home
        self._randbytes = randbytes
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._registering = trio.Lock()
        self.fenced = 0
        self._past_reads = self._past_served = self._past_beats = 0

    async def join(self) -> None:
        started = trio.Event()
        trio.lowlevel.spawn_system_task(self._run, started, name="pushlane-membership")
        await started.wait()
        try:
            await self._register()
        except BaseException:
            self._scope.cancel()
            raise

    async def _run(self, started: trio.Event) -> None:
        """The parent of all tasks. A system task: the store is opened by a call, not a block."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._nursery:
                    self.watches = Watches(self._ring, self._decisions, self._limits, self._nursery)
                    self.slots = Slots(
                        self._ring,
                        self._decisions,
                        self.watches,
                        self.current,
                        self._home,
                        self._limits,
                        self._randbytes,
                    )
                    started.set()
                    await trio.sleep_forever()
        finally:
            self._ended.set()

    async def _register(self) -> None:
        node = Node(
            self._randbytes(PROCESS_BYTES).hex(),
            self._address,
            self._home.dc,
            self._ring,
            self._decisions,
            self._limits,
        )
        await node.register()
        self.node = node
        self._nursery.start_soon(node.run)

    async def current(self) -> Node:
        """An identity that is not known to be fenced."""
        async with self._registering:
            if self.node.fence.is_down:
                log.warning("fenced as %s: going on as a new process", self.node.process)
                self.fenced += 1
                old = self.node
                await self._register()
                self._past_reads += old.fence.reads
                self._past_served += old.fence.served
                self._past_beats += old.beats
                old.stop()
            return self.node

    async def lost_slots(self) -> list[tuple[int, int]]:
        """What this process claimed and others have by now. Fenced, it goes on as a new one."""
        with suppress(Fenced):
            await self.node.fence.confirm()
        lost = await self.slots.compare()
        await self.current()
        return lost

    async def leave(self) -> None:
        """Give everything back, in good order and within a time; then end all tasks.

        That this process has left is enough for others. The slots' rows are put in order as well,
        so that they needn't look for it.
        """

        async def release(slot: int) -> None:
            await self.slots.release(slot)

        with trio.move_on_after(self._limits.close_ms / 1000) as patience:
            try:
                await self.node.retire()
            except StoreError as error:
                log.warning("this process could not sign off, others must wait: %s", error)
            with suppress(StoreError):
                await gather(release, self.slots.held(), self._limits.reads)
        if patience.cancelled_caught:
            log.warning("this process could not sign off in time, others may have to wait")
        self.abandon()
        await self._ended.wait()

    def abandon(self) -> None:
        """End all tasks, and give nothing back: as a process that dies."""
        self.node.fence.dismiss()
        self._scope.cancel()

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
