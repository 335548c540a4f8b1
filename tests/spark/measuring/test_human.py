"""Numbers as people read them."""

from __future__ import annotations

import pytest

from pushlane_spark.measuring import human


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.001, "<0.01"),
        (0.25, "0.25"),
        (1, "1"),
        (12.34, "12.3"),
        (999, "999"),
        (999.7, "1 k"),
        (1_500, "1.5 k"),
        (2_000_000, "2 M"),
        (10**22, "10,000,000 P"),
    ],
)
def test_counts(value: float, text: str) -> None:
    assert human.count(value) == text


def test_sizes() -> None:
    assert human.size(0) == "0 B"
    assert human.size(1023) == "1,023 B"
    assert human.size(1024) == "1 KiB"
    assert human.size(2.63 * 2**30) == "2.63 GiB"


def test_durations() -> None:
    shown = [human.duration(ms) for ms in (0, 0.4, 7, 1_500, 90_000, 3 * 3_600_000, 86_400_000)]
    assert shown == ["0 ms", "0.4 ms", "7 ms", "1.5 s", "1.5 min", "3 h", "1 d"]


def test_shares() -> None:
    assert [human.percent(share) for share in (0, 0.0704, 1)] == ["0 %", "7.04 %", "100 %"]


def test_units_of_axes() -> None:
    assert [human.count_unit(highest) for highest in (0.5, 1_500, 3_000)] == [1, 1, 1_000]
    assert [human.size_unit(highest) for highest in (1_500, 3_000)] == [1, 1_024]
    assert [human.duration_unit(highest) for highest in (0.1, 1_500, 130_000)] == [1, 1, 60_000]
