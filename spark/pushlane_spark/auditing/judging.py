"""The checker, run on each part of a history, in the order of its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec
from pyspark.sql import DataFrame

from pushlane_history.checker import Checker
from pushlane_history.event import DamagedHistory, decode
from pushlane_history.rule import Report
from pushlane_spark.auditing.families import HOME
from pushlane_spark.auditing.lines import PLACE
from pushlane_spark.frames import LONG, TEXT, Batches, batched, rows_of, struct

VERDICTS = struct(
    struct(history=TEXT, family=TEXT, kind=TEXT, name=TEXT),
    struct(count=LONG, message=TEXT, evidence=TEXT),
)
"""What was found in a part. `kind` says what `name` is: a `violation` of this rule with its
message and its evidence (a JSON list of events), `broken`, `event`, `note` and `fault` are counts,
and `unfit` is a file with a line that is no event."""
SHOWN = 200
"""Characters of such a line that are shown."""


def judge(parts: DataFrame) -> DataFrame:
    """`VERDICTS` on `PARTS`. One machine judges a family from its first event to its last."""
    keys = ["history", "family"]
    ordered = parts.repartition(*keys).sortWithinPartitions(*keys, *PLACE)
    return ordered.mapInArrow(_judge, VERDICTS)


def _judge(batches: Batches) -> Batches:
    def found() -> Iterator[dict[str, Any]]:
        for key, rows in groupby(rows_of(batches), lambda row: (row["history"], row["family"])):
            history, family = key
            for kind, name, count, *evidence in judge_family(family, rows):
                message, events = evidence or (None, None)
                verdict = {"kind": kind, "name": name, "count": count, "message": message}
                yield {"history": history, "family": family, **verdict, "evidence": events}

    return batched(found(), VERDICTS, 1_000)


def judge_family(family: str, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """(kind, name, count), and with violations (message, evidence)."""
    checker = Checker(part=family != HOME)
    events: Counter[str] = Counter()
    for row in rows:
        try:
            event = decode(row["line"])
            checker.feed(event)
        except DamagedHistory as error:
            yield "unfit", row["file"], 1, f"{error}: {row['line'][:SHOWN]}", None
            return
        if not row["copy"]:
            events[str(event.__struct_config__.tag)] += 1
    yield from _verdicts(checker.finish(), events, is_home=family == HOME)


def _verdicts(report: Report, events: Counter[str], *, is_home: bool) -> Iterator[tuple[Any, ...]]:
    for violation in report.violations:
        evidence = msgspec.json.encode(violation.evidence).decode()
        yield "violation", violation.rule, 1, violation.message, evidence
    # Faults were told to all families: each is counted where it is no copy.
    faults = report.faults if is_home else {}
    counts = {"broken": report.broken, "event": events, "note": report.notes, "fault": faults}
    for kind, found in counts.items():
        for name, count in found.items():
            yield kind, name, count
