"""The audit as a whole: from files to a report on each history, as the checker would write it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from pushlane_spark.auditing.families import cut, parse
from pushlane_spark.auditing.judging import judge
from pushlane_spark.auditing.lines import read_lines
from pushlane_spark.errors import HistoryUnfit
from pushlane_storage.history.event import AnyEvent
from pushlane_storage.history.rule import KEPT_VIOLATIONS, Report, Violation

BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
LINES_AT_ONCE = 5_000
_evidence = msgspec.json.Decoder(tuple[AnyEvent, ...])


def audit(spark: SparkSession, *paths: str) -> dict[str, Report]:
    """A report on each of these histories, by its path; `HistoryUnfit`."""
    reports = audit_lines(read_lines(spark, paths))
    return {path: reports.get(path, Report()) for path in paths}


def audit_lines(lines: DataFrame) -> dict[str, Report]:
    """The same on `LINES`."""
    events = parse(lines).persist()
    try:
        with _larger_batches(lines.sparkSession):
            verdicts = judge(cut(events)).collect()
    finally:
        events.unpersist()
    reports: dict[str, Report] = {}
    for row in sorted(verdicts, key=lambda row: (row.kind != "unfit", row.family)):
        _add(reports.setdefault(row.history, Report()), row)
    return reports


@contextmanager
def _larger_batches(spark: SparkSession) -> Iterator[None]:
    """Lines are much smaller than segments, which the session is made for."""
    before = spark.conf.get(BATCH)
    spark.conf.set(BATCH, LINES_AT_ONCE)
    try:
        yield
    finally:
        spark.conf.set(BATCH, before or "")


def _add(report: Report, row: Row) -> None:
    if row.kind == "unfit":
        raise HistoryUnfit(f"{row.name} can't be audited: {row.message}")
    if row.kind == "violation":
        if len(report.violations) < KEPT_VIOLATIONS:
            evidence = _evidence.decode(row.evidence)
            report.violations.append(Violation(row.name, row.message, evidence))
        return
    counts = {
        "broken": report.broken,
        "event": report.events,
        "note": report.notes,
        "fault": report.faults,
    }[row.kind]
    counts[row.name] = counts.get(row.name, 0) + row["count"]
