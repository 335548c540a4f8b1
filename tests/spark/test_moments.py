"""Times as commands take them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pushlane_spark.moments import read_moment

NOW = datetime(2026, 11, 16, 1, 30, 5, tzinfo=timezone(timedelta(hours=2)))
"""23:30:05 of the day before, in UTC."""


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", "2026-11-15T23:30:05"),
        ("today", "2026-11-15T00:00:00"),
        ("yesterday", "2026-11-14T00:00:00"),
        ("90m", "2026-11-15T22:00:05"),
        ("24h", "2026-11-14T23:30:05"),
        ("7d", "2026-11-08T23:30:05"),
        ("2w", "2026-11-01T23:30:05"),
        ("2026-11-01", "2026-11-01T00:00:00"),
        ("2026-11-01T12:30", "2026-11-01T12:30:00"),
        ("2026-11-01T12:30+02:00", "2026-11-01T10:30:00"),
        ("2026-11-01T12:30:00Z", "2026-11-01T12:30:00"),
    ],
)
def test_times(text: str, moment: str) -> None:
    assert read_moment(text, NOW) == datetime.fromisoformat(moment).replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "7", "d", "-7d", "2026-13-01", "9999999d"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: give a date"):
        read_moment(text, NOW)
