"""The replay: from an archive to a real server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pushlane import testing
from pushlane_spark.errors import BookmarkUnfit, PublishFailed, QueueUnknown, WindowTooShort
from pushlane_spark.replaying.report import ReplayReport, run
from tests.spark.replaying.archives import BEGAN, Kept, write_archive
from tests.spark.target import create, messages_in, update

KEPT = [
    # The clock of shard 0 goes back: its order is that of seq all the same.
    *(Kept(n, key=f"k{n % 3}", seconds=n if n < 40 else n - 20) for n in range(80)),
    *(Kept(n, shard=1, headers={"kind": "odd" if n % 2 else "even"}) for n in range(50)),
    Kept(90, state="dead", data=b"\x00\xff"),
    Kept(91, lane=7, body='{"a": 1.50}', headers={"kind": "odd", "x": "y"}),
    Kept(92, state="open"),
]
ENDED = 132


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with testing.server() as at:
        yield at


@pytest.fixture(scope="module")
def archive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_archive(spark, tmp_path_factory.mktemp("archive"), KEPT)


def replay(spark: SparkSession, archive: str, url: str, to: str, **options: Any) -> ReplayReport:
    return run(spark, archive, queue="orders", to=to, url=url, **options)


def test_all_of_it_in_its_order(spark: SparkSession, archive: str, url: str) -> None:
    told: list[tuple[int, int]] = []
    report = replay(spark, archive, url, "all", batch=50, progress=lambda *at: told.append(at))
    assert (report.messages, report.stored, report.duplicates) == (ENDED, ENDED, 0)
    assert report.states == {"acked": ENDED - 1, "dead": 1}
    assert told == [(50, ENDED), (100, ENDED), (ENDED, ENDED)]
    seven, *others = messages_in(url, "all")
    by_key: dict[str | None, list[Any]] = {}
    for message in others:
        by_key.setdefault(message.get("key"), []).append(message)
    for key in ("k0", "k1", "k2"):
        numbers = [message["body"] for message in by_key[key]]
        assert numbers == sorted(numbers)
        assert set(numbers) == {one.n for one in KEPT if one.key == key}
    last = by_key[None][-1]
    assert last["data"] == "AP8="
    assert last["headers"] == {
        "pushlane-replayed-from": "orders",
        "pushlane-replayed-id": KEPT[-3].id,
    }
    assert seven["body"] == {"a": 1.5}
    assert seven["headers"].items() > {("kind", "odd"), ("x", "y")}
    again = replay(spark, archive, url, "all")
    assert (again.stored, again.duplicates) == (0, ENDED)
    assert len(messages_in(url, "all")) == ENDED
    other = replay(spark, archive, url, "all", name="again", keys=["k1"])
    assert (other.stored, other.duplicates) == (27, 0)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"keys": ["k0", "k2"]}, 53),
        ({"headers": {"kind": "odd"}}, 26),
        ({"headers": {"kind": "odd", "x": "y"}}, 1),
        ({"states": ["dead"]}, 1),
        ({"since": BEGAN + timedelta(seconds=60)}, 2),
        ({"until": BEGAN + timedelta(seconds=10)}, 20),
        ({"since": BEGAN + timedelta(days=9)}, 0),
    ],
)
def test_what_is_chosen(
    spark: SparkSession, archive: str, url: str, options: dict[str, Any], count: int
) -> None:
    if "since" in options and count == 0:
        with pytest.raises(QueueUnknown):
            replay(spark, archive, url, "nothing", dry_run=True, **options)
        return
    report = replay(spark, archive, url, "nothing", dry_run=True, **options)
    assert (report.messages, report.stored, report.dry_run) == (count, 0, True)
    assert report.bytes == 10 * count
    assert report.first_at is not None
    assert report.last_at is not None
    assert BEGAN <= report.first_at <= report.last_at


def test_a_rate(spark: SparkSession, archive: str, url: str) -> None:
    began = time.monotonic()
    replay(spark, archive, url, "slowly", headers={"kind": "odd"}, rate=20)
    assert time.monotonic() - began > 1.1


def test_going_on(spark: SparkSession, archive: str, url: str, tmp_path: Path) -> None:
    """Stopped by a full queue; without a window that would know what was stored, too."""
    file = tmp_path / "bookmark"
    options = {"bookmark_file": file, "batch": 10, "least_window_ms": 0}
    create(url, "small", max_messages=64, dedup_window_ms=0)
    with pytest.raises(PublishFailed, match="queue_full"):
        replay(spark, archive, url, "small", **options)
    assert len(messages_in(url, "small")) == 64
    update(url, "small", max_messages=None)
    report = replay(spark, archive, url, "small", **options)
    assert (report.done_before, report.stored) == (60, ENDED - 60)
    # Four of the batch that was under way are there twice: nobody knew them.
    ids = [message["headers"]["pushlane-replayed-id"] for message in messages_in(url, "small")]
    assert (len(ids), len(set(ids))) == (ENDED + 4, ENDED)
    finished = replay(spark, archive, url, "small", **options)
    assert (finished.done_before, finished.stored) == (ENDED, 0)
    with pytest.raises(BookmarkUnfit, match="another replay"):
        replay(spark, archive, url, "small", **options, keys=["k1"])


def test_what_is_refused(spark: SparkSession, url: str, tmp_path: Path) -> None:
    archive = write_archive(spark, tmp_path, [Kept(1, body=f'"{"x" * 99}"'), Kept(2)])
    create(url, "tiny", max_message_bytes=20)
    report = replay(spark, archive, url, "tiny")
    assert (report.stored, report.refused, report.ok) == (1, {"too_large": 1}, False)
    [example] = report.examples
    assert example.name == Kept(1).id


def test_what_can_not_be_replayed(spark: SparkSession, archive: str, url: str) -> None:
    with pytest.raises(ValueError, match="no state to replay: open"):
        replay(spark, archive, url, "q", states=["open"])
    with pytest.raises(QueueUnknown):
        run(spark, archive, queue="nope", to="q", url=url)
    create(url, "forgetful", dedup_window_ms=0)
    with pytest.raises(WindowTooShort, match="forgetful remembers dedup ids for 0 ms"):
        replay(spark, archive, url, "forgetful")
