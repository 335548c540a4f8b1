"""The embedded store's own SQL, without its threads and files.

Every write is a call that the store's real committer carries out, in a transaction of its own, and
every read is the store's own; the database is in memory. Between writes the real tidier sweeps what
was dropped and gives space back. Some transactions fail at their commit and are run again, as the
committer sees fit: behind savepoints, or with what stores messages left out. That comes from a
random source of its own, so that the world's history does not depend on the kind of its store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.memory import QUEUE_ID_BYTES
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.packing import unpack_settlement
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Outline, Seal
from pushlane_storage.segment import Segment, SegmentHead
from pushlane_storage.settlement import Settlement
from pushlane_storage.sqlite import queue_rows, reads
from pushlane_storage.sqlite.calls import Call
from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.committer import Committer, Stats
from pushlane_storage.sqlite.connection import PAGE_BYTES, connect
from pushlane_storage.sqlite.errors import FULL
from pushlane_storage.sqlite.folder import Folder
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.reader import Gate, Reading
from pushlane_storage.sqlite.schema import migrate
from pushlane_storage.sqlite.segment_reads import SegmentReads
from pushlane_storage.sqlite.space import Vacuum
from pushlane_storage.sqlite.tables import Tables
from pushlane_storage.sqlite.writer import Tidier

T = TypeVar("T")

MEMORY = Path(":memory:")
LIMITS = Limits(
    places=6, sweep_rows=3, sweep_bytes=600, sweep_share_bytes=100, spare_bytes=0,
    vacuum_bytes=PAGE_BYTES,
)  # fmt: skip
"""Small, so that places are forgotten and looked up, and a bucket is swept in many steps."""

HICCUP = 0.03
"""How likely a commit fails, and is run again."""
TIDY = 0.1
"""How likely the writer finds a moment to tidy up after a write."""

STEPS = 10_000
"""Far more steps than there are rows to sweep and pages to give back at the end of a run."""

UNSWEPT = "(SELECT id FROM bucket UNION ALL SELECT bucket FROM garbage)"
STRAYS = {
    "segment": f"SELECT count(*) FROM segment WHERE bucket NOT IN {UNSWEPT}",
    "settlement": f"SELECT count(*) FROM settlement WHERE bucket NOT IN {UNSWEPT}",
    "schedule": f"SELECT count(*) FROM schedule WHERE bucket NOT IN {UNSWEPT}",
    "payload": "SELECT count(*) FROM payload WHERE id NOT IN (SELECT payload FROM segment)",
    "mark": "SELECT count(*) FROM mark WHERE payload NOT IN (SELECT payload FROM segment)",
    "body": "SELECT count(*) FROM segment WHERE payload NOT IN (SELECT id FROM payload)",
    "note": "SELECT count(*) FROM note WHERE shard NOT IN (SELECT id FROM shard)",
    "bucket": "SELECT count(*) FROM bucket WHERE shard NOT IN (SELECT id FROM shard)",
}
"""Rows that belong to nothing would stay for ever."""


class NoCheckpointer(Checkpointer):
    """A database in memory has no log to copy."""

    def __init__(self) -> None:
        self.logged = 0

    def committed(self, size: int) -> None:
        assert size > 0

    def finish(self) -> None:
        raise AssertionError("the log of a database in memory is never full")


class EndlessFolder(Folder):
    """A disk that is never full."""

    def __init__(self) -> None:
        self.log = Path("/nonexistent/log")

    def free_bytes(self) -> int:
        return 1 << 60


class FailingTables(Tables):
    """Tables whose next commit may fail, once. Whoever runs it again must come to the same."""

    hiccup: int | None = None

    def commit(self) -> None:
        if self.hiccup is not None:
            code, self.hiccup = self.hiccup, None
            error = sqlite3.OperationalError("planned")
            error.sqlite_errorcode = code
            self._shards.flush()
            raise error
        super().commit()

    def create_row(self, tenant: str, name: str, id: str, config: QueueConfig) -> QueueRow:
        return queue_rows.create(self._connection, tenant, name, id, config)

    def settle_rows(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        self._shards.settle_rows(shard, rows)


class SimulatedSqlite:
    def __init__(self, seed: int) -> None:
        self._rng = Random(f"sqlite/{seed}")
        self._ids = Random(f"ids/{seed}")
        """Of queues: the same on every kind of store."""
        self._connection = connect(MEMORY, LIMITS.writer_cache_bytes, LIMITS)
        self._connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        self._connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        migrate(self._connection, MEMORY)
        self._reading = Reading(self._connection, Gate())
        self.stats = Stats(epoch=0)
        self.hiccups = 0
        self.reopen()

    def reopen(self) -> None:
        # Epoch 0, and no slot is ever claimed: nobody is fenced.
        self._tables = FailingTables(self._connection, 0, LIMITS, self._ids.randbytes)
        checkpointer = NoCheckpointer()
        self._committer = Committer(self._tables, checkpointer, EndlessFolder(), LIMITS, self.stats)
        self._vacuum = Vacuum(self._connection, LIMITS)
        self._tidier = Tidier(self._tables, self._vacuum, checkpointer, LIMITS, self.stats)

    def close(self) -> None:
        self._connection.close()

    # Writes

    def _write(self, work: Callable[[FailingTables], None], grows: bool = False) -> None:
        def run(tables: Tables) -> None:
            assert isinstance(tables, FailingTables)
            work(tables)

        if self._rng.random() < HICCUP:
            # On a full disk what stores messages would be refused, and the world knows nothing.
            self._tables.hiccup = (
                sqlite3.SQLITE_ERROR if grows else self._rng.choice((sqlite3.SQLITE_ERROR, FULL))
            )
            self.hiccups += 1
        call = Call(run, grows)
        done = self._committer.commit([call])
        assert done == 1
        if call.error is not None:
            raise call.error
        if self._rng.random() < TIDY:
            self._tidier.step()

    def create_queue(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        # Its id must not depend on how often a commit is run again.
        id = self._ids.randbytes(QUEUE_ID_BYTES).hex()
        found: list[QueueRow] = []
        self._write(lambda tables: found.append(tables.create_row(tenant, name, id, config)))
        return found[-1]

    def mark_deleting(self, row: QueueRow) -> QueueRow:
        found: list[QueueRow] = []
        self._write(lambda tables: found.append(tables.mark_deleting(row)))
        return found[-1]

    def remove_queue(self, row: QueueRow) -> None:
        self._write(lambda tables: tables.remove_queue(row))

    def append(self, shard: ShardKey, segment: Segment, opens: Bucket | None) -> None:
        self._write(lambda tables: tables.append(shard, segment, opens), grows=True)

    def settle(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        self._write(lambda tables: tables.settle(shard, rows))

    def settle_rows(self, shard: ShardKey, rows: Sequence[Settlement]) -> None:
        self._write(lambda tables: tables.settle_rows(shard, rows))

    def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        self._write(lambda tables: tables.mark_bucket(shard, bucket))

    def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        self._write(lambda tables: tables.drop(shard, key, flushes))

    def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        self._write(lambda tables: tables.write_seal(shard, seal))

    def write_note(self, shard: ShardKey, note: Note) -> None:
        self._write(lambda tables: tables.write_note(shard, note))

    # Reads

    def outline(self, shard: ShardKey) -> Outline:
        return self._reading.fetch(reads.outline, shard)

    def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        return self._segments(lambda read: read.heads(self._reading, shard, key))

    def segments(self, shard: ShardKey, key: BucketKey, start: int, limit: int) -> list[Segment]:
        return self._segments(lambda read: read.segments(self._reading, shard, key, start, limit))

    def messages(self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]) -> dict[int, Message]:
        return self._segments(lambda read: read.messages(self._reading, shard, key, seqs))

    def _segments(self, work: Callable[[SegmentReads], T]) -> T:
        read = SegmentReads()
        found = work(read)
        assert not read.damaged, f"nothing harms these rows, but {read.damaged[0]}"
        return found

    def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]:
        rows = self._reading.fetch(reads.settlements, shard, key)
        return [unpack_settlement(key, *columns) for columns in rows]

    def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]:
        return self._reading.fetch(reads.due, shard, start, end, limit)

    # Looking

    def audit(self) -> None:
        steps = 0
        while self._tidier.step():
            steps += 1
            assert steps < STEPS, "tidying up comes to no end"
        assert self._value("SELECT count(*) FROM garbage") == 0, "garbage is left"
        for table, query in STRAYS.items():
            assert self._value(query) == 0, f"a {table} row is astray"
        assert self._vacuum.free < LIMITS.vacuum_bytes // PAGE_BYTES, "space was not given back"
        assert self._value("PRAGMA integrity_check") == "ok"

    def _value(self, query: str) -> object:
        [value] = self._connection.execute(query).fetchone()
        return value
