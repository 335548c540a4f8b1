"""The store of a simulated world: the same plain calls, whatever keeps the rows.

Both kinds must give the same history for the same seed: what a store does is said by its
interface, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, Protocol, get_args

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.memory import MemoryTables
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Outline, Seal
from pushlane_storage.segment import Segment, SegmentHead
from pushlane_storage.settlement import Settlement
from tests.simulation.sqlite_tables import SimulatedSqlite

StoreKind = Literal["memory", "sqlite", "cassandra", "cluster"]
ALL: tuple[StoreKind, ...] = get_args(StoreKind)
KINDS: tuple[StoreKind, ...] = ("memory", "sqlite")
"""Those whose worlds are the same. A replicated one is another world, with other faults."""


class SimulatedTables(Protocol):
    """What a node and its world ask of a store. A writer is never fenced: seals must do."""

    def create_queue(self, tenant: str, name: str, config: QueueConfig) -> QueueRow: ...

    def mark_deleting(self, row: QueueRow) -> QueueRow: ...

    def remove_queue(self, row: QueueRow) -> None: ...

    def append(self, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None: ...

    def settle(self, shard: ShardKey, rows: Sequence[Settlement]) -> None: ...

    def settle_rows(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        """A flush of which only these rows reach the store."""
        ...

    def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None: ...

    def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None: ...

    def write_seal(self, shard: ShardKey, seal: Seal) -> None: ...

    def write_note(self, shard: ShardKey, note: Note) -> None: ...

    def outline(self, shard: ShardKey) -> Outline: ...

    def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]: ...

    def segments(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int
    ) -> list[Segment]: ...

    def messages(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]: ...

    def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]: ...

    def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]: ...

    def reopen(self) -> None:
        """A new process serves them: what the old one remembered is gone."""
        ...

    def audit(self) -> None:
        """Raise AssertionError where the rows contradict each other."""
        ...

    def close(self) -> None: ...


def open_tables(kind: StoreKind, seed: int) -> SimulatedTables:
    assert kind in KINDS
    return SimulatedMemory(seed) if kind == "memory" else SimulatedSqlite(seed)


class SimulatedMemory(MemoryTables):
    """The rows as they are handed in."""

    def __init__(self, seed: int) -> None:
        super().__init__(fencing=False, randbytes=Random(f"ids/{seed}").randbytes)

    def settle_rows(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        table = self._writable(shard, rows[0].owner)
        for row in rows:
            table.bucket(row.bucket).add_settlement(row)

    def reopen(self) -> None:
        """Nothing is remembered besides the rows."""

    def audit(self) -> None:
        """Nothing stands in two places."""

    def close(self) -> None:
        """There is nothing to let go of."""
