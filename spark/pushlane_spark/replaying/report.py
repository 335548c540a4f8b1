"""The replay as a whole: from the archive to a queue, with a report."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pushlane.asyncio import Token
from pushlane_spark.queue import read_queue
from pushlane_spark.replaying import bookmark
from pushlane_spark.replaying.bookmark import Bookmark
from pushlane_spark.replaying.choosing import ENDED, Choice, chosen, message_from, ordered
from pushlane_spark.sending import (
    BATCH,
    LEAST_WINDOW_MS,
    Outgoing,
    Refusal,
    Tally,
    Target,
    check_window,
    send,
    target,
)

NAME = "replay"
Progress = Callable[[int, int], object]
"""Hears how many of how many messages are done."""


class ReplayReport(msgspec.Struct, kw_only=True):
    queue: str
    to: str
    dry_run: bool
    messages: int
    """That were chosen."""
    states: dict[str, int]
    bytes: int
    first_at: datetime | None
    last_at: datetime | None
    """When they were published."""
    done_before: int = 0
    """By an earlier run with the same bookmark."""
    stored: int = 0
    duplicates: int = 0
    """That the queue knows from an earlier run."""
    refused: dict[str, int] = {}
    examples: list[Refusal] = []
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.refused


def run(
    spark: SparkSession,
    archive: str | None,
    *,
    queue: str,
    to: str,
    store: str | None = None,
    tenant: str = "default",
    since: datetime | None = None,
    until: datetime | None = None,
    keys: Sequence[str] | None = None,
    headers: Mapping[str, str] | None = None,
    states: Sequence[str] = ENDED,
    rate: float | None = None,
    batch: int = BATCH,
    name: str = NAME,
    bookmark_file: str | Path | None = None,
    dry_run: bool = False,
    url: str | None = None,
    token: Token = None,
    least_window_ms: int = LEAST_WINDOW_MS,
    progress: Progress | None = None,
) -> ReplayReport:
    """Publish the messages of a queue's archive, or of its store, to `to`; `QueueUnknown`,
    `WindowTooShort`, `BookmarkUnfit`, and `PublishFailed` when it stopped half-way.

    Run again within the dedup window of `to` it stores nothing twice; `name` makes it another
    replay. With a bookmark it goes on where it stopped, however long ago that was.
    """
    began = time.monotonic()
    choice = Choice(keys=keys, headers=headers or {}, states=states)
    goal = target(to, url, token, batch, rate)
    found = read_queue(
        spark, store, queue, tenant=tenant, archive=archive, since=since, until=until
    )
    messages = chosen(found, choice)
    report = _counted(messages, queue, to, dry_run)
    if not dry_run and report.messages:
        check_window(goal, least_window_ms)
        replay = bookmark.name_of(tenant, queue, to, name, choice, since, until)
        place = None if bookmark_file is None else Path(bookmark_file)
        work = _Replay(queue, name, replay, place, progress, report)
        work.run(messages, goal)
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _counted(messages: DataFrame, queue: str, to: str, dry_run: bool) -> ReplayReport:
    at = F.unix_micros("published_at")
    numbers = (F.count("*").alias("n"), F.sum("size").alias("size"), F.min(at), F.max(at))
    rows = messages.groupBy("state").agg(*numbers).collect()
    times = [moment for row in rows for moment in row[3:]]
    return ReplayReport(
        queue=queue,
        to=to,
        dry_run=dry_run,
        messages=sum(row.n for row in rows),
        states={row.state: row.n for row in sorted(rows)},
        bytes=sum(row["size"] for row in rows),
        first_at=_time(min(times, default=None)),
        last_at=_time(max(times, default=None)),
    )


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


class _Replay:
    """One run: what is sent is noted, and then told."""

    def __init__(
        self,
        queue: str,
        name: str,
        replay: str,
        file: Path | None,
        progress: Progress | None,
        report: ReplayReport,
    ) -> None:
        self._queue = queue
        self._name = name
        self._replay = replay
        self._file = file
        self._progress = progress
        self._report = report
        self._sent: deque[Row] = deque()
        self._done = 0

    def run(self, messages: DataFrame, goal: Target) -> None:
        rows = ordered(messages)
        before = None if self._file is None else bookmark.load(self._file, self._replay)
        if before is not None:
            rows = rows.where(before.behind())
            self._done = self._report.done_before = before.done
        tally = send(goal, self._messages(rows), self._tell)
        self._add(tally)

    def _messages(self, rows: DataFrame) -> Iterator[Outgoing]:
        for row in rows.toLocalIterator(prefetchPartitions=True):
            self._sent.append(row)
            yield message_from(row, self._queue, self._name)

    def _tell(self, count: int) -> None:
        """So many of those that were sent are stored, or refused."""
        last = [self._sent.popleft() for _ in range(count)][-1]
        self._done += count
        if self._file is not None:
            bookmark.save(self._file, self._mark(last))
        if self._progress is not None:
            self._progress(self._done, max(self._done, self._report.messages))

    def _mark(self, row: Row) -> Bookmark:
        return bookmark.bookmark_at(self._replay, row, self._done)

    def _add(self, tally: Tally) -> None:
        report = self._report
        report.stored, report.duplicates = tally.stored, tally.duplicates
        report.refused, report.examples = tally.refused, tally.examples
