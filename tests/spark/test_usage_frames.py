"""Usage rows: what is read from both stores, and how counters and histograms add up."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from pushlane_spark.source import open_source
from pushlane_spark.usage_frames import (
    STORED_USAGE,
    USAGE,
    bins_of,
    decode_usage,
    of_shards,
    percentile,
    sum_up,
)
from pushlane_storage.tally import STORED, Tally, pack_tally
from pushlane_storage.usage import BINS, bin_of, bounds_of
from tests.spark.usage_store import DAY, MONDAY, UsageRow, make_folder, make_keyspace, put

ROWS = [
    UsageRow("ann", "a", MONDAY, "q1/0", {"published": 3, "dead.rejected": 1}),
    UsageRow("ann", "a", MONDAY, "q1/1", {"published": 4}),
    UsageRow("ann", "a", MONDAY, "n1.1", {"delivered": 5, "max.backlog": 7}),
    UsageRow("ann", "a", MONDAY + 59, "n2.1", {"delivered": 6, "max.backlog": 2}),
    UsageRow("ann", "a", MONDAY + DAY, "n1.1", {"delivered": 1}),
    UsageRow("ann", "", MONDAY, "n1.1", {"connection_ms": 60_000}),
    UsageRow("o'neill", "b", MONDAY, "n1.1", {"bytes_in": 2**40}),
    UsageRow("ann", "a", 0, "q1/0", {"published": 99}),
    UsageRow("ann", "a", 0, "q1/1", pack_tally(Tally(MONDAY + 2 * DAY, {"published": 9}))),
    UsageRow("ann", "a", 0, "q2/0", pack_tally(Tally(MONDAY - 2 * DAY, {STORED: 1_000}))),
    UsageRow("ann", "a", MONDAY - 2 * DAY, "q2/0", {STORED: -400, "acked": 2}),
    UsageRow("ann", "a", MONDAY, "billing", {"billing.hour.total": 5}),
    UsageRow("ann", "a", MONDAY + 2 * DAY, "n1.1", {"delivered": 100}),
    UsageRow("ann", "a", MONDAY - 1, "n1.1", {"delivered": 100}),
]
ASKED = ROWS[:7]


def counters_of(frame: DataFrame) -> set[tuple[object, ...]]:
    return {tuple(row) for row in frame.collect()}


def flat(rows: list[UsageRow]) -> set[tuple[object, ...]]:
    return {(*row[:4], name, value) for row in rows for name, value in row.counters.items()}


def frame_of(spark: SparkSession, rows: list[UsageRow]) -> DataFrame:
    return spark.createDataFrame([(*row[:4], row.packed()) for row in rows], STORED_USAGE)


@pytest.fixture(params=["sqlite", "cassandra"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    made = make_folder(tmp_path) if request.param == "sqlite" else make_keyspace("usage_frames")
    put(made, ROWS)
    return made


def test_both_stores_give_the_same(spark: SparkSession, url: str) -> None:
    source = open_source(spark, url)
    usage = source.usage(MONDAY, MONDAY + 2 * DAY - 1)
    assert usage.schema.names == USAGE.names
    assert counters_of(usage) == flat(ASKED)
    assert counters_of(source.usage(1, MONDAY + DAY - 1, "o'neill")) == flat([ROWS[6]])
    assert counters_of(source.usage(MONDAY + 5 * DAY, MONDAY + 6 * DAY)) == set()
    assert counters_of(source.usage(MONDAY, MONDAY, "nobody")) == set()
    early, late = MONDAY - 2 * DAY, MONDAY + 2 * DAY
    standings = {("ann", "a", "q1/1", late, 0, 0), ("ann", "a", "q2/0", early, 1_000, 600)}
    assert counters_of(source.standings()) == standings
    assert counters_of(source.standings("o'neill")) == set()


def test_only_what_is_asked_for_is_read(spark: SparkSession, url: str) -> None:
    plan = open_source(spark, url).usage(MONDAY, MONDAY)._jdf.queryExecution().toString()
    if url.startswith("cassandra:"):
        assert "Cassandra Direct Join" in plan
    else:
        assert "tenant IN ('ann', 'o''neill') AND minute BETWEEN" in plan


def test_counters_add_up_and_highest_counts(spark: SparkSession) -> None:
    usage = decode_usage(frame_of(spark, ASKED)).localCheckpoint()
    hours = {tuple(row)[:4]: row.value for row in sum_up(usage, 60).collect()}
    assert hours["ann", "a", MONDAY, "published"] == 7
    assert hours["ann", "a", MONDAY, "delivered"] == 11
    assert hours["ann", "a", MONDAY, "max.backlog"] == 7
    assert hours["ann", "a", MONDAY + DAY, "delivered"] == 1
    assert len(hours) == 7
    shards = {(row.queue_id, row.shard, row.name): row.value for row in of_shards(usage).collect()}
    assert shards == {
        ("q1", 0, "published"): 3,
        ("q1", 0, "dead.rejected"): 1,
        ("q1", 1, "published"): 4,
    }


def test_a_row_that_is_none_is_named(spark: SparkSession) -> None:
    stored = [("ann", "a", MONDAY, "n", msgspec.msgpack.encode({"published": 1}))]
    with pytest.raises(PythonException, match=r"the usage row .'ann', 'a', .* can't be read"):
        decode_usage(spark.createDataFrame(stored, STORED_USAGE)).collect()


def test_percentiles_lie_in_the_right_bin() -> None:
    seed = random.Random(8)
    values = sorted(int(seed.lognormvariate(4, 1.5)) for _ in range(5_000))
    counters: dict[str, int] = {"published": 7}
    for value in values:
        name = f"ack_ms.{bin_of(value)}"
        counters[name] = counters.get(name, 0) + 1
    bins = bins_of(counters, "ack_ms")
    assert sum(bins.values()) == len(values)
    for share in (0.5, 0.95, 0.99):
        exact = values[int(share * len(values)) - 1]
        found = percentile(bins, share)
        assert found is not None
        low, high = bounds_of(bin_of(exact))
        assert low <= found <= high


def test_percentiles_of_little() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({10: 4}, 0.5) == sum(bounds_of(10)) / 2
    assert percentile({10: 4}, 1) == bounds_of(10)[1]
    assert percentile({3: 1, BINS - 1: 1}, 1) == bounds_of(BINS - 1)[1]
    assert bins_of({"publish_ms.3": 0, "publish_ms.4": 2, "publish_ms_x.5": 1}, "publish_ms") == {
        4: 2
    }
