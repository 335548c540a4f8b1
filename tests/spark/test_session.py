"""The session that jobs run in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pushlane_spark.errors import JavaUnfit
from pushlane_spark.session import open_session


def test_it_listens_on_the_loopback_address_only(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_settings_win_over_ours(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_there_is_one_session(spark: SparkSession) -> None:
    assert open_session("another") is spark


def test_workers_are_this_python(spark: SparkSession) -> None:
    def where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"prefix": sys.prefix}])

    [row] = spark.range(1).mapInArrow(where, "prefix string").collect()
    assert row.prefix == sys.prefix


def test_java_is_looked_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaUnfit, match="/nowhere, where there is no Java"):
        open_session()
