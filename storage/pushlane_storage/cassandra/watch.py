"""Watching others: is the owner of a slot dead?

Its heartbeat is looked at on our own clock. When it has stood still for `judge_ms` the owner is
fenced: from then on nothing that it stores counts, whether it is dead or only slow. So a wrong
guess costs a change of owners, and no clock is trusted.

Many slots may wait for one process: it is watched once for all of them.
"""

from __future__ import annotations

import logging

import trio

from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.node import is_alive
from pushlane_storage.cassandra.ring import Change, Ring, Row, read_row
from pushlane_storage.cassandra.tables import HEARTBEATS, NODES
from pushlane_storage.interface import StoreError

log = logging.getLogger(__name__)


class Watch:
    """One look at one process."""

    def __init__(self) -> None:
        self.over = trio.Event()
        self.is_alive = False
        self.error: StoreError | None = None


class Watches:
    def __init__(
        self, ring: Ring, decisions: Decisions, limits: Limits, nursery: trio.Nursery
    ) -> None:
        self._ring = ring
        self._decisions = decisions
        self._limits = limits
        self._nursery = nursery
        self._watches: dict[str, Watch] = {}
        self.fenced = 0
        """Processes that this one has fenced."""

    async def outlive(self, process: str) -> bool:
        """Whether a process is fenced by now. False: it is alive."""
        watch = self._watches.get(process)
        if watch is None:
            watch = self._watches[process] = Watch()
            self._nursery.start_soon(self._run, process, watch)
        await watch.over.wait()
        if watch.error is not None:
            raise watch.error
        return not watch.is_alive

    async def _run(self, process: str, watch: Watch) -> None:
        try:
            watch.is_alive = await self._judge(process)
        except StoreError as error:
            watch.error = error
        finally:
            del self._watches[process]
            watch.over.set()

    async def _judge(self, process: str) -> bool:
        row = await self._decisions.read(NODES, (process,))
        if not is_alive(row):
            return False
        beat = await self._beat(process)
        deadline = trio.current_time() + self._limits.judge_ms / 1000
        while trio.current_time() < deadline:
            await trio.sleep(self._limits.poll_ms / 1000)
            if await self._beat(process) != beat:
                return True
        await self._fence(process)
        return False

    async def _beat(self, process: str) -> int | None:
        found = await read_row(self._ring, HEARTBEATS, (process,))
        return None if found is None else found["beat"]

    async def _fence(self, process: str) -> None:
        log.warning("process %s shows no sign of life: it is fenced", process)

        def verdict(row: Row | None) -> bool:
            return not is_alive(row)

        change = Change(NODES, (process,), {"fenced": False}, {"fenced": True})
        await self._decisions.decide(change, verdict)  # by us, by others, or it left: all the same
        self.fenced += 1
