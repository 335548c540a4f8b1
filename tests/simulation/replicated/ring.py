"""A ring of three replicas as one process sees it, over a network that can do anything.

Requests and answers take their time, and are held up while their process is paused. What was sent
arrives, also when its sender is dead by then. A write may be refused, land on one replica now and
on the others later, on some of them never, or long after its sender gave it up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from pushlane_storage.cassandra.ring import (
    Change,
    Delete,
    Level,
    Numbers,
    Range,
    Row,
    Write,
    check_change,
    check_range,
    check_write,
)
from pushlane_storage.cassandra.tables import NODES, ROSTER
from pushlane_storage.interface import Outcome, StoreRefused, StoreUnknown
from tests.simulation.replicated.replicas import COUNT, QUORUM, Replicas
from tests.simulation.replicated.world import TrioWorld
from tests.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from tests.simulation.replicated.process import Process

EVERY = range(COUNT)
NEEDED = {Level.ONE: 1, Level.QUORUM: QUORUM, Level.ALL: COUNT}
TIMEOUT_MS = (20, 250)
"""After so long a coordinator, or the driver, gives a request up."""
OWNERS = frozenset({"buckets", "segments", "settlements", "seals"})
"""Tables that only an owner writes: there its end matters most."""
LATE_MS = 6_000
"""A write that was given up lands within this time, if at all."""


class Network:
    """What all processes share: the replicas, and which of them are down."""

    def __init__(self, world: TrioWorld) -> None:
        self.world = world
        self.replicas = Replicas()
        self.down: set[int] = set()
        self.left: set[tuple[Any, ...]] = set()
        """Processes that have left. A row of one of them may come back: the transaction that was to
        make it had timed out, and is tried again by its coordinator."""
        self._clock = 0

    def stamp(self, skew: int) -> int:
        """By a clock that is wrong by so many milliseconds; no two are the same."""
        self._clock += 1
        return (EPOCH_MS + self.world.now + skew) * 1000 + self._clock % 1000

    def up(self) -> list[int]:
        """The replicas that answer, in any order."""
        nodes = [node for node in EVERY if node not in self.down]
        self.world.rng.shuffle(nodes)
        return nodes

    def fail_nodes(self) -> None:
        """One replica goes away for a while, or two."""
        world = self.world
        chances = world.ring_chances
        if self.down:
            return
        if world.happens(chances.no_quorum):
            world.fault("ring.no_quorum")
            self._take_down(2, world.rng.randrange(100, 1_500))
        elif world.happens(chances.replica_down):
            world.fault("ring.replica_down")
            self._take_down(1, world.rng.randrange(100, 5_000))

    def _take_down(self, count: int, ms: int) -> None:
        self.down = set(self.world.rng.sample(EVERY, count))
        self.world.after(ms, self.down.clear)

    def land(self, write: Write | Delete, stamp: int, nodes: Sequence[int]) -> None:
        self.replicas.apply(write, stamp, nodes)

    def land_later(self, write: Write | Delete, stamp: int, node: int, ms: int) -> None:
        self.world.after(ms, self.land, write, stamp, (node,))


class Reply:
    """What a task waits for."""

    __slots__ = ("_task", "error", "over", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.error: Exception | None = None
        self.over = False
        self._task: trio.lowlevel.Task | None = None

    def __call__(self, value: Any, error: Exception | None = None) -> None:
        self.value, self.error, self.over = value, error, True
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def wait(self) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.over:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abandon)
        if self.error is not None:
            raise self.error
        return self.value

    def _abandon(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class SimulatedRing:
    def __init__(self, process: Process, network: Network) -> None:
        self.numbers = Numbers()
        self._process = process
        self._network = network
        self._world = network.world
        self._rng = network.world.rng
        self._looked: dict[tuple[Any, ...], int] = {}
        """When each node's row was last read."""

    # The seam

    def write_soon(self, write: Write | Delete, done: Outcome) -> None:
        check_write(write)
        self._send(self._write, write, done)

    async def write(self, write: Write | Delete) -> None:
        check_write(write)
        self._audit_removal(write)

        def send(reply: Reply) -> None:
            self._send(self._write, write, lambda error: reply(None, error))

        await self._process.wait(send)

    async def read(self, range: Range) -> list[Row]:
        check_range(range)
        read = self._serial if range.level is Level.SERIAL else self._read
        rows: list[Row] = await self._process.wait(partial(self._send, read, range))
        if range.table is NODES:
            self._looked[range.partition] = self._world.now
        return rows

    async def change(self, change: Change) -> bool:
        check_change(change)
        self._audit(change)
        applied: bool = await self._process.wait(partial(self._send, self._change, change))
        return applied

    async def time(self) -> int:
        at: int = await self._process.wait(partial(self._send, self._time, None))
        return at

    def _time(self, _: object, reply: Reply) -> None:
        if self._network.up():
            self._answer(reply, EPOCH_MS + self._world.now)
        else:
            self._give_up(reply, None, StoreUnknown("no node to ask"))

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    def _audit(self, change: Change) -> None:
        """Who fences a process has just seen that it neither left nor was fenced by others."""
        fences = change.table is NODES and change.row == {"fenced": True}
        if fences and self._looked.get(change.key) != self._world.now:
            why = f"{self._process.name} fences {change.key} without another look at its row"
            self._world.failure = self._world.failure or AssertionError(why)

    def _audit_removal(self, write: Write | Delete) -> None:
        """Nobody is taken off the roster who is there."""
        if not isinstance(write, Delete) or write.table is not ROSTER:
            return
        process = write.key[-1:]
        if process in self._network.left:
            return
        nodes = self._network.replicas.decided.partition(NODES, process)
        row = nodes.live(()) if nodes.rows else None
        if row is not None and not row["fenced"]:
            why = f"{self._process.name} takes {process} off the roster, which is there"
            self._world.failure = self._world.failure or AssertionError(why)

    def _send(self, action: Callable[..., None], request: Any, answer: Callable[..., None]) -> None:
        self.numbers.requests += 1
        self._process.send(action, request, answer)
        if action == self._write and request.table.name in OWNERS:
            self._process.maybe_fail("request")

    def _answer(self, answer: Callable[..., None], *args: Any) -> None:
        self._process.receive(answer, *args)

    def _give_up(self, answer: Callable[..., None], *args: Any) -> None:
        """An answer that comes when somebody's patience is over."""
        delay = self._rng.randrange(*TIMEOUT_MS)
        self._world.after(delay, self._process.receive, answer, *args)

    # Plain writes

    def _write(self, write: Write | Delete, done: Outcome) -> None:
        world, chances = self._world, self._world.ring_chances
        skew = self._process.stamp_skew
        stamp = self._network.stamp(skew) if write.stamp is None else write.stamp
        needed = NEEDED[write.level] if isinstance(write, Write) else QUORUM
        up = self._network.up()
        if self._process.is_away and world.happens(chances.late_write):
            world.fault("ring.late_write")
            self._late_write(write, stamp)
            if self._rng.random() < 0.4:
                self._network.land(write, stamp, up[:1])
            self._give_up(done, StoreUnknown("write timed out"))
        elif world.happens(chances.refused):
            world.fault("ring.refused")
            self._answer(done, StoreRefused("unavailable"))
        elif len(up) < needed or world.happens(chances.unknown):
            self._lose(write, stamp, up)
            self._give_up(done, StoreUnknown("write timed out"))
        elif world.happens(chances.slow):
            world.fault("ring.slow_write")
            self._slowly(write, stamp, up, needed, done)
        else:
            self._network.land(write, stamp, self._punctual(write, stamp, up, needed))
            self._answer(done, None)

    def _punctual(
        self, write: Write | Delete, stamp: int, up: list[int], needed: int
    ) -> Sequence[int]:
        """Those on which it lands at once. The others get it later, or never."""
        world = self._world
        for node in self._network.down:
            self._perhaps_later(write, stamp, node)
        if len(up) > needed and world.happens(world.ring_chances.lagging):
            world.fault("ring.lagging_replica")
            self._perhaps_later(write, stamp, up[-1])
            return up[:-1]
        return up

    def _perhaps_later(self, write: Write | Delete, stamp: int, node: int) -> None:
        if self._rng.random() < 0.5:
            self._network.land_later(write, stamp, node, self._rng.randrange(1, LATE_MS))

    def _lose(self, write: Write | Delete, stamp: int, up: list[int]) -> None:
        """A write that nobody will answer for."""
        draw = self._rng.random()
        if draw < 0.3:
            self._world.fault("ring.unknown_lost")
        elif draw < 0.55:
            self._world.fault("ring.unknown_applied")
            self._network.land(write, stamp, up)
        elif draw < 0.75:
            self._world.fault("ring.unknown_partial")
            self._network.land(write, stamp, up[:1])
        else:
            self._world.fault("ring.unknown_late")
            self._late_write(write, stamp)

    def _late_write(self, write: Write | Delete, stamp: int) -> None:
        rng = self._rng
        for node in rng.sample(EVERY, rng.choice((1, 2, 3))):
            self._network.land_later(write, stamp, node, rng.randrange(1, LATE_MS))

    def _slowly(
        self, write: Write | Delete, stamp: int, up: list[int], needed: int, done: Outcome
    ) -> None:
        """One replica after the other; the answer comes when enough have it."""
        at = 0
        for count, node in enumerate(up, 1):
            self._network.land_later(write, stamp, node, at)
            if count == needed:
                self._world.after(at, self._process.receive, done, None)
            at += self._rng.randrange(1, 300)

    # Reads

    def _read(self, range: Range, reply: Reply) -> None:
        world = self._world
        up = self._network.up()
        needed = max(NEEDED[range.level], QUORUM)
        if len(up) < needed:
            self._give_up(reply, None, StoreUnknown("too few replicas to read"))
            return
        rows = self._network.replicas.read(range, up[:needed])
        if world.happens(world.ring_chances.read_error):
            world.fault("ring.read_error")  # perhaps after the repair: it has happened
            self._give_up(reply, None, StoreUnknown("read timed out"))
        else:
            self._answer(reply, rows)

    def _serial(self, range: Range, reply: Reply) -> None:
        world = self._world
        up = self._network.up()
        if len(up) < QUORUM or world.happens(world.ring_chances.read_error):
            world.fault("ring.serial_error")
            self._give_up(reply, None, StoreUnknown("serial read timed out"))
        else:
            self._answer(reply, self._network.replicas.serial(range, up[:QUORUM]))

    # Lightweight transactions

    def _change(self, change: Change, reply: Reply) -> None:
        world, chances = self._world, self._world.ring_chances
        up = self._network.up()
        if len(up) < QUORUM or world.happens(chances.change_unknown):
            self._doubt(change, up)
            self._give_up(reply, None, StoreUnknown("transaction timed out"))
        elif world.happens(chances.refused):
            world.fault("ring.change_refused")
            self._answer(reply, None, StoreRefused("unavailable"))
        else:
            self._answer(reply, self._decide(change, up, up[:QUORUM]))

    def _decide(self, change: Change, up: list[int], told: Sequence[int]) -> bool:
        replicas = self._network.replicas
        applied = replicas.decide(change, up[:QUORUM])
        replicas.commit(change.table, change.key, told)
        if applied and change.table is NODES and change.row is None:
            self._network.left.add(change.key)
        return applied

    def _doubt(self, change: Change, up: list[int]) -> None:
        """It was decided or not, or will be, behind the back of whoever asked."""
        draw = self._rng.random()
        if draw < 0.35 or len(up) < QUORUM:
            self._world.fault("ring.change_lost")
        elif draw < 0.75:
            self._world.fault("ring.change_applied")
            self._decide(change, up, up[: self._rng.choice((0, 1, 2))])
        else:
            self._world.fault("ring.change_late")
            self._world.after(self._rng.randrange(1, 2_000), self._late, change)

    def _late(self, change: Change) -> None:
        up = self._network.up()
        if len(up) >= QUORUM:
            self._decide(change, up, up[: self._rng.choice((0, 1, 2))])
