"""What is archived, and what is not; and bugs that must not get through."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_spark.retaining import archiving, job, plan
from pushlane_spark.retaining.archiving import Archivist, judge
from pushlane_spark.retaining.commits import Archived
from pushlane_spark.retaining.job import run
from pushlane_spark.retaining.plan import MARKS, OWNER, make_plan
from pushlane_storage import dropping
from tests.spark.retaining.ledger import find, violations
from tests.spark.retaining.made import LATER, Made, make_store, seal_off


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_store(tmp_path / "store")


@pytest.fixture
def archive(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def buckets(made: Made) -> int:
    with closing(sqlite3.connect(made.url.partition(":")[2] + "/pushlane.db")) as connection:
        [[found]] = connection.execute("SELECT count(*) FROM bucket").fetchall()
        return int(found)


def test_drained_buckets_that_are_whole(spark: SparkSession, made: Made, archive: str) -> None:
    report = run(spark, made.url, archive=archive, now=LATER)
    assert report.archived_messages == 10
    [queue] = report.queues
    assert (queue.tenant, queue.archived_buckets, queue.dropped_buckets) == ("default", 3, 2)
    assert queue.waiting == {MARKS: 1, OWNER: 1}
    [unfit] = report.unfit
    assert "2 of 4 messages could be read" in unfit.reason
    assert buckets(made) == 3
    found = find(spark, made.url, archive)
    assert violations(made.ledger, found) == []
    assert sorted(state for _, _, state in found.archive) == ["acked"] * 9 + ["expired"]
    later = run(spark, made.url, archive=archive, now=LATER + 10 * 86_400_000)
    assert (later.archived_messages, later.dropped_buckets) == (0, 1)
    assert violations(made.ledger, find(spark, made.url, archive)) == []


def test_what_lies_beyond_a_seal_is_not_archived_and_counted(
    spark: SparkSession, made: Made, archive: str
) -> None:
    seal_off(made, 5)
    report = run(spark, made.url, archive=archive, now=LATER)
    # One of the second bucket, and all of those behind it but for the open one, which is not read.
    assert report.beyond_seals == 1 + 4 + 4
    assert violations(made.ledger, find(spark, made.url, archive)) == []


def test_a_bug_that_archives_beyond_a_seal_is_caught(
    spark: SparkSession, made: Made, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal_off(made, 5)
    real = Archivist.__init__

    def unsealed(
        self: Archivist, spark: SparkSession, source: Any, states: DataFrame, *rest: Any
    ) -> None:
        ends = F.when(F.col("bucket_end") % 2 == 1, F.col("bucket_end") + 1)
        real(
            self,
            spark,
            source,
            states.withColumn("bucket_end", F.coalesce(ends, "bucket_end")),
            *rest,
        )

    monkeypatch.setattr(Archivist, "__init__", unsealed)
    run(spark, made.url, archive=archive, now=LATER)
    [wrong] = violations(made.ledger, find(spark, made.url, archive))
    assert "was never confirmed, and is in the archive" in wrong


def test_a_bug_that_drops_an_open_bucket_is_caught(
    spark: SparkSession, made: Made, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = make_plan

    def wrong_plan(*args: Any, **options: Any) -> Any:
        made_wrong = real(*args, **options)
        made_wrong.archive += made_wrong.waiting.pop(OWNER)
        return made_wrong

    monkeypatch.setattr(job, "make_plan", wrong_plan)
    report = run(spark, made.url, archive=archive, now=LATER)
    assert any("have not ended" in unfit.reason for unfit in report.unfit)
    assert violations(made.ledger, find(spark, made.url, archive)) == []
    # What if nobody looked at the ends, and nobody asked whether it may be dropped? The store does.
    monkeypatch.setattr(archiving, "judge", lambda *_: None)
    for module in (job, plan, dropping):
        monkeypatch.setattr(module, "droppable", lambda *_: True)
    with pytest.raises(AssertionError, match="is not drained"):
        run(spark, made.url, archive=archive, now=LATER)
    # And if it had been dropped all the same, the ledger knows.
    with (
        closing(sqlite3.connect(made.url.partition(":")[2] + "/pushlane.db")) as connection,
        connection,
    ):
        connection.execute("DELETE FROM bucket WHERE NOT drained")
    wrong = violations(made.ledger, find(spark, made.url, archive))
    assert len([one for one in wrong if "was lost" in one]) == 4


def test_a_bug_that_drops_before_verifying_is_caught(
    spark: SparkSession, made: Made, archive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Archivist._messages

    def lossy(self: Archivist, group: Any) -> DataFrame:
        return real(self, group).where("seq % 4 != 1")

    monkeypatch.setattr(Archivist, "_messages", lossy)
    report = run(spark, made.url, archive=archive, now=LATER)
    assert (report.archived_messages, report.dropped_buckets, len(report.unfit)) == (0, 0, 4)
    assert violations(made.ledger, find(spark, made.url, archive)) == []

    def unverified(self: Archivist, name: str, group: Any, written: int) -> Any:
        return [
            Archived(*one.shard, *one.bucket.key, one.bucket.count, 0)  # type: ignore[call-arg]
            for one in group
        ], {}

    monkeypatch.setattr(Archivist, "_verify", unverified)
    run(spark, made.url, archive=archive, now=LATER)
    wrong = violations(made.ledger, find(spark, made.url, archive))
    assert wrong
    assert all("neither in the archive nor in the store" in one for one in wrong)


@pytest.mark.parametrize(
    ("numbers", "wrong"),
    [
        ((0, 0, 0, 0, 0), None),
        ((4, 4, 6, 14, 0), None),
        ((4, 3, 3, 5, 0), "3 of 4 messages"),
        ((4, 4, 5, 11, 0), "twice"),
        ((4, 4, 6, 18, 0), "twice"),
        ((4, 4, 6, 14, 1), "1 of its messages have not ended"),
    ],
)
def test_judging(numbers: tuple[int, int, int, int, int], wrong: str | None) -> None:
    found = judge(*numbers)
    assert found is None if wrong is None else wrong in str(found)
