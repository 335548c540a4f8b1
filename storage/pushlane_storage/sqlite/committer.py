"""The committer: carries out a group of calls in one transaction.

A call that can't be carried out fails alone: it is checked before it writes. Should one fail
later after all, the transaction is undone and run again call by call, each behind a savepoint.
A full disk undoes it before its commit mark is written, so appends are certainly not stored:
they are refused, and the others tried again without them. Whatever else the disk or the file
does leaves everything unknown, and is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pushlane_storage.files import file_size
from pushlane_storage.interface import StoreError, StoreRefused
from pushlane_storage.sqlite.calls import Call
from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.errors import BUSY, FULL, code_of, is_fault
from pushlane_storage.sqlite.folder import Folder
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.tables import Tables


class Stats(msgspec.Struct, kw_only=True):
    epoch: int
    """Of this opening."""
    commits: int = 0
    calls: int = 0
    """Writes in those commits: `calls / commits` is the mean size of a group."""
    largest_group: int = 0
    alone: int = 0
    """Groups that were run call by call, because one of their calls could not be carried out."""
    refused_full: int = 0
    """Appends refused because the disk was full, or nearly."""
    refused_log: int = 0
    """Appends refused because the write-ahead log was over its limit."""
    damaged: int = 0
    """Damaged segments found."""
    sweeps: int = 0
    vacuums: int = 0
    checkpoints: int = 0
    checkpoints_hindered: int = 0
    """Checkpoints that left something in the log because of a reader."""
    waiting: int = 0
    """Writes that wait for a transaction."""
    database_bytes: int = 0
    log_bytes: int = 0
    free_disk_bytes: int = 0


Write = Call[Tables, Any]

COMMIT_BYTES = 8_192
"""What a commit adds to the log besides what it was asked to store: inner pages, counters."""

DISK_FULL = "the disk is full"
DISK_NEARLY_FULL = "the disk is nearly full: what is left is for settling"
LOG_FULL = "the write-ahead log is full, and a reader keeps it from being copied"


class Committer:
    def __init__(
        self,
        tables: Tables,
        checkpointer: Checkpointer,
        folder: Folder,
        limits: Limits,
        stats: Stats,
    ) -> None:
        self._tables = tables
        self._checkpointer = checkpointer
        self._folder = folder
        self._limits = limits
        self._stats = stats
        self._refusal: str | None = None
        """Why appends are refused in this transaction."""
        self._finish_at = 0.0
        """Monotonic: not before this is a log over its limit looked at again."""

    def commit(self, calls: Sequence[Write]) -> int:
        """Carry out calls from the first on, as many as fit; how many that were."""
        self._refusal = self._shortage() if any(call.grows for call in calls) else None
        run = self._together
        while True:
            try:
                count = self._transact(calls, run)
            except Exception as error:
                code = code_of(error)
                if code == BUSY or (code == FULL and self._refusal == DISK_FULL):
                    return self._refuse_all(calls, error)
                if code == FULL:
                    self._refusal = DISK_FULL
                elif is_fault(error) or run == self._singly:
                    raise
                else:
                    self._stats.alone += 1
                    run = self._singly
            else:
                self._count(count)
                # Only what certainly went into the log: the checkpointer relies on it.
                if run == self._together and self._tables.changed:
                    self._checkpointer.committed(self._tables.bytes + COMMIT_BYTES)
                return count

    def _transact(self, calls: Sequence[Write], run: Callable[[Sequence[Write]], int]) -> int:
        tables = self._tables
        try:
            tables.begin()
            count = run(calls)
            if tables.garbage.there:
                # More than it adds: garbage must not pile up on a store that is never idle.
                tables.garbage.sweep(max(2 * tables.bytes, self._limits.sweep_share_bytes))
            tables.commit()
        except BaseException:
            tables.rollback()
            raise
        return count

    def _together(self, calls: Sequence[Write]) -> int:
        tables, bound = self._tables, self._limits.group_bytes
        for number, call in enumerate(calls):
            if tables.bytes >= bound:
                return number
            call.error = None
            try:
                if call.grows and self._refusal is not None:
                    self._refuse(call)
                else:
                    call.value = call.work(tables)
            except (StoreError, AssertionError) as error:
                call.error = error
        return len(calls)

    def _singly(self, calls: Sequence[Write]) -> int:
        for number, call in enumerate(calls):
            if self._tables.bytes >= self._limits.group_bytes:
                return number
            call.error = None
            self._tables.savepoint()
            try:
                if call.grows and self._refusal is not None:
                    self._refuse(call)
                call.value = call.work(self._tables)
                self._tables.release()
            except Exception as error:
                if is_fault(error):
                    raise
                self._tables.back_to_savepoint()
                call.error = error
        return len(calls)

    # Refusing

    def _shortage(self) -> str | None:
        """Why no appends can be taken right now."""
        if self._folder.free_bytes() < self._limits.reserve_bytes:
            return DISK_NEARLY_FULL
        if file_size(self._folder.log) > self._limits.wal_bytes and self._checkpointer.logged:
            now = time.monotonic()
            if now >= self._finish_at:
                self._finish_at = now + self._limits.push_back_ms / 1000
                self._checkpointer.finish()
            if self._checkpointer.logged:
                return LOG_FULL
        return None

    def _refuse(self, call: Write) -> None:
        if self._refusal == LOG_FULL:
            self._stats.refused_log += 1
        else:
            self._stats.refused_full += 1
        raise StoreRefused(self._refusal)

    def _refuse_all(self, calls: Sequence[Write], error: Exception) -> int:
        for call in calls:
            call.error = StoreRefused(f"the disk took nothing: {error}")
        return len(calls)

    def _count(self, calls: int) -> None:
        stats = self._stats
        stats.commits += 1
        stats.calls += calls
        stats.largest_group = max(stats.largest_group, calls)
