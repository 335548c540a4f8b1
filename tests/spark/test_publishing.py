"""Publishing from Spark: on a real server, with tasks that fail and batches that come again."""

from __future__ import annotations

import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from pushlane import testing
from pushlane_spark.errors import FrameUnfit, PublishFailed, WindowTooShort
from pushlane_spark.publishing import PublishReport, foreach_batch, publish
from tests.spark.target import create, messages_in
from tools.services.ports import free_port


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with testing.server() as at:
        yield at


def bodies(url: str, queue: str) -> list[Any]:
    return [message["body"] for message in messages_in(url, queue)]


def frame(spark: SparkSession, *rows: tuple[Any, ...], schema: str) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


def test_rows_become_objects(spark: SparkSession, url: str) -> None:
    """Equal rows are as many messages as they are."""
    rows = frame(
        spark, (1, "a", None), (1, "a", None), (2, "b", 0.5), schema="n int, s string, f double"
    )
    report = publish(rows, "objects", url=url)
    assert (report.rows, report.stored, report.duplicates, report.ok) == (3, 3, 0, True)
    found = sorted(bodies(url, "objects"), key=str)
    one = {"n": 1, "s": "a", "f": None}
    assert found == [one, one, {"n": 2, "s": "b", "f": 0.5}]


def test_all_options(spark: SparkSession, url: str) -> None:
    schema = (
        "body string, data binary, key string, headers map<string,string>, priority int,"
        " delay_ms long, ttl_ms int, event_at timestamp, dedup string"
    )
    rows = frame(
        spark,
        ('{"a": 1.50}', None, "k", {"h": "x"}, None, None, 60_000, None, "mine"),
        (None, b"\x00\xff", None, None, 7, None, None, None, None),
        schema=schema,
    )
    assert publish(rows, "options", url=url).stored == 2
    [seven, keyed] = messages_in(url, "options")
    assert seven["data"] == "AP8="
    assert (keyed["key"], keyed["headers"], keyed["body"]) == ("k", {"h": "x"}, {"a": 1.5})
    again = publish(rows.where("key = 'k'"), "options", url=url)
    assert (again.stored, again.duplicates) == (0, 1)


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        ("int", 7, 7),
        ("array<int>", [1, 2], [1, 2]),
        ("struct<a:string,b:int>", ("}", None), {"a": "}", "b": None}),
        ("boolean", True, True),
        ("string", '"text"', "text"),
    ],
)
def test_bodies(spark: SparkSession, url: str, kind: str, value: Any, body: Any) -> None:
    queue = f"bodies.{kind.partition('<')[0]}"
    publish(frame(spark, (value,), schema=f"body {kind}"), queue, url=url)
    assert bodies(url, queue) == [body]


def test_rows_that_are_no_messages(spark: SparkSession, url: str) -> None:
    create(url, "small", max_message_bytes=10)
    rows = frame(
        spark,
        ("1", None),
        ("not json", None),
        (None, None),
        ("1", b"1"),
        (f'"{"x" * 20}"', None),
        schema="body string, data binary",
    )
    report = publish(rows, "small", url=url)
    assert (report.stored, report.refused, report.ok) == (
        1,
        {"bad_request": 3, "too_large": 1},
        False,
    )
    assert len(report.examples) == 4
    assert bodies(url, "small") == [1]


def test_a_run_is_stored_once(spark: SparkSession, url: str) -> None:
    rows = spark.range(250).selectExpr("id % 100 as n", "cast(id % 3 as string) as key")
    first = publish(rows, "once", url=url, run="monday", batch=40)
    assert (first.stored, first.duplicates) == (250, 0)
    again = publish(rows.orderBy("key"), "once", url=url, run="monday", partitions=3)
    assert (again.stored, again.duplicates) == (0, 250)
    assert publish(rows.limit(1), "once", url=url).stored == 1
    assert publish(rows.limit(1), "once", url=url, dedup=False).stored == 1
    assert len(messages_in(url, "once")) == 252


def test_order_of_keys(spark: SparkSession, url: str) -> None:
    rows = spark.range(300).selectExpr(
        "999 - id as at", "cast(id % 7 as string) as key", "cast(999 - id as string) as body"
    )
    publish(rows, "ordered", url=url, order_by="at", partitions=3, batch=25)
    by_key: dict[str, list[int]] = {}
    for message in messages_in(url, "ordered"):
        by_key.setdefault(message["key"], []).append(message["body"])
    assert len(by_key) == 7
    assert all(found == sorted(found) for found in by_key.values())
    assert sum(map(len, by_key.values())) == 300


def test_a_rate(spark: SparkSession, url: str) -> None:
    began = time.monotonic()
    publish(spark.range(60), "slowly", url=url, rate=50)
    assert time.monotonic() - began > 1.0


def dies_half_way(url: str, queue: str, marker: Path) -> Callable[[], None]:
    """A token: the first task that connects dies as soon as some of its messages are stored."""
    driver = os.getpid()

    def watch() -> None:
        stored = 0
        while stored < 20:
            time.sleep(0.02)
            with urllib.request.urlopen(f"{url}/v1/queues/{queue}/stats") as answer:
                stored = msgspec.json.decode(answer.read())["ready"]
        os._exit(1)

    def token() -> None:
        if os.path.exists(marker) or os.getpid() == driver:
            return
        with open(marker, "w"):
            threading.Thread(target=watch, daemon=True).start()

    return token


