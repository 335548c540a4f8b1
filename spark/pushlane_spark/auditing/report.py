"""The audit as a whole: from files to a report on each history, as the checker would write it, and
one report on all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession

from pushlane_history.event import AnyEvent, Event
from pushlane_history.rule import KEPT_VIOLATIONS, Report, Violation
from pushlane_spark.auditing.families import cut, parse
from pushlane_spark.auditing.judging import judge
from pushlane_spark.auditing.lines import read_lines
from pushlane_spark.errors import HistoryUnfit

BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
LINES_AT_ONCE = 5_000
_evidence = msgspec.json.Decoder(tuple[AnyEvent, ...])


def audit(spark: SparkSession, *paths: str) -> dict[str, Report]:
    """A report on each of these histories, by its path; `HistoryUnfit`."""
    reports = audit_lines(read_lines(spark, paths))
    return {path: reports.get(path, Report()) for path in paths}


def audit_lines(lines: DataFrame) -> dict[str, Report]:
    """A report on each history in `LINES`, by its path."""
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


class Judged(msgspec.Struct, frozen=True):
    history: str
    events: int
    violations: int


class Found(msgspec.Struct, frozen=True):
    history: str
    rule: str
    message: str
    evidence: tuple[Event, ...]


class AuditReport(msgspec.Struct):
    ok: bool
    broken: dict[str, int]
    """How often each rule was broken."""
    histories: list[Judged]
    violations: list[Found]
    """The first ones of each history, with their evidence."""


def summary(reports: Mapping[str, Report]) -> AuditReport:
    broken: dict[str, int] = {}
    found = AuditReport(all(report.ok for report in reports.values()), broken, [], [])
    for path, report in reports.items():
        counts = sum(report.events.values()), sum(report.broken.values())
        found.histories.append(Judged(path, *counts))
        for rule, count in report.broken.items():
            broken[rule] = broken.get(rule, 0) + count
        found.violations += [
            Found(path, one.rule, one.message, one.evidence) for one in report.violations
        ]
    return found
