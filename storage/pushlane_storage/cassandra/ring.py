"""The seam to Cassandra: what the store asks of a ring of nodes, in terms of our tables.

Every operation ends in one of four ways. It returns: a plain write is durable at its level, a
lightweight change was applied or not. `StoreRefused`: certainly nothing was changed.
`StoreUnknown`: it may or may not have been, now or a little later.

A table is written either by lightweight transactions or plainly, never by both: they don't see
each other's order. Plain writes are the same for the same key, so a ring may repeat them.

Between two plain writes of one cell the greater `stamp` wins, and at the same stamp the greater
value; a deletion wins over writes up to its own stamp. The store gives stamps itself where order
matters: no clock decides then (stamps.py).

Several plain writes can answer as one (`write_stages`): stage by stage, those of a stage at once.
Refused is refused only when nothing of the last stage that was begun can have landed. What the
stages before it wrote (the row of a bucket, the name of a lane) says nothing by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

import msgspec

from pushlane_storage.interface import Outcome, StoreError, StoreRefused, StoreUnknown

Row = dict[str, Any]


class Level(Enum):
    """How many replicas must have answered."""

    ONE = "one"
    QUORUM = "quorum"
    ALL = "all"
    SERIAL = "serial"
    """Of reads: in the order of the lightweight transactions, unfinished ones finished first."""


class Table(msgspec.Struct, frozen=True):
    name: str
    partition: tuple[str, ...]
    clustering: tuple[str, ...]
    columns: dict[str, str]
    """Every column's CQL type, in order."""
    lightweight: bool = False
    options: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return self.partition + self.clustering


class Write(NamedTuple):
    """Rows of one partition, stored together."""

    table: Table
    rows: Sequence[Row]
    stamp: int | None = None
    """None: the ring's clock."""
    ttl: int | None = None
    """Seconds."""
    level: Level = Level.QUORUM


class Delete(NamedTuple):
    """A whole partition, or one row of it."""

    table: Table
    key: tuple[Any, ...]
    stamp: int | None = None


class Bound(NamedTuple):
    """The edge of a range: a prefix of the clustering key."""

    values: tuple[Any, ...]
    included: bool = True


class Range(NamedTuple):
    """Rows of one partition, in order of their clustering key."""

    table: Table
    partition: tuple[Any, ...]
    limit: int
    columns: tuple[str, ...] = ()
    """None named: all."""
    low: Bound | None = None
    high: Bound | None = None
    reverse: bool = False
    level: Level = Level.QUORUM


class Change(NamedTuple):
    """A lightweight transaction on one row."""

    table: Table
    key: tuple[Any, ...]
    expect: Row | None
    """Columns that must be as here; None: there must be no such row."""
    row: Row | None
    """Columns to set; None: the row goes."""


class Numbers(msgspec.Struct):
    """What a ring has done."""

    requests: int = 0
    in_flight: int = 0
    waiting: int = 0
    """For room among those in flight."""
    retries: int = 0
    unknown: int = 0
    """Answers whose outcome is unknown."""
    refused: int = 0
    nodes_down: int = 0
    """Nodes to which there is no connection."""
    nodes_suspect: int = 0
    """Nodes that left a request unanswered, and are asked last for a while."""


class Ring(Protocol):
    @property
    def numbers(self) -> Numbers: ...

    def write_soon(self, write: Write | Delete, done: Outcome) -> None:
        """`write` without waiting. `done` is called once, in the trio loop, not from in here."""
        ...

    async def write(self, write: Write | Delete) -> None: ...

    async def read(self, range: Range) -> list[Row]: ...

    async def change(self, change: Change) -> bool:
        """Whether it was applied. At QUORUM from then on, when it was."""
        ...

    async def time(self) -> int:
        """What time it is on one of the nodes, in Unix milliseconds."""
        ...

    async def close(self) -> None: ...


def check_write(write: Write | Delete) -> None:
    """Our own bugs, for every ring alike."""
    table = write.table
    assert not table.lightweight, f"{table.name} is written by lightweight transactions only"
    if isinstance(write, Write):
        assert write.rows, "nothing to write"
        assert write.level is not Level.SERIAL
        assert len({tuple(row[name] for name in table.partition) for row in write.rows}) == 1
    else:
        assert len(write.key) in (len(table.partition), len(table.key)), write.key


def check_range(range: Range) -> None:
    table = range.table
    assert len(range.partition) == len(table.partition)
    assert range.limit > 0
    assert table.lightweight or range.level is not Level.SERIAL


def check_change(change: Change) -> None:
    assert change.table.lightweight, f"{change.table.name} is written plainly"
    assert len(change.key) == len(change.table.key)
    assert change.expect is not None or change.row is not None


async def read_all(ring: Ring, range: Range) -> list[Row]:
    """Every row of a range, `range.limit` at a time. Names whole clustering keys."""
    found: list[Row] = []
    while True:
        rows = await ring.read(range)
        found += rows
        if len(rows) < range.limit:
            return found
        last = Bound(tuple(rows[-1][name] for name in range.table.clustering), included=False)
        range = range._replace(low=last)


async def read_row(
    ring: Ring, table: Table, key: tuple[Any, ...], level: Level = Level.QUORUM
) -> Row | None:
    """One row by its whole key."""
    count = len(table.partition)
    edge = Bound(key[count:]) if table.clustering else None
    rows = await ring.read(Range(table, key[:count], 1, low=edge, high=edge, level=level))
    return rows[0] if rows else None


Stage = Sequence[Write | Delete]


def write_stages(ring: Ring, stages: Sequence[Stage], done: Outcome) -> None:
    """Begin; `done` is called when the last stage is durable, or a stage failed."""
    todo = iter([stage for stage in stages if stage])

    def go_on() -> None:
        stage = next(todo, None)
        if stage is None:
            done(None)
            return
        answers: list[Exception | None] = []

        def answered(error: Exception | None) -> None:
            answers.append(error)
            if len(answers) == len(stage):
                fault = _sum_up(answers)
                if fault is None:
                    go_on()
                else:
                    done(fault)

        for write in stage:
            ring.write_soon(write, answered)

    go_on()


def _sum_up(answers: Sequence[Exception | None]) -> Exception | None:
    faults = [error for error in answers if error is not None]
    if not faults:
        return None
    for fault in faults:
        if not isinstance(fault, StoreError):
            return fault
    if len(faults) == len(answers) and all(isinstance(fault, StoreRefused) for fault in faults):
        return faults[0]
    unknown = [fault for fault in faults if isinstance(fault, StoreUnknown)]
    return unknown[0] if unknown else StoreUnknown(f"stored in part: {faults[0]}")
