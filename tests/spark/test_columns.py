"""What became of the messages of a segment."""

from __future__ import annotations

from typing import Any

from pushlane_spark.columns import ACKED, OPEN, Outcome, outcomes


def state(**parts: Any) -> dict[str, Any]:
    return {"acked": [], "gone": [], "voids": [], "leaving": [], **parts}


def span(low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"low": low, "high": high, **more}


def test_nothing_became_of_them() -> None:
    assert outcomes(state(), 10, 3) == [OPEN] * 3


def test_ranges_reach_beyond_a_segment() -> None:
    found = outcomes(state(acked=[span(0, 10), span(12, 99)]), 10, 4)
    assert found == [ACKED, OPEN, ACKED, ACKED]
    assert outcomes(state(acked=[span(0, 9), span(14, 20)]), 10, 4) == [OPEN] * 4


def test_causes() -> None:
    gone = [span(10, 10, cause="dead:rejected"), span(11, 11, cause="expired")]
    found = outcomes(state(gone=gone), 10, 2)
    assert found == [Outcome("dead", "rejected"), Outcome("expired")]


def test_what_goes_on() -> None:
    void = {"seq": 10, "attempts": 2, "deliveries": 3, "not_before": 99, "error": "no"}
    leaving = {"seq": 11, "cause": "max_attempts", "to": "q.dead", "attempts": 5, "error": "oh"}
    found = outcomes(state(voids=[void], leaving=[leaving]), 10, 2)
    assert found[0] == Outcome("open", None, 2, 3, 99, "no")
    assert found[1] == Outcome("leaving", "max_attempts", 5, 0, 0, "oh")
