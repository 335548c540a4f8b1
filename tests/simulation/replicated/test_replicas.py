"""The three replicas: what a quorum sees, what a repair copies, and when a decision is known.

That they do what Cassandra does otherwise is for tests/storage/cassandra: its rules (test_rules.py)
and the conformance suite (test_model.py) run on them, too.
"""

from __future__ import annotations

import pytest

from pushlane_storage.bucket import BucketKey
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.ring import Change, Delete, Level, Range, Row, Write
from pushlane_storage.cassandra.tables import BUCKETS, NODES, SEGMENTS, keyed
from tests.simulation.replicated.replicas import Replicas

BUCKET = ("q", 0, 4, 1, 1_000)
STAMP = stamps.written(BucketKey(4, 1, 1_000))
SEGMENT = keyed(SEGMENTS, (*BUCKET, 7), count=2, marks=b"m", payload=b"body")
EVERYTHING = Range(SEGMENTS, BUCKET, 10)
NODE = Range(NODES, ("p",), 1)


@pytest.fixture
def replicas() -> Replicas:
    return Replicas()


def firsts(rows: list[Row]) -> list[int]:
    return [row["first"] for row in rows]


def test_what_one_replica_has_is_seen_by_those_who_ask_it(replicas: Replicas) -> None:
    replicas.apply(Write(SEGMENTS, [SEGMENT], STAMP), STAMP, [2])
    assert replicas.read(EVERYTHING, (0, 1)) == []
    assert firsts(replicas.read(EVERYTHING, (1, 2))) == [7]


def test_what_a_quorum_has_seen_every_later_one_sees(replicas: Replicas) -> None:
    replicas.apply(Write(SEGMENTS, [SEGMENT], STAMP), STAMP, [2])
    replicas.read(EVERYTHING, (1, 2))
    for pair in ((0, 1), (0, 2), (1, 2)):
        assert [row["payload"] for row in replicas.read(EVERYTHING, pair)] == [b"body"]
    assert replicas.repairs > 0


def test_a_repair_copies_only_the_columns_that_were_read(replicas: Replicas) -> None:
    replicas.apply(Write(SEGMENTS, [SEGMENT], STAMP), STAMP, [2])
    heads = EVERYTHING._replace(columns=("first", "count"))
    assert replicas.read(heads, (1, 2)) == [{"first": 7, "count": 2}]
    [row] = replicas.read(EVERYTHING, (0, 1))
    assert (row["count"], row["payload"]) == (2, None)


def test_a_repair_copies_no_row_beyond_the_limit(replicas: Replicas) -> None:
    other = {**SEGMENT, "first": 9}
    replicas.apply(Write(SEGMENTS, [SEGMENT, other], STAMP), STAMP, [2])
    replicas.read(EVERYTHING._replace(limit=1), (1, 2))
    assert firsts(replicas.read(EVERYTHING, (0, 1))) == [7]


def test_a_late_write_does_not_bring_a_dropped_bucket_back(replicas: Replicas) -> None:
    write = Write(SEGMENTS, [SEGMENT], STAMP)
    replicas.apply(Delete(SEGMENTS, BUCKET, STAMP + 1), STAMP + 1, [0, 1])
    replicas.apply(write, STAMP, [0, 1, 2])
    for pair in ((0, 1), (0, 2), (1, 2)):
        assert replicas.read(EVERYTHING, pair) == []


def test_a_deletion_is_repaired_too(replicas: Replicas) -> None:
    key = (*BUCKET[:3], 1, 1_000)
    row = keyed(BUCKETS, key, first=7)
    lane = Range(BUCKETS, BUCKET[:3], 10)
    replicas.apply(Write(BUCKETS, [row], STAMP), STAMP, [0, 1, 2])
    replicas.apply(Delete(BUCKETS, key, STAMP + 1), STAMP + 1, [0])
    assert firsts(replicas.read(lane, (1, 2))) == [7], "nobody told these"
    assert replicas.read(lane, (0, 1)) == []
    assert replicas.read(lane, (1, 2)) == []


def test_what_was_decided_need_not_be_known_before_somebody_looks(replicas: Replicas) -> None:
    born = Change(NODES, ("p",), None, {"address": "a", "dc": "", "fenced": False})
    assert replicas.decide(born, (0, 1))
    replicas.commit(NODES, ("p",), (0, 1, 2))
    fence = Change(NODES, ("p",), {"fenced": False}, {"fenced": True})
    assert replicas.decide(fence, (0, 1)), "and its coordinator dies"
    assert replicas.read(NODE, (0, 1))[0]["fenced"] is False
    serial = NODE._replace(level=Level.SERIAL)
    assert replicas.serial(serial, (1, 2))[0]["fenced"] is True
    assert replicas.read(NODE, (0, 1))[0]["fenced"] is True, "it is on a quorum now"


def test_the_next_decision_sees_the_last_one(replicas: Replicas) -> None:
    born = Change(NODES, ("p",), None, {"address": "a", "dc": "", "fenced": False})
    assert replicas.decide(born, (0, 1))
    assert not replicas.decide(born, (1, 2))
    gone = Change(NODES, ("p",), {"fenced": False}, None)
    assert replicas.decide(gone, (0, 2))
    assert not replicas.decide(gone, (0, 2))
    assert replicas.serial(NODE._replace(level=Level.SERIAL), (0, 2)) == []
