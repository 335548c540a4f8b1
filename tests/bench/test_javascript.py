"""The benchmark of the JavaScript SDK: its verdict, and that its load goes through the SDK."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.gateway import node
from bench.gateway.systems import pushlane
from bench.javascript import NATS, RAW, SDK, judge, measure


@pytest.mark.parametrize(
    ("rates", "is_met"),
    [
        ({RAW: 50_000, SDK: 30_000, NATS: 15_000}, True),
        ({RAW: 50_000, SDK: 29_000, NATS: 10_000}, False),
        ({RAW: 50_000, SDK: 40_000, NATS: 21_000}, False),
    ],
)
def test_both_bars_count(rates: dict[str, float], is_met: bool) -> None:
    assert judge([rates]) is is_met


def test_the_median_of_the_rounds_counts() -> None:
    good = {RAW: 50_000.0, SDK: 40_000.0, NATS: 10_000.0}
    disturbed = {**good, SDK: 5_000.0}
    assert judge([good, disturbed, good])
    assert not judge([disturbed, good, disturbed])


def test_a_short_round(tmp_path: Path) -> None:
    node.install()
    with pushlane(tmp_path) as target:
        ours = replace(target, adapter="pushlane_sdk")
        rates = measure({RAW: target, SDK: ours}, 0, 0.3)
    assert rates[RAW] > 0
    assert rates[SDK] > 0
