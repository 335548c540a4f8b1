"""A node: this process as the others see it, under one identity.

Its row in `nodes` is made once and then only ever fenced, or removed when it leaves in good order;
no row counts as fenced. A process that was fenced goes on under a new identity: what it held under
the old one is lost to it.

Heartbeats only help others to guess. The number itself is the stamp, so a clock that steps back
can't hide them.
"""

from __future__ import annotations

import logging

import trio

from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.fence import Fence
from pushlane_storage.cassandra.limits import DAY_SECONDS, Limits
from pushlane_storage.cassandra.ring import Change, Ring, Row, Write, read_row
from pushlane_storage.cassandra.tables import HEARTBEATS, NODES, keyed
from pushlane_storage.interface import StoreError, StoreUnknown

log = logging.getLogger(__name__)


class Node:
    def __init__(
        self, process: str, address: str, dc: str, ring: Ring, decisions: Decisions, limits: Limits
    ) -> None:
        self.process = process
        self._address = address
        self._dc = dc
        self._ring = ring
        self._decisions = decisions
        self._limits = limits
        self.fence = Fence(self._is_unfenced, process)
        self.beats = 0
        self.beating = True
        """Tests stop the heart of a node."""
        self._scope = trio.CancelScope()

    async def register(self) -> None:
        row = {"address": self._address, "dc": self._dc, "fenced": False}
        change = Change(NODES, (self.process,), None, row)
        decided = await self._decisions.decide(change, lambda found: found is not None)
        if not decided.applied:
            raise StoreUnknown(f"there is a process {self.process} already")
        await self._beat()

    async def run(self) -> None:
        """A task: the heart, and the fence. What was fenced goes on answering that it was."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.fence.run)
            with self._scope:
                while True:
                    await trio.sleep(self._limits.beat_ms / 1000)
                    if self.beating:
                        await self._try_beat()

    def stop(self) -> None:
        """No more heartbeats."""
        self._scope.cancel()

    async def _try_beat(self) -> None:
        try:
            await self._beat()
        except StoreError as error:
            log.warning("no heartbeat: %s", error)

    async def _beat(self) -> None:
        self.beats += 1
        row = keyed(HEARTBEATS, (self.process,), beat=self.beats)
        await self._ring.write(Write(HEARTBEATS, [row], stamp=self.beats, ttl=DAY_SECONDS))

    async def _is_unfenced(self) -> bool:
        return is_alive(await read_row(self._ring, NODES, (self.process,)))

    async def retire(self) -> None:
        """Leave in good order: from here on its slots are anybody's."""
        change = Change(NODES, (self.process,), {"fenced": False}, None)
        await self._decisions.decide(change, lambda _: True)


def is_alive(row: Row | None) -> bool:
    """What a node's row says of it."""
    return row is not None and row["fenced"] is False