def test_a_task_that_dies(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """Of equal rows, too, each is stored once."""
    create(url, "dying")
    rows = spark.range(200).selectExpr("id div 2 as n")
    token = dies_half_way(url, "dying", tmp_path / "died")
    report = publish(rows, "dying", url=url, token=token, rate=100)
    assert (tmp_path / "died").exists()
    assert report.duplicates >= 20
    assert report.stored + report.duplicates == 200
    assert sorted(body["n"] for body in bodies(url, "dying")) == [n // 2 for n in range(200)]


def test_a_task_that_is_repeated_too_late(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """It can't know what the first one has stored: so it stops."""
    create(url, "late", dedup_window_ms=5_000)
    token = dies_half_way(url, "late", tmp_path / "died")
    rows = spark.range(200)
    options: dict[str, Any] = {"url": url, "token": token, "rate": 100, "least_window_ms": 0}
    with pytest.raises(PublishFailed, match="repeated after the queue's dedup_window_ms") as failed:
        publish(rows, "late", **options)
    assert failed.value.code == "window_over"
    numbers = [body["id"] for body in bodies(url, "late")]
    assert len(numbers) == len(set(numbers)) >= 20


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("id as body, id as other", "no place for other"),
        ("cast(id as string) as body, id as key", "key is bigint: it must be a string"),
        ("'1' as body, 'high' as priority", "priority is string: it must be an integer"),
        ("'1' as body, 'x' as headers", r"it must be map<string,string>"),
        ("'1' as data", "data is string: it must be binary"),
        ("'1' as key", "nothing to publish"),
        ("id, id as ID", "two columns have the same name"),
    ],
)
def test_frames_that_do_not_fit(spark: SparkSession, select: str, reason: str) -> None:
    with pytest.raises(FrameUnfit, match=reason):
        publish(spark.range(1).selectExpr(*select.split(", ")), "q", url="ws://127.0.0.1:1")


def test_order_by_what_is_not_there(spark: SparkSession) -> None:
    with pytest.raises(FrameUnfit, match="order_by names when"):
        publish(spark.range(1), "q", order_by=["id", "when"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"batch": 0}, "batch is 0: 1 to 1000"),
        ({"batch": 1001}, "batch is 1001"),
        ({"rate": 0}, "rate is 0"),
        ({"partitions": 0}, "partitions is 0"),
        ({"run": "x" * 129}, "run has 129 bytes: 1 to 128"),
        ({"run": ""}, "run has 0 bytes"),
    ],
)
def test_bad_options(spark: SparkSession, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        publish(spark.range(1), "q", **options)


def test_a_window_that_is_too_short(spark: SparkSession, url: str) -> None:
    create(url, "forgetful", dedup_window_ms=1_000)
    with pytest.raises(WindowTooShort, match="forgetful remembers dedup ids for 1000 ms"):
        publish(spark.range(1), "forgetful", url=url)
    assert publish(spark.range(1), "forgetful", url=url, least_window_ms=0).dedup_window_ms == 1_000
    assert publish(spark.range(1), "forgetful", url=url, dedup=False).stored == 1


def test_a_server_that_is_not_there(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushlane_spark.sending.LOOK_MS", 300)
    with pytest.raises(PublishFailed, match="connection_lost"):
        publish(spark.range(1), "q", url=f"ws://127.0.0.1:{free_port()}")


def test_a_queue_that_is_full(spark: SparkSession, url: str) -> None:
    """The task stops, Spark tries again, and the job says why."""
    create(url, "full", max_messages=10)
    with pytest.raises(PublishFailed, match="queue_full") as failed:
        publish(spark.range(50), "full", url=url, batch=5)
    assert failed.value.code == "queue_full"
    assert len(messages_in(url, "full")) == 10


def test_an_error_of_the_rows_themselves(spark: SparkSession, url: str) -> None:
    rows = spark.range(1).selectExpr("raise_error('not ours') as n")
    with pytest.raises(Exception, match="not ours") as failed:
        publish(rows, "q", url=url)
    assert not isinstance(failed.value, PublishFailed)


# Streams


def stream(spark: SparkSession, folder: Path, write: Callable[[DataFrame, int], None]) -> None:
    read = spark.readStream.schema("n int").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    query = (
        read.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    assert not query.isActive


def test_a_stream_whose_last_batch_comes_again(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.json").write_text('{"n":1}\n{"n":1}\n{"n":2}\n')
    reports: list[PublishReport] = []
    write = foreach_batch("stream", url=url, report=reports.append)
    stream(spark, tmp_path, write)
    assert [(one.stored, one.duplicates) for one in reports] == [(3, 0), (3, 0)]
    # As if Spark had ended between the batch and its commit.
    for file in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        file.unlink()
    stream(spark, tmp_path, write)
    assert [(one.stored, one.duplicates) for one in reports[2:]] == [(0, 3)]
    assert reports[2].run == reports[1].run
    assert len(messages_in(url, "stream")) == 6


def test_a_stream_with_rows_that_are_refused(spark: SparkSession, url: str, tmp_path: Path) -> None:
    rows = frame(spark, ("1",), ("x",), schema="body string")
    with pytest.raises(PublishFailed, match="1 of 2 rows refused"):
        foreach_batch("refused", url=url, query="q")(rows, 0)
    with pytest.raises(FrameUnfit, match="query=NAME"):
        foreach_batch("refused", url=url)(rows, 0)
    with pytest.raises(TypeError, match="give query instead"):
        foreach_batch("refused", run="mine")
