"""Cassandra as plain dicts, and a ring with faults: what the store asks for, and what may go wrong.

`ModelRing` keeps the rules on which the store relies: a greater stamp wins, at the same stamp the
greater value; a deletion wins over all up to its own stamp. Several rings may share the `Tables`.
`FaultyRing` lies about outcomes, as a network does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import trio

from pushlane_storage.cassandra.ring import (
    Bound,
    Change,
    Delete,
    Level,
    Numbers,
    Range,
    Ring,
    Row,
    Table,
    Write,
    check_change,
    check_range,
    check_write,
)
from pushlane_storage.interface import Outcome, StoreRefused, StoreUnknown
from pushlane_storage.wall import wall_clock

Key = tuple[Any, ...]
Cell = tuple[int, Any]


class Partition:
    def __init__(self) -> None:
        self.gone = -1
        self.rows: dict[Key, dict[str, Cell]] = {}
        self.row_gone: dict[Key, int] = {}
        self.ttls: dict[Key, int | None] = {}

    def put(self, key: Key, row: Row, stamp: int) -> None:
        cells = self.rows.setdefault(key, {})
        for name, value in row.items():
            old = cells.get(name)
            if old is None or (stamp, value) > old:
                cells[name] = (stamp, value)

    def live(self, key: Key) -> Row | None:
        after = max(self.gone, self.row_gone.get(key, -1))
        cells = {name: cell for name, cell in self.rows[key].items() if cell[0] > after}
        return {name: value for name, (_, value) in cells.items()} or None


class Tables:
    """What the rings of one cluster share."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, Key], Partition] = {}
        self.clock = 1_700_000_000_000_000
        self.tombstones_read = 0

    def partition(self, table: Table, key: Key) -> Partition:
        return self.partitions.setdefault((table.name, key), Partition())

    def stamp(self) -> int:
        self.clock += 1
        return self.clock


class ModelRing:
    def __init__(self, tables: Tables | None = None) -> None:
        self.tables = tables or Tables()
        self.numbers = Numbers()
        self.writes: list[Write | Delete] = []
        self.ranges: list[Range] = []
        self.counts: Counter[str] = Counter()
        self.wall = wall_clock

    def write_soon(self, write: Write | Delete, done: Outcome) -> None:
        self._write(write)
        trio.lowlevel.current_trio_token().run_sync_soon(done, None)

    async def write(self, write: Write | Delete) -> None:
        await trio.lowlevel.checkpoint()
        self._write(write)

    def _write(self, write: Write | Delete) -> None:
        check_write(write)
        self.counts["write"] += 1
        self.writes.append(write)
        table, count = write.table, len(write.table.partition)
        stamp = self.tables.stamp() if write.stamp is None else write.stamp
        if isinstance(write, Delete):
            partition = self.tables.partition(table, write.key[:count])
            if len(write.key) == count:
                partition.gone = max(partition.gone, stamp)
            else:
                place = write.key[count:]
                partition.row_gone[place] = max(partition.row_gone.get(place, -1), stamp)
                partition.rows.setdefault(place, {})
            return
        for row in write.rows:
            partition = self.tables.partition(table, tuple(row[name] for name in table.partition))
            place = tuple(row[name] for name in table.clustering)
            partition.put(place, row, stamp)
            partition.ttls[place] = write.ttl

    async def read(self, range: Range) -> list[Row]:
        await trio.lowlevel.checkpoint()
        check_range(range)
        self.counts[f"read {range.level.value}"] += 1
        self.ranges.append(range)
        partition = self.tables.partition(range.table, range.partition)
        found: list[Row] = []
        for key in sorted(partition.rows, reverse=range.reverse):
            if not inside(key, range.low, range.high):
                continue
            row = partition.live(key)
            if row is None:
                self.tables.tombstones_read += 1
                continue
            columns = range.columns or tuple(range.table.columns)
            found.append({name: row.get(name) for name in columns})
            if len(found) == range.limit:
                break
        return found

    async def change(self, change: Change) -> bool:
        await trio.lowlevel.checkpoint()
        check_change(change)
        self.counts["change"] += 1
        table, count = change.table, len(change.table.partition)
        partition = self.tables.partition(table, change.key[:count])
        place = change.key[count:]
        old = partition.live(place) if place in partition.rows else None
        if change.expect is None:
            applies = old is None
        else:
            applies = old is not None and all(
                old.get(name) == value for name, value in change.expect.items()
            )
        if applies and change.row is None:
            partition.row_gone[place] = self.tables.stamp()
        elif applies and change.row is not None:
            key = dict(zip(table.key, change.key, strict=True))
            partition.put(place, {**key, **change.row}, self.tables.stamp())
        return applies

    async def time(self) -> int:
        await trio.lowlevel.checkpoint()
        return self.wall()

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()


def inside(key: Key, low: Bound | None, high: Bound | None) -> bool:
    if low is not None:
        start = key[: len(low.values)]
        if start < low.values or (start == low.values and not low.included):
            return False
    if high is not None:
        end = key[: len(high.values)]
        if end > high.values or (end == high.values and not high.included):
            return False
    return True


Fate = str
"""fine; lost: not done, outcome unknown; done: done, outcome unknown; refused."""


class FaultyRing:
    """Each operation meets the fate that `fate(kind, operation)` names."""

    def __init__(self, ring: Ring, fate: Callable[[str, Any], Fate]) -> None:
        self.ring = ring
        self.numbers = ring.numbers
        self.fate = fate

    def write_soon(self, write: Write | Delete, done: Outcome) -> None:
        fate = self.fate("write", write)
        if fate == "fine":
            self.ring.write_soon(write, done)
        elif fate == "done":
            self.ring.write_soon(write, lambda _: done(_fault(fate)))
        else:
            trio.lowlevel.current_trio_token().run_sync_soon(done, _fault(fate))

    async def write(self, write: Write | Delete) -> None:
        await self._meet("write", write, self.ring.write)

    async def read(self, range: Range) -> list[Row]:
        kind = "serial" if range.level is Level.SERIAL else "read"
        rows: list[Row] = await self._meet(kind, range, self.ring.read)
        return rows

    async def change(self, change: Change) -> bool:
        applied: bool = await self._meet("change", change, self.ring.change)
        return applied

    async def time(self) -> int:
        return await self.ring.time()

    async def close(self) -> None:
        await self.ring.close()

    async def _meet(self, kind: str, operation: Any, run: Callable[[Any], Any]) -> Any:
        fate = self.fate(kind, operation)
        if fate in ("lost", "refused"):
            await trio.lowlevel.checkpoint()
            raise _fault(fate)
        answer = await run(operation)
        if fate == "done":
            raise _fault(fate)
        return answer


def _fault(fate: Fate) -> Exception:
    return StoreRefused("planted") if fate == "refused" else StoreUnknown("planted")
