"""Watching others: is the owner of a slot dead, has it left, did it give the slot back?

Its heartbeat is looked at on our own clock. When it has stood still for `judge_ms` the owner is
fenced: from then on nothing that it stores counts, whether it is dead or only slow. So a wrong
guess costs a change of owners, and no clock is trusted.

An owner that stops in good order sends no heartbeat any more either. So its node row and the slots'
rows are read again with every look: who left, was fenced by somebody else, or gave a slot back, is
waited for no longer.

Many slots may wait for one process: it is watched once for all of them.
"""

from __future__ import annotations

import logging

import trio

from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.node import is_alive, is_there
from pushlane_storage.cassandra.ring import Change, Ring, Row, read_row
from pushlane_storage.cassandra.tables import HEARTBEATS, NODES, SLOTS
from pushlane_storage.interface import StoreError
from pushlane_storage.work import gather

log = logging.getLogger(__name__)


class Wait:
    """Somebody wants a slot, whose row has this nonce."""

    def __init__(self, slot: int, nonce: str) -> None:
        self.slot = slot
        self.nonce = nonce
        self.over = trio.Event()
        self.is_alive = False
        self.error: StoreError | None = None

    def end(self, is_alive: bool = False, error: StoreError | None = None) -> None:
        self.is_alive, self.error = is_alive, error
        self.over.set()


class Silence:
    """How long a heartbeat has stood still, as far as we could see.

    Between two looks at most a quarter of the whole counts: should we stand still ourselves, or
    Cassandra not answer, that is not the other's silence.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._silent = 0.0
        self._seen: tuple[int | None, float] | None = None

    @property
    def is_over(self) -> bool:
        return self._silent >= self._seconds

    def is_broken_by(self, beat: int | None) -> bool:
        """It was looked at."""
        now = trio.current_time()
        if self._seen is not None:
            before, then = self._seen
            if beat != before:
                return True
            self._silent += min(now - then, self._seconds / 4)
        self._seen = beat, now
        return False


class Watches:
    def __init__(
        self, ring: Ring, decisions: Decisions, limits: Limits, nursery: trio.Nursery
    ) -> None:
        self._ring = ring
        self._decisions = decisions
        self._limits = limits
        self._nursery = nursery
        self._watches: dict[str, list[Wait]] = {}
        """The processes that are watched, and who waits for them."""
        self._alive: dict[str, float] = {}
        """Those whose heart was seen to beat, and until when that is fresh."""
        self._fencing: dict[str, trio.Event] = {}
        """The processes that are being fenced, until they are."""
        self.fenced = 0
        """Processes that this one has fenced."""

    async def outlive(self, process: str, slot: int, nonce: str) -> bool:
        """Whether a process is gone or fenced by now, or the slot's row another. False: alive."""
        if self._alive.get(process, 0) > trio.current_time():
            return not await self._is_there(process)
        wait = Wait(slot, nonce)
        if process not in self._watches:
            self._watches[process] = []
            self._nursery.start_soon(self._watch, process)
        self._watches[process].append(wait)
        await wait.over.wait()
        if wait.error is not None:
            raise wait.error
        return not wait.is_alive

    async def _watch(self, process: str) -> None:
        alive, error = False, None
        try:
            alive = await self._judge(process)
        except StoreError as fault:
            error = fault
        finally:
            for wait in self._watches.pop(process):
                wait.end(alive, error)

    async def _judge(self, process: str) -> bool:
        """Whether it is alive. If not, it left or is fenced."""
        silence = Silence(self._limits.judge_ms / 1000)
        failures = 0
        while True:
            try:
                if silence.is_broken_by(await self._beat(process)):
                    self._note_alive(process)
                    return True
                await gather(self._look, self._watches[process], self._limits.reads)
                if silence.is_over:
                    log.info("process %s shows no sign of life", process)
                    await self.fence(process)
                    return False
                if not await self._is_there(process):
                    return False
                failures = 0
            except StoreError:
                failures += 1
                if failures >= self._limits.tries:
                    raise
            await trio.sleep(self._limits.poll_ms / 1000)

    def _note_alive(self, process: str) -> None:
        now = trio.current_time()
        self._alive = {name: until for name, until in self._alive.items() if until > now}
        self._alive[process] = now + self._limits.alive_ms / 1000

    async def _is_there(self, process: str) -> bool:
        """Neither fenced nor gone."""
        return await is_there(self._ring, self._decisions, process)

    async def _look(self, wait: Wait) -> None:
        """End a wait for a slot that was given back."""
        if not wait.over.is_set():
            row = await read_row(self._ring, SLOTS, (wait.slot,))
            if row is None or row["nonce"] != wait.nonce:
                wait.end()

    async def _beat(self, process: str) -> int | None:
        found = await read_row(self._ring, HEARTBEATS, (process,))
        return None if found is None else found["beat"]

    async def fence(self, process: str) -> None:
        """Of one that was judged: come back when it is fenced, or has left."""
        while process in self._fencing:  # by somebody else here, who has judged it as well
            await self._fencing[process].wait()
        over = self._fencing[process] = trio.Event()
        try:
            if await self._is_there(process):
                log.warning("process %s is fenced", process)
                await self._fence(process)
        finally:
            del self._fencing[process]
            over.set()

    async def _fence(self, process: str) -> None:
        def verdict(row: Row | None) -> bool:
            return not is_alive(row)

        change = Change(NODES, (process,), {"fenced": False}, {"fenced": True})
        await self._decisions.decide(change, verdict)  # by us, by others, or it left: all the same
        self.fenced += 1
