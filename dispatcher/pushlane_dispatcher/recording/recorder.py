"""The recorder: events into files, by a thread of its own.

Whoever has an event appends it to a bounded buffer and goes on. What doesn't fit, or can't be
written, is lost and counted, and a `gap` stands in its place. So does one at the beginning of each
run: a process that was killed had events in its buffer, and one that did not record left none.
When old files go, a first file says that there is a gap before the others.

Keys and dedup ids are in them, so the folder and the files that are made here are for their owner
alone, as the store's are.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import msgspec

from pushlane_history.event import (
    Begin,
    Crash,
    DamagedHistory,
    Event,
    Gap,
    decode,
    write,
)
from pushlane_storage.files import make_folder, private_opener

log = logging.getLogger(__name__)

EVERY_S = 0.05
"""How long an event may wait for company."""
CHUNK = 1_000
"""Events that are written together: a file is at most so many longer than it should be."""
TAIL = 1_000
"""Bytes at the end of a file that hold its last line, if that is how a run ends in good order."""
HEAD = "00000000.jsonl"
DEAD = ".dead"
_OPS = 20


class HistorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded, where, and how much of it is kept."""

    queues: tuple[str, ...] = ()
    """Queues whose history is recorded for the audit, with their `NAME.dead`: patterns of `NAME` or
    `TENANT/NAME`, such as `orders*`. None: nothing is recorded."""
    folder: str = "./pushlane-history"
    """Where the files are."""
    file_bytes: Annotated[int, msgspec.Meta(ge=1_000, le=1 << 40)] = 64 << 20
    """When a file is this long, the next one begins."""
    files: Annotated[int, msgspec.Meta(ge=2, le=1_000_000)] = 16
    """Files that are kept; with one more the oldest goes, and the history begins later."""
    events: Annotated[int, msgspec.Meta(ge=10, le=10_000_000)] = 100_000
    """Events that wait to be written. What comes when there are more is not recorded: a gap says
    so, and no message ever waits."""


class Recorder:
    def __init__(self, settings: HistorySettings, node: str, wall: Callable[[], int]) -> None:
        """Opens the folder; `OSError`."""
        self._settings = settings
        self._node = node
        self._wall = wall
        self._folder = Path(settings.folder)
        make_folder(self._folder)
        self._number = max((int(path.stem) for path in self._files()), default=0)
        self._size = settings.file_bytes  # so that the first event begins a file
        self._events: deque[Event] = deque()
        self._skipped = 0
        self._op = wall() << _OPS  # no other run has these
        self.labels: dict[str, str] = {}
        """Queue id to label, of those that are recorded."""
        self.recorded = self.lost = self.gaps = self.failures = 0
        self._over = threading.Event()
        for event in (*self._end_of_previous(), Gap(wall())):
            self.record(event)
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def _end_of_previous(self) -> list[Event]:
        """Whoever recorded here before, if it did not live to say that it is over."""
        if not self._number:
            return []
        with self._path(self._number).open("rb") as file:
            first = file.readline()
            file.seek(-min(TAIL, file.seek(0, 2)), 2)
            *_, last = [first, *file.read().splitlines()]
        begin, end = _decoded(first), _decoded(last)
        if not isinstance(begin, Begin) or isinstance(end, Crash):
            return []
        return [Crash(self._wall(), begin.note)]

    # What is recorded

    def follows(self, tenant: str, name: str) -> bool:
        """Whether a queue's history is wanted."""
        names = [name, name.removesuffix(DEAD)]
        names += [f"{tenant}/{each}" for each in names]
        patterns = self._settings.queues
        return any(fnmatchcase(each, pattern) for each in names for pattern in patterns)

    def op(self) -> int:
        """A number for one request."""
        self._op += 1
        return self._op

    def record(self, event: Event) -> None:
        """Write an event, soon. Only one thread may call this."""
        waiting = len(self._events)
        if self._skipped:
            if waiting > self._settings.events // 2:
                self._skip()
                return
            self._end_gap()
        elif waiting >= self._settings.events:
            log.warning("the history has a gap: more than %d events wait", self._settings.events)
            self._skip()
            return
        self._events.append(event)

    def _skip(self) -> None:
        self._skipped += 1
        self.lost += 1

    def _end_gap(self) -> None:
        self._events.append(Gap(self._wall(), lost=self._skipped))
        self.gaps += 1
        self._skipped = 0

    def numbers(self) -> dict[str, int]:
        return {
            "events": self.recorded,
            "lost": self.lost,
            "gaps": self.gaps,
            "waiting": len(self._events),
            "failures": self.failures,
        }

    def close(self) -> None:
        """Write what waits, and that this was an orderly end. It blocks."""
        if self._skipped:
            self._end_gap()
        self._events.append(Crash(self._wall(), self._node, clean=True))
        self._over.set()
        self._thread.join()

    # The thread

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        while self._events:
            count = min(CHUNK, len(self._events))
            chunk = [self._events.popleft() for _ in range(count)]
            try:
                self._write(chunk)
            except OSError as error:
                self._failed(count, error)
                return
            self.recorded += count

    def _failed(self, count: int, error: OSError) -> None:
        """A disk that is full or broken costs the history, and nothing else."""
        if not self.failures:
            log.error("the history can't be written to %s: %s", self._folder, error)
        self.failures += 1
        self.lost += count
        self._events.appendleft(Gap(self._wall(), lost=count))
        self._size = self._settings.file_bytes  # what it left behind may be half a line
        self._over.wait(1.0)

    def _write(self, events: list[Event]) -> None:
        if self._size >= self._settings.file_bytes:
            self._number += 1
            events = [Begin(self._wall(), note=self._node), *events]
            self._drop_oldest()
        with open(self._path(self._number), "ab", opener=private_opener) as file:
            write(file, events)
            self._size = file.tell()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}.jsonl"

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.jsonl") if path.stem.isdigit())

    def _drop_oldest(self) -> None:
        """Make room for one more file."""
        old = [path for path in self._files() if path.name != HEAD]
        for path in old[: max(0, len(old) + 1 - self._settings.files)]:
            self._write_head()
            path.unlink()

    def _write_head(self) -> None:
        head: Iterable[Event] = [Begin(0, note="older files are gone"), Gap(0)]
        with open(self._folder / HEAD, "wb", opener=private_opener) as file:
            write(file, head)


def _decoded(line: bytes) -> Event | None:
    try:
        return decode(line)
    except DamagedHistory:  # cut off
        return None
