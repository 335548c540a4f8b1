"""Durations as people write them."""

import pytest

from pushlane.wire.duration import parse_duration
from pushlane.wire.errors import BadRequest


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1s", 1000), ("45s", 45_000), ("30m", 1_800_000), ("12h", 43_200_000),
     ("90d", 7_776_000_000), ("2w", 1_209_600_000), ("007s", 7000)],
)  # fmt: skip
def test_what_they_mean(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text",
    ["", "90", "d", "-1d", "1.5h", "1 d", "90D", "1y", "1d ", "0s", "١d", "9" * 13 + "s", "36501d"],
)
def test_what_they_are_not(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_duration(text)
