"""Looks at real stores, written by real servers: what Spark reads is what clients know."""

from __future__ import annotations

import pytest
from pyspark.sql import Row, SparkSession

from pushlane_spark import frames
from pushlane_spark.look import Look
from pushlane_spark.source import Source, open_source
from tests.spark.traffic import QUEUE, Sent


@pytest.fixture(scope="session")
def source(spark: SparkSession, traffic: tuple[str, dict[str, Sent]]) -> Source:
    return open_source(spark, traffic[0])


@pytest.fixture(scope="session")
def look(source: Source) -> Look:
    [queue] = source.queues().where(f"queue = '{QUEUE}'").collect()
    return Look(source, [queue.queue_id])


def told(row: Row) -> Sent:
    data = None if row.data is None else bytes(row.data)
    known = row.id, row.state, row.cause, row.attempts, row.error, row.body, data, row.key
    return Sent(*known, row.lane, row.not_before is not None)


def test_messages_are_what_clients_know(look: Look, traffic: tuple[str, dict[str, Sent]]) -> None:
    rows = look.messages.collect()
    assert {row.id: told(row) for row in rows} == traffic[1]
    assert len(rows) == len(traffic[1])
    for row in rows:
        if row.headers is not None:
            assert row.body == f'{{"n":{row.headers["n"]}}}'
        assert row.size > 64
    epochs = {row.epoch for row in rows}
    assert len(epochs) == 2


def test_queues(source: Source) -> None:
    rows = {row.queue: row for row in source.queues().collect()}
    assert rows.keys() == {QUEUE, f"{QUEUE}.dead", "other"}
    assert rows[QUEUE].tenant == "default"
    assert '"max_attempts":2' in rows[QUEUE].config


def test_dead_letters_say_where_they_came_from(
    source: Source, traffic: tuple[str, dict[str, Sent]]
) -> None:
    [queue] = source.queues().where(f"queue = '{QUEUE}.dead'").collect()
    [letter] = Look(source, [queue.queue_id]).messages.collect()
    [dead] = [sent for sent in traffic[1].values() if sent.state == "dead"]
    found = letter.dead
    assert (found.cause, found.queue, found.id) == ("rejected", QUEUE, dead.id)
    assert (found.error, found.attempts) == ("bad", 1)
    assert (letter.state, letter.body) == ("open", dead.body)


def test_without_a_word_all_queues_are_looked_at(source: Source) -> None:
    look = Look(source)
    queues = {row.queue_id for row in source.queues().collect()}
    assert {row.queue_id for row in look.buckets.collect()} == queues
    assert look.damages.count() == 0


def test_frames_have_the_same_columns_whatever_the_store(source: Source, look: Look) -> None:
    found = {
        "queues": source.queues(),
        "buckets": look.buckets,
        "segments": source.segments(look.buckets),
        "settlements": source.settlements(look.buckets),
        "seals": source.seals(look.buckets),
        "states": look.states,
        "messages": look.messages,
        "damages": look.damages,
    }
    for name, frame in found.items():
        expected = getattr(frames, name.upper())
        assert [(field.name, field.dataType) for field in frame.schema] == [
            (field.name, field.dataType) for field in expected
        ], name


def test_only_what_is_asked_for_is_read(
    source: Source, look: Look, traffic: tuple[str, dict[str, Sent]]
) -> None:
    """By SQLite's own indexes, and by Cassandra's partition keys."""
    [queue_id] = {row.queue_id for row in look.buckets.collect()}
    tables = [
        source.buckets([queue_id]),
        source.segments(look.buckets),
        source.settlements(look.buckets),
        source.seals(look.buckets),
    ]
    for table in tables:
        plan = table._jdf.queryExecution().toString()
        if traffic[0].startswith("cassandra:"):
            assert "Cassandra Direct Join" in plan
            assert "BatchScan" not in plan.partition("== Physical Plan ==")[2]
        else:
            assert f"shard.queue_id IN ('{queue_id}')" in plan
