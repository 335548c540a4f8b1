"""Keys, sizes and states of messages: from real stores, an archive, and broken segments."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pushlane_spark import frames
from pushlane_spark.archive import archived_form
from pushlane_spark.measuring import stored
from pushlane_spark.measuring.stored import NAMED, HotKey, Tally, look_at, sum_up, tally_archive
from pushlane_spark.period import Minutes
from pushlane_spark.queue import read_queue
from pushlane_spark.source import open_source
from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Message
from pushlane_storage.segment import Segment, head_checksum, pack
from pushlane_storage.usage import bin_of
from tests.spark.traffic import QUEUE, Sent

ALWAYS = Minutes(1, 10**8)
ORDERS = "default", QUEUE


def test_what_clients_know(spark: SparkSession, traffic: tuple[str, dict[str, Sent]]) -> None:
    url, sent = traffic
    found = look_at(spark, open_source(spark, url), ALWAYS, "default", None)
    assert found.states[ORDERS] == Counter(one.state for one in sent.values())
    assert found.states["default", "other"] == {"open": 1}
    keys = Counter(one.key for one in sent.values() if one.key is not None)
    named = [hot for hot in found.keys if hot.queue == QUEUE]
    assert {hot.key: hot.messages for hot in named} == keys
    assert [hot.messages for hot in named] == sorted(keys.values(), reverse=True)
    assert sum(found.sizes[ORDERS].values()) == len(sent)
    assert found.bytes[ORDERS] > 64 * len(sent)
    assert found.damaged == {}


@pytest.mark.parametrize("traffic", ["sqlite"], indirect=True)
def test_what_is_archived_and_stored_counts_once(
    spark: SparkSession, traffic: tuple[str, dict[str, Sent]], tmp_path: Path
) -> None:
    url, sent = traffic
    messages = read_queue(spark, url, QUEUE).drop("archived")
    here = archived_form(messages).localCheckpoint()
    elsewhere = {"tenant": F.lit("eve"), "queue_id": F.lit("gone")}
    path = str(tmp_path / "archive")
    both = here.unionByName(here.withColumns(elsewhere))
    both.write.partitionBy("tenant", "queue", "day").parquet(path)

    found = look_at(spark, open_source(spark, url), ALWAYS, None, path)
    gone = "eve", QUEUE
    assert found.states[ORDERS] == found.states[gone] == Counter(one.state for one in sent.values())
    assert found.sizes[ORDERS] == found.sizes[gone]
    assert found.bytes[ORDERS] == found.bytes[gone]
    keys = {whose: [hot[2:] for hot in found.keys if hot[:2] == whose] for whose in (ORDERS, gone)}
    assert keys[ORDERS] == keys[gone] != []

    there = spark.createDataFrame([], frames.BUCKET_KEY)
    early = tally_archive(spark, path, there, Minutes(1, 2), None)
    mine = tally_archive(spark, path, there, ALWAYS, "eve")
    assert {row.tenant for row in mine.unionByName(early).collect()} == {"eve"}


@dataclass
class Rows:
    """Segments as they are read, each with the state of its bucket."""

    first: int = 10

    def of(self, messages: list[Message], **changed: Any) -> dict[str, Any]:
        packed = pack(Segment(BucketKey(4, 1, 0), self.first, messages))
        names = ("first", "count", "size", "last_at", "format", "checksum", "marks")
        columns = {name: getattr(packed, name) for name in names}
        state: dict[str, Any] = {"acked": [], "gone": [], "voids": [], "leaving": []}
        place = {"queue_id": "q", "shard": 0, "lane": 4, "epoch": 1, "start": 0}
        bucket = {"bucket_end": self.first + len(messages), "body": packed.payload}
        return {**place, **columns, **state, **bucket, "head": head_checksum(packed), **changed}


SOON = Minutes(0, 10)


def tallied(*rows: dict[str, Any], period: Minutes = SOON) -> dict[tuple[str, str], int]:
    tally = Tally(period)
    for row in rows:
        tally.add(row)
    found = {(row["kind"], row["name"]): row["count"] for row in tally.take()}
    assert len(tally) == 0
    return found


def test_what_does_not_exist_is_not_counted() -> None:
    messages = [Message(b"1", 5, key="k"), Message(b"2", 5, key="l"), Message(b"3", 5)]
    assert tallied(Rows().of(messages, bucket_end=11)) == {
        ("state", "open"): 1,
        ("size", str(bin_of(66))): 1,
        ("key", "k"): 1,
    }
    assert tallied(Rows().of(messages, bucket_end=5)) == {}


def test_messages_of_another_time_are_not_counted() -> None:
    messages = [Message(b"1", at) for at in (59_999, 60_000, 119_999, 120_000)]
    acked = [{"low": 10, "high": 11}]
    found = tallied(Rows().of(messages, acked=acked), period=Minutes(1, 2))
    assert found["state", "acked"] == found["state", "open"] == 1
    assert len(found) == 3


def test_a_broken_segment_is_told_apart() -> None:
    whole, broken = [Message(b"1", 5)], [Message(b"2", 5), Message(b"3", 5)]
    found = tallied(Rows().of(whole), Rows(20).of(broken, body=b"nonsense"))
    assert found["damaged", ""] == 2
    assert found["state", "open"] == 1


def test_only_the_hottest_keys_are_named(spark: SparkSession) -> None:
    rows = [("ann", "a", "key", f"k{n:02}", n, n) for n in range(1, 14)]
    rows += [("ann", "a", "key", "k03", 90, 1), ("ann", "a", "damaged", "", 4, 1)]
    found = sum_up(spark.createDataFrame(rows, NAMED))
    assert found.keys[0] == HotKey("ann", "a", "k03", 93, 4)
    assert len(found.keys) == stored.TOP_KEYS
    assert found.damaged == {("ann", "a"): 4}


@pytest.mark.parametrize(("most", "states"), [(1, 2), (100, 1)])
def test_tallies_are_given_away_before_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, most: int, states: int
) -> None:
    rows = [Rows(first).of([Message(b"1", 5, key=f"k{first}")]) for first in (1, 2)]
    monkeypatch.setattr(stored, "KEYS_AT_ONCE", most)
    batches = stored.tally_all([pa.RecordBatch.from_pylist(rows)], Minutes(0, 10))
    found = [row["count"] for row in frames.rows_of(batches) if row["kind"] == "state"]
    assert (sum(found), len(found)) == (2, states)
