"""The writer: one thread, one transaction at a time, one fsync for everything that gathered.

Outcomes. A call that can't be carried out fails alone: it is checked before it writes. If one
fails after all, the transaction is undone and run again call by call, each behind a savepoint.
A full disk undoes the transaction before its commit mark is written: appends are refused, and
the others are tried again without them. Any other error of the disk or the file, at the commit
above all, leaves everything unknown. A failed fsync can't be repeated: the kernel may have
dropped what it could not write. So the store stops for good, and with it the process.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import trio

from pushlane_storage.interface import StoreError, StoreRefused
from pushlane_storage.sqlite.call import Call, answer
from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.errors import BUSY, FULL, StoreBroken, code_of, is_fault
from pushlane_storage.sqlite.folder import Folder
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.stats import Stats
from pushlane_storage.sqlite.tables import Tables
from pushlane_storage.sqlite.vacuum import Vacuum

Write = Call[Tables, Any]
FailStop = Callable[[BaseException], None]

COMMIT_BYTES = 16_384
"""What a commit adds to the log besides what it was asked to store: inner pages, counters."""


class Writer:
    def __init__(
        self,
        tables: Tables,
        vacuum: Vacuum,
        checkpointer: Checkpointer,
        folder: Folder,
        limits: Limits,
        stats: Stats,
        token: trio.lowlevel.TrioToken,
        fail_stop: FailStop,
    ) -> None:
        self._tables = tables
        self._vacuum = vacuum
        self._checkpointer = checkpointer
        self._folder = folder
        self._limits = limits
        self._stats = stats
        self._token = token
        self._fail_stop = fail_stop
        self._change = threading.Condition()
        self._waiting: list[Write] = []
        self._sleeping = False
        self._closing = False
        self._untidy = True
        self._tidied_at = 0.0
        self.broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pushlane-writer", daemon=True)
