"""The writer: one thread, one transaction at a time, one fsync for everything that gathered.

While a transaction is under way the next group gathers: one call when it is quiet, hundreds when
it is busy. When nobody wants anything it tidies up, in steps of a few milliseconds: garbage first,
then the space that it took.

When a commit fails the outcome is unknown, and a failed fsync can't be repeated: the kernel may
have dropped what it could not write. So the store stops for good, and by default the process with
it, before anybody is answered. That is the fuse: blown by the first error after which nothing can
be trusted.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import trio

from pushlane_storage.sqlite.calls import Call, Waiting, answer
from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.committer import Committer, Stats
from pushlane_storage.sqlite.errors import BUSY, FULL, StoreBroken, code_of
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.space import Vacuum
from pushlane_storage.sqlite.tables import Tables

log = logging.getLogger(__name__)
FailStop = Callable[[BaseException], None]


def exit_process(error: BaseException) -> NoReturn:
    """End the process at once, without an answer to anybody."""
    log.critical("the store failed, nothing is certain any more: exiting: %r", error)
    logging.shutdown()
    os._exit(os.EX_IOERR)


class Fuse:
    def __init__(self, fail_stop: FailStop) -> None:
        self._fail_stop = fail_stop
        self._lock = threading.Lock()
        self.blown: BaseException | None = None

    def blow(self, error: BaseException) -> None:
        """Called by any thread. Nobody gets an answer before `fail_stop` had its turn."""
        with self._lock:
            if self.blown is None:
                self._fail_stop(error)
                self.blown = error

    def error(self) -> StoreBroken:
        """What callers are told, if there still are any."""
        return StoreBroken(f"the store has stopped: {self.blown!r}")


class Tidier:
    def __init__(
        self,
        tables: Tables,
        vacuum: Vacuum,
        checkpointer: Checkpointer,
        limits: Limits,
        stats: Stats,
    ) -> None:
        self._tables = tables
        self._vacuum = vacuum
        self._checkpointer = checkpointer
        self._limits = limits
        self._stats = stats

    def step(self) -> bool:
        """One step. False says that there was nothing to do, or no room to do it."""
        try:
            return self._sweep() or self._give_back()
        except sqlite3.Error as error:
            if code_of(error) not in (FULL, BUSY):
                raise
            return False

    def _sweep(self) -> bool:
        tables = self._tables
        if not tables.garbage.there:
            return False
        try:
            tables.begin()
            swept = tables.garbage.sweep(self._limits.sweep_bytes)
            tables.commit()
        except BaseException:
            tables.rollback()
            raise
        if swept:
            self._stats.sweeps += 1
            self._checkpointer.committed(self._limits.sweep_bytes // 4)
        return swept

    def _give_back(self) -> bool:
        if not self._vacuum.due:
            return False
        written = self._vacuum.step()
        self._stats.vacuums += 1
        self._checkpointer.committed(written)
        return True


Write = Call[Tables, Any]


class Writer:
    def __init__(
        self,
        waiting: Waiting[Tables],
        committer: Committer,
        tidier: Tidier,
        checkpointer: Checkpointer,
        limits: Limits,
        token: trio.lowlevel.TrioToken,
        fuse: Fuse,
    ) -> None:
        self._waiting = waiting
        self._committer = committer
        self._tidier = tidier
        self._checkpointer = checkpointer
        self._limits = limits
        self._token = token
        self._fuse = fuse
        self._patience: float | None = 0.0
        """Seconds to wait for calls before the next step of tidying; None when all is tidy."""
        self._begun: list[Write] | None = None
        """What was taken and not answered."""
        self._tidied_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="pushlane-writer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish what waits; then the thread ends."""
        self._waiting.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (group := self._next()) is not None:
                if group:
                    self._write(group)
                else:
                    self._tidy()
            self._checkpointer.finish()
        except BaseException as error:
            self._fuse.blow(error)
        if self._fuse.blown is not None:
            self._give_up()

    def _next(self) -> list[Write] | None:
        self._begun = self._waiting.take(self._limits.group_calls, self._patience)
        return None if self._fuse.blown is not None else self._begun

    def _write(self, group: list[Write]) -> None:
        done = self._committer.commit(group)
        if done < len(group):
            self._waiting.give_back(group[done:])
            del group[done:]
        self._begun = None
        answer(self._token, group)
        self._patience = self._limits.idle_ms / 1000
        if time.monotonic() - self._tidied_at > self._limits.tidy_ms / 1000:
            self._tidied_at = time.monotonic()
            self._tidier.step()

    def _tidy(self) -> None:
        """Nobody wants anything: a step, and when there are no more, the checkpoint."""
        self._tidied_at = time.monotonic()
        if self._tidier.step():
            self._patience = 0.0
        elif self._patience != self._limits.tidy_ms / 1000:
            self._patience = self._limits.tidy_ms / 1000
        else:
            self._checkpointer.finish()
            self._patience = None

    def _give_up(self) -> None:
        begun = self._begun or []
        for call in begun:
            call.error = self._fuse.error()
        answer(self._token, [*begun, *self._waiting.shatter(self._fuse.error)])
