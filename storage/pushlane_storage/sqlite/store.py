"""The embedded back end: everything in one folder, one process at a time."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.damage import Damage, DamageReport
from pushlane_storage.files import file_size
from pushlane_storage.interface import Due, Outcome, StoreError
from pushlane_storage.message import Message
from pushlane_storage.note import DueShard, Note
from pushlane_storage.packing import unpack_settlement
from pushlane_storage.seal import Outline, Seal
from pushlane_storage.segment import Segment, SegmentHead
from pushlane_storage.settlement import Settlement
from pushlane_storage.sole_ownership import SoleOwnership
from pushlane_storage.sqlite import quarantine, reads
from pushlane_storage.sqlite.backup import backup, silent
from pushlane_storage.sqlite.calls import Calls, Waiting
from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.committer import Committer, Stats
from pushlane_storage.sqlite.connection import connect, connect_reader, open_database, opening
from pushlane_storage.sqlite.folder import open_folder
from pushlane_storage.sqlite.inspection import Progress
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.manifest import Manifest
from pushlane_storage.sqlite.queue_rows import SqliteCatalog
from pushlane_storage.sqlite.reader import Gate, Readers, Reading
from pushlane_storage.sqlite.schema import STEPS, Step
from pushlane_storage.sqlite.segment_reads import Found, SegmentReads
from pushlane_storage.sqlite.space import Vacuum
from pushlane_storage.sqlite.tables import Tables
from pushlane_storage.sqlite.usage_rows import SqliteUsage
from pushlane_storage.sqlite.writer import FailStop, Fuse, Tidier, Writer, exit_process
from pushlane_storage.wall import wall_clock

log = logging.getLogger(__name__)

T = TypeVar("T")


class Machinery:
    """Behind the store: the folder, its connections, and the threads that use them."""

    def __init__(
        self,
        path: Path,
        limits: Limits,
        token: trio.lowlevel.TrioToken,
        fail_stop: FailStop,
        randbytes: Callable[[int], bytes],
        steps: Sequence[Step],
    ) -> None:
        self.writes: Waiting[Tables] = Waiting(limits.waiting_calls)
        self.reads: Waiting[Reading] = Waiting(limits.waiting_reads)
        with ExitStack() as stack:
            self._folder = open_folder(path)
            self.path, self.known = self._folder.path, len(steps)
            stack.callback(self._folder.close)
            stack.enter_context(opening(self._folder))
            connection, epoch = open_database(self._folder, limits, steps)
            stack.callback(connection.close)
            self.stats = stats = Stats(epoch=epoch)
            gate, fuse = Gate(), Fuse(fail_stop)
            tables = Tables(connection, epoch, limits, randbytes)
            background = connect(self._folder.database, limits.reader_cache_bytes, limits)
            self._checkpointer = Checkpointer(connection, background, gate, limits, fuse.blow)
            stack.callback(self._checkpointer.close)
            readers = [connect_reader(self._folder.database, limits) for _ in range(limits.readers)]
            stack.callback(Readers(self.reads, readers, gate, token).close)
            committer = Committer(tables, self._checkpointer, self._folder, limits, stats)
            vacuum = Vacuum(connection, limits)
            tidier = Tidier(tables, vacuum, self._checkpointer, limits, stats)
            writer = Writer(self.writes, committer, tidier, self._checkpointer, limits, token, fuse)
            stack.callback(writer.close)
            self._closing = stack.pop_all()

    def close(self) -> None:
        """The writer and the readers finish what waits; then everything is let go."""
        self._closing.close()

    def measure(self) -> Stats:
        """What was counted, and the sizes of this moment."""
        checkpointer, folder = self._checkpointer, self._folder
        return msgspec.structs.replace(
            self.stats,
            waiting=len(self.writes),
            checkpoints=checkpointer.finished,
            checkpoints_hindered=checkpointer.hindered,
            database_bytes=file_size(folder.database),
            log_bytes=file_size(folder.log),
            free_disk_bytes=folder.free_bytes(),
        )


def _ignore(_: Damage) -> None:
    """Damage is logged, counted and kept anyway."""


class SqliteStore:
    """Made by `open`. Every write returns when it is durable."""

    def __init__(
        self,
        machinery: Machinery,
        limits: Limits,
        damaged: Callable[[Damage], None],
        wall: Callable[[], int],
    ) -> None:
        self._machinery = machinery
        self._wall = wall
        self._calls = calls = Calls(machinery.writes, machinery.reads)
        self.ownership = SoleOwnership(self._claim, self._next_epoch, self._due_shards)
        self.catalog = SqliteCatalog(calls)
        self.usage = SqliteUsage(calls)
        self._report = DamageReport(damaged, wall, limits.quarantine_rows)

    @classmethod
    async def open(
        cls,
        folder: str | Path,
        limits: Limits | None = None,
        *,
        damaged: Callable[[Damage], None] = _ignore,
        fail_stop: FailStop = exit_process,
        randbytes: Callable[[int], bytes] = secrets.token_bytes,
        wall: Callable[[], int] = wall_clock,
        steps: Sequence[Step] = STEPS,
    ) -> SqliteStore:
        """Serve a folder, which is made if need be; `OpenError` says why it can't be.

        `damaged` is told of every damaged segment that a read finds. `fail_stop` is called, by
        one of the store's threads, when nothing can be trusted any more.
        """
        token = trio.lowlevel.current_trio_token()

        bounds = limits or Limits()

        def start() -> Machinery:
            return Machinery(Path(folder), bounds, token, fail_stop, randbytes, steps)

        return cls(await trio.to_thread.run_sync(start), bounds, damaged, wall)

    def stats(self) -> Stats:
        return self._machinery.measure()

    async def time(self) -> int | None:
        await trio.lowlevel.checkpoint()
        return None

    async def close(self) -> None:
        """Finish what is under way and let go of the folder."""
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._machinery.close)

    async def backup(self, target: str | Path, progress: Progress = silent) -> Manifest:
        """Back up everything into a folder; `BackupError` says why it can't be.

        Serving goes on meanwhile. `progress` is called by a thread.
        """
        machinery = self._machinery

        def tell(stage: str, done: int, total: int) -> None:
            trio.from_thread.check_cancelled()
            progress(stage, done, total)

        def run() -> Manifest:
            return backup(
                machinery.path,
                Path(target),
                progress=tell,
                now=self._wall(),
                known=machinery.known,
            )

        return await trio.to_thread.run_sync(run)

    # Owning

    async def _claim(self, slot: int, owner: str) -> int:
        return await self._calls.write(lambda tables: tables.claim(slot, owner))

    async def _next_epoch(self, shard: ShardKey) -> int:
        return await self._calls.write(lambda tables: tables.next_epoch(shard))

    async def _due_shards(self, slot: int, until: int, limit: int) -> list[DueShard]:
        return await self._calls.read(
            lambda reading: reading.fetch(reads.due_shards, slot, until, limit)
        )

    # Writing shards

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        self._calls.write_soon(
            lambda tables: tables.append(shard, segment, opens), outcome, grows=True
        )

    def settle_soon(self, shard: ShardKey, rows: Sequence[Settlement], outcome: Outcome) -> None:
        self._calls.write_soon(lambda tables: tables.settle(shard, rows), outcome)

    async def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        await self._calls.write(lambda tables: tables.mark_bucket(shard, bucket))

    async def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        await self._calls.write(lambda tables: tables.drop(shard, key, flushes))

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        await self._calls.write(lambda tables: tables.write_seal(shard, seal))

    async def write_note(self, shard: ShardKey, note: Note) -> None:
        await self._calls.write(lambda tables: tables.write_note(shard, note))

    # Reading shards

    async def outline(self, shard: ShardKey) -> Outline:
        return await self._calls.read(lambda reading: reading.fetch(reads.outline, shard))

    async def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        return await self._read_segments(lambda read, reading: read.heads(reading, shard, key))

    async def segments(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int, last: int | None = None
    ) -> list[Segment]:
        return await self._read_segments(
            lambda read, reading: read.segments(reading, shard, key, start, limit)
        )

    async def messages(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        return await self._read_segments(
            lambda read, reading: read.messages(reading, shard, key, seqs)
        )

    async def _read_segments(self, work: Callable[[SegmentReads, Reading], T]) -> T:
        read = SegmentReads()
        found = await self._calls.read(lambda reading: work(read, reading))
        for one in read.damaged:
            await self._keep(one)
        return found

    async def _keep(self, found: Found) -> None:
        """It is in the quarantine before the read that found it returns: whoever sees a gap can
        ask why."""
        damage = self._report.take(found.shard, found.bucket, found.stored, found.reason)
        if damage is None:
            return
        self._machinery.stats.damaged += 1
        try:
            await self._calls.write(lambda tables: tables.note_damage(damage, found.stored))
        except StoreError as error:  # the read itself is as good as it can be
            log.error("a damaged segment could not be kept: %r", error)

    async def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]:
        def read(reading: Reading) -> list[Settlement]:
            rows = reading.fetch(reads.settlements, shard, key)
            return [unpack_settlement(key, *columns) for columns in rows]

        return await self._calls.read(read)

    async def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]:
        return await self._calls.read(
            lambda reading: reading.fetch(reads.due, shard, start, end, limit)
        )

    async def damaged(self, shard: ShardKey, key: BucketKey) -> list[Damage]:
        """What reads of this bucket leave out."""
        return await self._calls.read(lambda reading: reading.fetch(quarantine.read, shard, key))
