"""What the cluster's benchmark makes of traces."""

from __future__ import annotations

from typing import Any

from bench.cluster.failover import _p99, _urls, turned
from bench.cluster.load import Load, Trace
from bench.cluster.speed import (
    CONSUMED,
    DIRECT,
    FORWARDED,
    TWO_DIRECT,
    TWO_HALF,
    _median_ratio,
    _ways,
)


def test_a_queue_is_back_with_the_first_message_that_was_sent_since_and_is_done() -> None:
    traces = [
        Trace(1.0, 1.1, 1.2),  # before
        Trace(2.0),  # nobody knows
        Trace(2.1, 5.0),  # not delivered
        Trace(2.2, 6.1, 6.0),
        Trace(2.3, 6.2, 6.3),
    ]
    assert Load._first(traces, since=1.5) == 6.1
    assert Load._first(traces, since=2.4) == 0.0


def test_the_slowest_hundredth_is_left_out_and_what_never_came_counts_for_nothing() -> None:
    traces = [Trace(0.0, 1.0, n / 100) for n in range(1, 101)]
    assert _p99([*traces, Trace(0.0)]) == 1.0
    assert _p99([Trace(0.0, 1.0, 0.1)] * 200 + [Trace(0.0, 1.0, 9.0)]) == 0.1


def test_each_round_has_another_victim() -> None:
    nodes: list[Any] = ["a", "b", "c"]
    assert [turned(nodes, turn)[0] for turn in range(4)] == [*nodes, nodes[0]]


def test_producers_and_consumers_are_spread_over_nodes() -> None:
    urls = _urls(["a", "b"], ["b", "a"])
    assert set(urls.values()) == {("a", "b"), ("b", "a")}


def test_of_two_pairs_the_same_clients_and_queues_are_there_both_times() -> None:
    owner: Any = "a"
    other: Any = "b"
    ways = _ways(owner, other, "second")
    nodes: list[Any] = [[(pair.producer, pair.consumer) for pair in way] for way in ways]
    assert nodes[DIRECT] == [("a", "a")]
    assert nodes[FORWARDED] == [("b", "b")]
    assert nodes[CONSUMED] == [("a", "b")]
    assert nodes[TWO_DIRECT] == [("a", "a"), ("a", "a")]
    assert nodes[TWO_HALF] == [("a", "a"), ("b", "b")]
    queues = [[pair.queue for pair in way] for way in ways]
    assert queues[TWO_DIRECT] == queues[TWO_HALF] == ["speed", "second"]


def test_rounds_are_compared_one_by_one() -> None:
    rounds = [[10.0, 15.0], [20.0, 28.0], [10.0, 30.0]]
    assert _median_ratio(rounds, 1, 0) == 1.5
