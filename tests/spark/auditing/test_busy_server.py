"""A long history of many queues: passes clean, and every planted violation in it is found.

Here it has ten thousand events; `make bench-spark` does the same with a million.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_history.checker import check
from pushlane_history.rule import RULES, Report
from pushlane_spark.auditing import families, judging
from pushlane_spark.auditing.report import audit
from tests.spark.auditing.busy_server import broken_history, busy_history, write_files

EVENTS = 10_000


def told(report: Report) -> list[tuple[str, str, int]]:
    return sorted((one.rule, one.message, len(one.evidence)) for one in report.violations)


def test_clean_and_broken(spark: SparkSession, tmp_path: Path) -> None:
    clean, broken = tmp_path / "clean", tmp_path / "broken"
    write_files(clean, busy_history(EVENTS, 1), file_events=6_000)
    write_files(broken, broken_history(EVENTS, 1), file_events=6_000)
    reports = audit(spark, str(clean), str(broken))
    assert reports[str(clean)].ok, str(reports[str(clean)])
    assert sum(reports[str(clean)].events.values()) > EVENTS
    found = reports[str(broken)]
    assert found.broken == dict.fromkeys(RULES, 1)
    assert all(violation.evidence for violation in found.violations)
    expected = check(broken_history(EVENTS, 1))
    assert (found.events, found.notes, found.faults) == (
        expected.events, expected.notes, expected.faults,
    )  # fmt: skip
    assert told(found) == told(expected)


# Bugs of the cutting, each of which makes a clean history guilty


def _no_pairs(events: DataFrame) -> DataFrame:
    return events.select("history", "queue", F.col("queue").alias("other")).limit(0)


def _nobody(own: DataFrame, *_: Any) -> DataFrame:
    return own.withColumn("other", F.lit("")).limit(0)


def _at_home(events: DataFrame, *_: Any) -> DataFrame:
    return events.withColumn("queue", F.lit(families.HOME))


def _backwards(parts: DataFrame) -> DataFrame:
    keys = ["history", "family"]
    ordered = parts.repartition(*keys).sortWithinPartitions(*keys, F.desc("row"))
    return ordered.mapInArrow(judging._judge, judging.VERDICTS)


PLANTS: dict[str, dict[str, Callable[..., Any]]] = {
    # Messages that pass are met twice: by the transfer, and by their uid.
    "a queue apart from its dead letters": {
        "families._passages": _no_pairs,
        "families._Placed.meetings": lambda placed: _no_pairs(placed.events()),
    },
    "crashes that not all are told of": {"families._to_all": _nobody},
    "settles apart from their grants": {"families._by": _at_home},
    "another order": {"report.judge": _backwards},
}


@pytest.mark.parametrize("name", PLANTS)
def test_planted_bugs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for where, bug in PLANTS[name].items():
        monkeypatch.setattr(f"pushlane_spark.auditing.{where}", bug)
    write_files(tmp_path, busy_history(2_000, 2, crashes=2), file_events=1_000)
    assert not audit(spark, str(tmp_path))[str(tmp_path)].ok
