"""What is decoded of a store that was cut off, sealed and damaged: what a new owner would find."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import trio
from pyspark.sql import DataFrame, Row, SparkSession

from pushlane_spark import frames
from pushlane_spark.columns import COLUMNS, LAST_MS, OPEN, Part, time_of
from pushlane_spark.decoding import decode
from pushlane_spark.look import Look
from pushlane_spark.source import open_source
from pushlane_spark.states import at_hand, read_states
from pushlane_storage.bucket import CONTROL, Bucket, BucketKey, ShardKey
from pushlane_storage.message import Message
from pushlane_storage.outcome import append, settle
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Gone, Purge, Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.sqlite.store import SqliteStore
from tests.storage.samples import FULL_MESSAGE, START

LANE = 4
FIRST = make_seq(1, 0)
OLD, NEW, URGENT = BucketKey(LANE, 1, START), BucketKey(LANE, 2, START), BucketKey(7, 2, START)
DAMAGED = make_seq(2, 0)


def segment(bucket: BucketKey, counter: int, *bodies: str) -> Segment:
    messages = [Message(body.encode(), START) for body in bodies]
    return Segment(bucket, make_seq(bucket.epoch, counter), messages)


async def fill(folder: Path) -> None:
    store = await SqliteStore.open(folder)
    queue = await store.catalog.create("t", "q", QueueConfig())
    shard = ShardKey(queue.id, 0)
    assert await store.ownership.claim(slot_of(shard), "first") == 1
    await append(store, shard, segment(OLD, 0, "0", "1", "2"), Bucket(OLD, FIRST))
    await append(store, shard, segment(OLD, 3, "3", "4"), None)
    await append(store, shard, segment(OLD, 5, "beyond the seal"), None)
    await append(store, shard, segment(OLD, 7, "behind a gap"), None)
    await settle(store, shard, [Settlement(OLD, 1, 0, [OLD], acked=[(FIRST, FIRST)])])
    late = Settlement(OLD, 1, 1, [OLD], acked=[(FIRST + 1, FIRST + 1)])
    await settle(store, shard, [late])
    assert await store.ownership.claim(slot_of(shard), "second") == 2
    # The second flush came too late, and so did the last two segments.
    await store.write_seal(shard, Seal(2, [(LANE, 1, 5)], [(1, 1)]))
    await append(store, shard, segment(NEW, 0, "damaged"), Bucket(NEW, DAMAGED))
    await append(store, shard, segment(NEW, 1, "5"), None)
    full = Segment(URGENT, make_seq(2, 0), [FULL_MESSAGE, FULL_MESSAGE])
    await append(store, shard, full, Bucket(URGENT, make_seq(2, 0)))
    gone = Settlement(OLD, 2, 0, [OLD], gone=[Gone("dead:expired", FIRST + 2, FIRST + 2)])
    await settle(store, shard, [gone])
    purge = Purge(7, make_seq(2, 1), [make_seq(2, 1)])
    await settle(store, shard, [Settlement(CONTROL, 2, 1, [CONTROL], purges=[purge])])
    await store.close()
    with closing(sqlite3.connect(folder / "pushlane.db")) as connection, connection:
        body = "UPDATE payload SET body = x'91' WHERE id = (SELECT payload FROM segment"
        connection.execute(f"{body} WHERE first = ? AND count = 1)", (DAMAGED,))


@pytest.fixture(scope="module")
def look(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Look:
    folder = tmp_path_factory.mktemp("sealed")
    trio.run(fill, folder)
    return Look(open_source(spark, f"sqlite:{folder}"))


@pytest.fixture(scope="module")
def messages(look: Look) -> list[Row]:
    return look.messages.orderBy("lane", "seq").collect()


def test_what_lies_beyond_a_seal_or_a_gap_does_not_exist(messages: list[Row]) -> None:
    found = [(row.body, row.state, row.cause) for row in messages if row.lane == LANE]
    assert found == [
        ("0", "acked", None),
        ("1", "open", None),
        ("2", "dead", "expired"),
        ("3", "open", None),
        ("4", "open", None),
        ("5", "open", None),
    ]


def test_all_that_a_message_can_have(messages: list[Row]) -> None:
    purged, spared = [row for row in messages if row.lane == 7]
    assert (purged.state, spared.state) == ("purged", "open")
    assert bytes(spared.data) == FULL_MESSAGE.body
    assert spared.body is None
    assert (spared.key, spared.headers) == (FULL_MESSAGE.key, FULL_MESSAGE.headers)
    assert (spared.dedup, spared.producer) == (FULL_MESSAGE.dedup, FULL_MESSAGE.producer)
    assert spared.producer_seq == FULL_MESSAGE.producer_seq
    times = spared.published_at, spared.not_before, spared.expires_at, spared.dead.dead_at
    ms = [round(time.timestamp() * 1000) for time in times]
    assert ms == [START + 1, START + 2, START + 3, START + 4]
    assert spared.event_at is None
    assert (spared.dead.cause, spared.dead.error) == ("max_attempts", FULL_MESSAGE.dead.error)  # type: ignore[union-attr]


def test_damage_is_reported(look: Look) -> None:
    [damage] = look.damages.collect()
    assert (damage.lane, damage.epoch, damage.first, damage["count"]) == (LANE, 2, DAMAGED, 1)
    assert "checksum mismatch" in damage.reason
    assert look.damages.schema.names == frames.DAMAGES.names


def test_some_columns_only(look: Look, messages: list[Row]) -> None:
    few = look.messages_of(look.buckets, ["key", "size", "state", "seq"])
    assert few.columns == ["key", "state", "size", *frames.BUCKET, "seq"]
    names = few.columns
    found = [tuple(row) for row in few.orderBy("lane", "seq").collect()]
    assert found == [tuple(row[name] for name in names) for row in messages]


def test_bodies_stay_where_they_are(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """States come to them, unless those are large."""
    segments, plain = look.source.segments(look.buckets), read_states(look.source, look.buckets)

    def plan(states_at_hand: DataFrame) -> str:
        found = decode(segments, states_at_hand)._jdf.queryExecution().executedPlan()
        return str(found.toString())

    assert "SortMergeJoin" not in plan(at_hand(plain))
    monkeypatch.setattr("pushlane_spark.states.MOST_AT_HAND", 1)
    assert "SortMergeJoin" in plan(at_hand(plain))


def test_text_that_is_none_is_data() -> None:
    messages = [Message(body, START) for body in (b"\xff", "ä".encode())]
    messages.append(Message(b"1", START, is_data=True))
    part = Part(("q", 0, LANE, 1, START), FIRST, messages, [OPEN] * 3)
    assert COLUMNS["body"](part) == [None, "ä", None]
    assert COLUMNS["data"](part) == [b"\xff", None, b"1"]
    assert set(COLUMNS) == set(frames.MESSAGES.names)


def test_times_that_nobody_can_show() -> None:
    assert time_of(LAST_MS) == LAST_MS * 1_000
    assert time_of(LAST_MS + 1) is None
    assert time_of(-1) is None
    assert time_of(None) is None
