"""Bounds that don't go together."""

import pytest

from pushlane_storage.cassandra.limits import CASSANDRA_TTL, Limits


@pytest.mark.parametrize(
    ("bounds", "fault"),
    [
        ({"beat_ms": 5_001}, "judge_ms is less than twice beat_ms"),
        ({"judge_ms": 1_999}, "judge_ms is less than twice beat_ms"),
        ({"least_ttl": 10, "most_ttl": 9}, "least_ttl <= most_ttl"),
        ({"most_ttl": CASSANDRA_TTL + 1}, "20 years"),
        ({"usage_kept_days": 7_301}, "usage_kept_days must be"),
        ({"usage_kept_days": 0}, "usage_kept_days must be"),
    ],
)
def test_bounds_that_contradict_each_other(bounds: dict[str, int], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Limits(**bounds)


def test_the_edges() -> None:
    Limits(beat_ms=5_000, judge_ms=10_000)
    Limits(least_ttl=CASSANDRA_TTL, most_ttl=CASSANDRA_TTL)
    assert Limits(usage_kept_days=7_300).usage_ttl == CASSANDRA_TTL
