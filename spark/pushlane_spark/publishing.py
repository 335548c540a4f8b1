"""`publish` and `foreach_batch`: rows of a DataFrame become messages of a queue.

Spark runs a task again when it failed, and a streaming query a batch. So each message has a dedup
id made of what is the same then: the run, a hash of the row, and which of several equal rows it is.
The queue forgets such ids after its `dedup_window_ms`: a task that is repeated later than that
stops, since it can't know what was stored.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import msgspec
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pushlane.asyncio import Token
from pushlane_spark.errors import FrameUnfit, PublishFailed
from pushlane_spark.frames import BYTES, Batches, batched, rows_of, struct
from pushlane_spark.messages import numbered, shaped
from pushlane_spark.sending import (
    BATCH,
    LEAST_WINDOW_MS,
    Refusal,
    Tally,
    Target,
    check_window,
    send,
    target,
)

MARGIN_MS = 5_000
"""Clocks of machines differ."""
RUN_BYTES = 128
"""The longest name of a run: dedup ids have 256 bytes, and a hash and a number come on top."""
QUERY = "sql.streaming.queryId"
"""Where Spark tells a streaming query's id."""
WINDOW_OVER = "window_over"
_TALLY = struct(tally=BYTES)
_FAILED = "pushlane task failed: "


class PublishReport(msgspec.Struct, kw_only=True):
    """What became of the rows of one call."""

    queue: str
    run: str | None
    rows: int
    stored: int
    duplicates: int
    """Known already: stored by an earlier call of the same run, or by a task that failed then."""
    refused: dict[str, int]
    """Rows that can't be messages of this queue, by the code of their error."""
    examples: list[Refusal]
    dedup_window_ms: int | None
    """How long the queue knows what it has stored; None where it was not told."""
    seconds: float

    @property
    def ok(self) -> bool:
        return not self.refused


class _Plan(msgspec.Struct, frozen=True):
    """What a task has to know."""

    target: Target
    run: str | None
    until: float | None
    """Until when (wall clock) what this run has stored is certainly known."""


def publish(
    df: DataFrame,
    queue: str,
    *,
    url: str | None = None,
    token: Token = None,
    run: str | None = None,
    dedup: bool = True,
    order_by: str | Sequence[str] = (),
    batch: int = BATCH,
    rate: float | None = None,
    partitions: int | None = None,
    least_window_ms: int = LEAST_WINDOW_MS,
) -> PublishReport:
    """Store a message per row. `FrameUnfit`, `WindowTooShort`; `PublishFailed` when it stopped
    half-way: call it again with the same `run`, and what is stored is not stored twice.

    Columns `body` and `data` are the content, `key`, `headers`, `priority`, `delay_ms`, `ttl_ms`,
    `event_at` and `dedup` its options; without `body` and `data` all other columns are an object.
    Messages of one key are stored in the order of `order_by`. Without a name a run is a new one.
    `partitions` clients publish at once (one per core), together `rate` messages a second at most.
    """
    began = time.monotonic()
    order = [order_by] if isinstance(order_by, str) else list(order_by)
    parts = df.sparkSession.sparkContext.defaultParallelism if partitions is None else partitions
    if parts < 1:
        raise ValueError(f"partitions is {parts}: at least 1")
    to = target(queue, url, token, batch, None if rate is None else rate / parts)
    run = _run_name(run) if dedup else None
    rows = shaped(df, order_by=order, parts=parts)
    window = check_window(to, 0 if run is None else least_window_ms)
    until = None if run is None or window is None else time.time() + (window - MARGIN_MS) / 1000
    tally = _published(rows, _Plan(to, run, until))
    counts = tally.stored + tally.duplicates + sum(tally.refused.values())
    seconds = round(time.monotonic() - began, 3)
    return PublishReport(
        queue=queue, run=run, rows=counts, **msgspec.structs.asdict(tally),
        dedup_window_ms=window, seconds=seconds,
    )  # fmt: skip


def foreach_batch(
    queue: str,
    *,
    query: str | None = None,
    report: Callable[[PublishReport], object] | None = None,
    **options: Any,
) -> Callable[[DataFrame, int], None]:
    """For `writeStream.foreachBatch`: each batch is stored once, also when Spark repeats it within
    the queue's `dedup_window_ms`. Options are those of `publish`.

    A batch is known by the query's id, which its checkpoint keeps, or by `query`. Rows that are
    refused end the query (`PublishFailed`), unless `report` is there to hear of them.
    """
    if "run" in options:
        raise TypeError("a batch's run is made of the query and the batch: give query instead")

    def write(df: DataFrame, batch_id: int) -> None:
        done = publish(df, queue, run=f"{query or _query_of(df)}/{batch_id}", **options)
        if report is not None:
            report(done)
        elif not done.ok:
            _refuse(done)

    return write


def _run_name(run: str | None) -> str:
    if run is None:
        return uuid.uuid4().hex
    if not 0 < len(run.encode()) <= RUN_BYTES:
        raise ValueError(f"run has {len(run.encode())} bytes: 1 to {RUN_BYTES}")
    return run


def _query_of(df: DataFrame) -> str:
    found = df.sparkSession.sparkContext.getLocalProperty(QUERY)
    if found is None:
        raise FrameUnfit("Spark names no streaming query here: say foreach_batch(…, query=NAME)")
    return str(found)


def _refuse(report: PublishReport) -> NoReturn:
    first = report.examples[0]
    count = sum(report.refused.values())
    raise PublishFailed(first.code, f"{count} of {report.rows} rows refused: {first.message}")


def _published(rows: DataFrame, plan: _Plan) -> Tally:
    tally = Tally()
    try:
        found = rows.mapInArrow(partial(_task, plan), _TALLY).collect()
    except (PySparkException, Py4JJavaError) as error:
        failed = re.search(f"{_FAILED}(\\w+): (.*)", str(error))
        if failed is None:
            raise
        raise PublishFailed(failed[1], failed[2]) from error
    for row in found:
        tally.add(msgspec.msgpack.decode(row.tally, type=Tally))
    return tally


def _task(plan: _Plan, batches: Batches) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    again = context is not None and context.attemptNumber() > 0
    try:
        if again and plan.until is not None and time.time() > plan.until:
            message = "a task was repeated after the queue's dedup_window_ms: raise it"
            raise PublishFailed(WINDOW_OVER, message)
        tally = send(plan.target, numbered(rows_of(batches), plan.run))
    except PublishFailed as error:
        raise RuntimeError(f"{_FAILED}{error}") from None
    yield from batched([{"tally": msgspec.msgpack.encode(tally)}], _TALLY, 1)
