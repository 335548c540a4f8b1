"""Counters of a period, by window, queue and shard."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from pushlane_spark.measuring.series import (
    BACKLOG,
    causes_of,
    count,
    dead_rate,
    retry_rate,
    skew,
    step_of,
    together,
)
from pushlane_spark.period import Minutes
from pushlane_spark.usage_frames import USAGE
from tests.spark.usage_store import DAY, MONDAY


@pytest.mark.parametrize(
    ("minutes", "step"), [(1, 1), (200, 1), (201, 5), (DAY, 15), (7 * DAY, 60), (900 * DAY, DAY)]
)
def test_windows_are_few_enough(minutes: int, step: int) -> None:
    assert step_of(Minutes(MONDAY, MONDAY + minutes)) == step


def test_a_frame(spark: SparkSession) -> None:
    usage = [
        ("ann", "a", MONDAY, "qa/0", "published", 3),
        ("ann", "a", MONDAY, "qa/1", "published", 9),
        ("ann", "a", MONDAY + 4, "n.1", BACKLOG, 10),
        ("ann", "a", MONDAY + 3, "n.1", BACKLOG, 8),
        ("ann", "b", MONDAY + 3, "n.1", BACKLOG, 5),
        ("ann", "a", MONDAY, "n.1", "max.oldest_ms", 70),
        ("ann", "b", MONDAY, "n.1", "max.oldest_ms", 50),
        ("ann", "a", MONDAY + 5, "qa/0", "published", 1),
        ("bob", "a", MONDAY, "qx/0", "published", 100),
    ]
    found = count(spark.createDataFrame(usage, USAGE), 5)
    assert found.windows == {
        ("ann", MONDAY): {"published": 12, BACKLOG: 15, "max.oldest_ms": 70},
        ("ann", MONDAY + 5): {"published": 1},
        ("bob", MONDAY): {"published": 100},
    }
    assert found.queues["ann", "a"] == {"published": 13, BACKLOG: 10, "max.oldest_ms": 70}
    assert found.shards == {("ann", "a"): {0: 4, 1: 9}, ("bob", "a"): {0: 100}}


def test_counters_of_tenants() -> None:
    parts = [{"acked": 1, BACKLOG: 2, "max.oldest_ms": 7}, {"acked": 3, BACKLOG: 4}]
    assert together(parts) == {"acked": 4, BACKLOG: 6, "max.oldest_ms": 7}


def test_rates() -> None:
    counters = {"acked": 95, "dead.rejected": 3, "dead.max_attempts": 2, "expired": 1}
    assert dead_rate(counters) == 0.05
    assert dead_rate({}) is None
    assert retry_rate({"delivered": 10, "retried": 1}) == 0.1
    assert retry_rate({}) is None
    assert causes_of(counters) == {"rejected": 3, "max_attempts": 2, "expired": 1}


def test_skew() -> None:
    assert skew({0: 30, 1: 10}) == 1.5
    assert skew({0: 30}) is None
    assert skew({0: 0, 1: 0}) is None
