"""The session that jobs run in."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pushlane_spark.errors import JavaUnfit
from pushlane_spark.session import check_java, open_session


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


NEEDS = "install Java 17"


def make_java(folder: Path, said: str) -> None:
    folder.mkdir(parents=True)
    program = folder / "java"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_the_right_one(bin: Path) -> None:
    make_java(bin, 'openjdk version "17.0.15" 2025-04-15')
    check_java()


def test_none(bin: Path) -> None:
    with pytest.raises(JavaUnfit, match=f"there is none: {NEEDS}"):
        check_java()


@pytest.mark.parametrize(
    ("said", "found"), [('java version "1.8.0_402"', "Java 8"), ('version "21"', "Java 21")]
)
def test_another_version(bin: Path, said: str, found: str) -> None:
    make_java(bin, said)
    with pytest.raises(JavaUnfit, match=f"is {found}, Spark needs 17: {NEEDS}"):
        check_java()


def test_one_that_says_nothing(bin: Path) -> None:
    make_java(bin, "hello")
    with pytest.raises(JavaUnfit, match="does not say which Java it is"):
        check_java()


def test_one_that_does_not_run(bin: Path) -> None:
    make_java(bin, "")
    (bin / "java").write_text("#!/no/such/shell\n")
    with pytest.raises(JavaUnfit, match="can't be run"):
        check_java()


def test_java_home_goes_first(bin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(bin, 'version "21"')
    make_java(tmp_path / "home" / "bin", 'version "17"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JavaUnfit, match="nowhere, where there is no Java"):
        check_java()
