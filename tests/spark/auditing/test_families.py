"""Which queues are judged together, and which apart."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from pushlane_history.event import (
    Allow,
    Begin,
    Bound,
    Event,
    Grant,
    LeaseLost,
    Leaving,
    Publish,
    Published,
    QueueSet,
    SessionEnd,
    Settle,
    Stored,
    Subscribe,
    Verdict,
)
from pushlane_spark.auditing import families
from pushlane_spark.auditing.families import HOME, cut, parse
from pushlane_spark.errors import HistoryUnfit
from tests.spark.auditing.histories import History, lines_of

A = [Publish(0, 1, "a", "ua"), Published(0, 1, "m")]
B = [Publish(0, 2, "b", "ub"), Published(0, 2, "m")]


def cut_all(spark: SparkSession, **histories: History) -> dict[str, dict[str, list[str]]]:
    """By history and family, the events that are no copies, and those that are with a star."""
    events = parse(lines_of(spark, histories)).localCheckpoint()
    kinds = events.select("history", "row", "event")
    rows = cut(events).join(kinds, ["history", "row"]).orderBy("row").collect()
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        family = found.setdefault(row.history, {}).setdefault(row.family, [])
        family.append(row.event + "*" * row.copy)
    return found


def test_what_belongs_together(spark: SparkSession) -> None:
    links: dict[str, list[Event]] = {
        "nothing": [],
        "dead": [QueueSet(0, "a", dead_letter="x"), QueueSet(0, "b", dead_letter="x")],
        "leaving": [Leaving(0, "a", "m", "moved", "b")],
        "uid": [Grant(0, "b", "n", "ua", receipt="r")],
        "dump": [Stored(0, "b", ["n"], ["ua"])],
        "receipt": [Grant(0, "a", "m", "ua", receipt="r"), Grant(0, "b", "m", "ub", receipt="r")],
        "request": [Publish(0, 1, "b", "other")],
        "sub": [Subscribe(0, "s", "S", "a", 1), Grant(0, "b", "m", "ub", "s", receipt="r")],
        "two subs": [Subscribe(0, "s", "S", "a", 1), Subscribe(0, "t", "S", "b", 1)],
        "no sub": [Grant(0, "a", "m", "ua", receipt="r"), Grant(0, "b", "m", "ub", receipt="t")],
    }
    found = cut_all(spark, **{name: [*A, *B, *more] for name, more in links.items()})
    apart = {name for name, parts in found.items() if {"a", "b"} <= parts.keys()}
    assert apart == {"nothing", "two subs", "no sub"}


def test_where_events_come_to(spark: SparkSession) -> None:
    history: History = [
        Begin(0),
        *A,
        *B,
        Subscribe(0, "s", "S", "a", 1),
        Grant(0, "a", "m", "ua", "s", "S", "r"),
        Settle(0, 9, "ack", "r", "S"),
        Verdict(0, 9, "ok"),
        LeaseLost(0, "nobody's"),
        Verdict(0, 99, "ok"),
        Bound(0, "x", 1, 2),
        Allow(0, "b", "redriven"),
        SessionEnd(0, "S"),
    ]
    found = cut_all(spark, history=history, empty=[Begin(0), Bound(0, "x", 2, 1)])
    assert found["empty"] == {HOME: ["begin", "bound"]}
    parts = found["history"]
    a = "begin* publish published subscribe grant settle verdict allow* session_end*"
    assert parts["a"] == a.split()
    assert parts["b"] == ["begin*", "publish", "published", "allow"]
    assert parts[HOME] == ["begin", "lease_lost", "verdict", "bound", "allow*", "session_end"]
    own = Counter(name for part in parts.values() for name in part if not name.endswith("*"))
    assert own.total() == len(history)


def test_one_family_is_not_cut(spark: SparkSession) -> None:
    dead = Leaving(0, "a", "m", "rejected", "a.dead")
    assert cut_all(spark, one=[Begin(0), *A, dead]) == {
        "one": {HOME: ["begin", "publish", "published", "leaving"]}
    }


def test_queues_without_dead_letters_are_not_kin(spark: SparkSession) -> None:
    nowhere = [QueueSet(0, "a", dead_letter=""), QueueSet(0, "b", dead_letter="")]
    assert {"a", "b"} <= cut_all(spark, one=[Begin(0), *nowhere, *A, *B])["one"].keys()


def test_there_may_be_too_many(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "MOST_QUEUES", 1)
    with pytest.raises(HistoryUnfit, match="more than 1 queues"):
        cut_all(spark, history=[*A, *B])
