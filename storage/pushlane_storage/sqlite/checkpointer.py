"""Checkpoints: copying the write-ahead log into the database file without stalling the writer.

A background thread copies the bulk of the log while the writer goes on writing to its end. When
little is left the writer copies that itself, between two transactions and with the readers held
back: then nothing is left, and the next transaction starts the log anew. If readers don't step
aside (a backup may read for long) the log goes on growing, up to its limit.

SQLite before 3.51.3 can lose data when a pass begins on a log that is copied completely and a
write starts the log anew meanwhile (sqlite.org/wal.html#walresetbug). So a background pass only
ever begins right after a commit that followed the last pass: there is something left to copy,
and the log can't start anew before the pass is over.
"""

import sqlite3
import threading
from collections.abc import Callable

from pushlane_storage.sqlite.errors import BUSY, FULL, code_of
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.reader import Gate

PASS = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpointer:
    """Everything but `_run` is called by the writer's thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        background: sqlite3.Connection,
        gate: Gate,
        limits: Limits,
        fail: Callable[[BaseException], None],
    ) -> None:
        """`connection` is the writer's. `fail` is told of a disk at fault, by any thread."""
        self._connection = connection
        self._background = background
        self._gate = gate
        self._limits = limits
        self._fail = fail
        self._wanted = threading.Semaphore(0)
        self._over = threading.Event()
        self._stop = False
        self._running = False
        self._passes = 0
        """Background passes since the log last started anew."""
        self._left = 0
        """Bytes written since the last pass began."""
        self._fresh = 0
        """Bytes written since the last pass was seen to be over."""
        self.logged = 0
        """Bytes in the log, as far as we know."""
        self.finished = 0
        """How often nothing was left in the log."""
        self.hindered = 0
        """How often readers kept something in it."""
        self._thread = threading.Thread(target=self._run, name="pushlane-checkpointer", daemon=True)
        self._thread.start()

    def committed(self, size: int) -> None:
        """A commit put about this much into the log. Begin or finish a checkpoint in time."""
        self.logged += size
        self._left += size
        self._fresh += size
        if self._running:
            if not self._over.is_set():
                return
            self._running = False
            self._fresh = 0
            if self._left <= self._limits.finish_bytes or self._passes >= self._limits.passes:
                self.finish()
        elif self.logged >= self._limits.checkpoint_bytes and self._fresh:
            self._begin()

    def _begin(self) -> None:
        self._running = True
        self._passes += 1
        self._left = 0
        self._over.clear()
        self._wanted.release()

    def finish(self) -> None:
        """Copy what is left, here and now."""
        if self._running:
            self._over.wait()
            self._running = False
        if not self.logged:
            return
        with self._gate.shut(self._limits.gate_ms / 1000):
            done = self._copy(self._connection)
        self._passes = 0
        self._left = self._fresh = 0
        if done:
            self.logged = 0
            self.finished += 1
        else:
            self.hindered += 1

    def close(self) -> None:
        self._stop = True
        self._wanted.release()
        self._thread.join()
        self._background.close()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            if self._stop:
                return
            self._copy(self._background)
            self._over.set()

    def _copy(self, connection: sqlite3.Connection) -> bool:
        """One pass. True: all that was in the log when it began has been copied."""
        try:
            busy, logged, copied = connection.execute(PASS).fetchone()
        except sqlite3.Error as error:
            if code_of(error) not in (FULL, BUSY):
                self._fail(error)
            return False
        return not busy and logged == copied
