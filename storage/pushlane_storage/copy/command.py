"""What `pushlane store copy` prints, and how it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

import msgspec
import trio

from pushlane_storage.copy.errors import CopyError, CopyRefused
from pushlane_storage.copy.record import Counts
from pushlane_storage.copy.run import Copied, Progress, copy

FAILED, REFUSED, DAMAGED = 1, 2, 3
SHOWN = 10
"""Damaged rows that are named one by one."""
LINE_S = 30.0
"""Between two lines of progress, where there is no terminal."""


def run(source: str, target: str, *, dry_run: bool, json: bool) -> None:
    try:
        with telling(sys.stderr) as tell:
            done = trio.run(lambda: copy(source, target, dry_run=dry_run, progress=tell))
    except CopyError as error:
        _end(REFUSED if isinstance(error, CopyRefused) else FAILED, str(error))
    except (KeyboardInterrupt, BaseExceptionGroup) as error:  # one of them, or in a nursery
        if isinstance(error, BaseExceptionGroup) and error.split(KeyboardInterrupt)[1]:
            raise
        _end(FAILED, "stopped: run it again, and it goes on")
    if json:
        print(msgspec.json.format(msgspec.json.encode(done), indent=2).decode())
    else:
        print(summary(done))
    if done.record is not None and done.record.copied.damaged:
        _end(DAMAGED, damage_in(done, done.record.copied.damaged))


def damage_in(done: Copied, count: int) -> str:
    """Rows are named by the run that has verified them; later ones know their number."""
    text = f"{count} damaged rows in the source, copied as they are"
    if done.verified is None:
        return text
    names = done.verified.damaged[:SHOWN]
    more = [f"and {count - SHOWN} more"] if count > SHOWN else []
    return f"{text}: {', '.join([*names, *more])}"


def summary(done: Copied) -> str:
    if done.outcome == "planned":
        counts, record = done.plan, done.record
        goes_on = f", {record.copied.messages} messages of it copied before" if record else ""
        return (
            f"would copy {done.source} to {done.target}: {counts.queues} queues,"
            f" {counts.shards} shards, {counts.messages} messages in {counts.buckets}"
            f" buckets{goes_on}"
        )
    record = done.record
    assert record is not None
    if done.outcome == "finished before":
        return (
            f"{done.target} is a finished copy of {done.source} already: {_told(record.copied)},"
            f" checksum {record.checksum}"
        )
    return (
        f"copied {done.source} to {done.target}: {_told(record.copied)}\n"
        f"verified on both sides: {record.copied.shards} shards, checksum {record.checksum};"
        f" servers begin with epoch {record.epoch + 1}"
    )


def _told(counts: Counts) -> str:
    return (
        f"{counts.queues} queues, {counts.messages} messages in {counts.segments} segments,"
        f" {counts.settlements} settlements, {counts.scheduled} scheduled"
    )


def _end(status: int, text: str) -> NoReturn:
    print(f"pushlane store: {text}", file=sys.stderr)
    sys.exit(status)


@contextmanager
def telling(file: TextIO) -> Iterator[Progress]:
    """A bar on a terminal, else a line now and then."""
    if not file.isatty():
        yield Lines(file)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import (
        Progress as Bar,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("messages"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(file=file), transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(stage: str, done: int, total: int) -> None:
            bar.update(task, description=stage, completed=done, total=total or None)

        yield tell


class Lines:
    """Progress for a log: when a stage begins to last, and then now and then."""

    def __init__(self, file: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._next = clock() + LINE_S

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + LINE_S
            of = f": {done} of {total} messages" if total else ""
            print(f"pushlane store: {stage}{of}", file=self._file, flush=True)
