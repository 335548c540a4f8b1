"""The machinery behind the store: the folder, its connections, and the threads that use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import trio

from pushlane_storage.files import file_size
from pushlane_storage.sqlite.calls import Waiting
from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.committer import Committer, Stats
from pushlane_storage.sqlite.connection import connect, connect_reader, open_database, opening
from pushlane_storage.sqlite.folder import open_folder
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.reader import Gate, Readers, Reading
from pushlane_storage.sqlite.schema import Step
from pushlane_storage.sqlite.space import Vacuum
from pushlane_storage.sqlite.tables import Tables
from pushlane_storage.sqlite.writer import FailStop, Fuse, Tidier, Writer


class Machinery:
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
