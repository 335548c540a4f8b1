"""Periods in minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pushlane_spark.errors import PeriodUnfit
from pushlane_spark.period import Minutes, minutes_between, time_of
from tests.spark.usage_store import DAY, MONDAY

MIDNIGHT = datetime(2026, 6, 8, tzinfo=UTC)


def test_minutes_that_have_begun_count() -> None:
    seconds = timedelta(seconds=30)
    assert minutes_between(MIDNIGHT + seconds, MIDNIGHT + 3 * seconds) == (MONDAY, MONDAY + 2)
    assert minutes_between(MIDNIGHT, MIDNIGHT + 2 * seconds) == (MONDAY, MONDAY + 1)
    assert time_of(MONDAY) == MIDNIGHT


def test_zones() -> None:
    naive = MIDNIGHT.replace(tzinfo=None)
    east = MIDNIGHT.astimezone(timezone(timedelta(hours=5)))
    assert minutes_between(naive, east + timedelta(days=1)) == (MONDAY, MONDAY + DAY)


def test_whole_windows_and_parts() -> None:
    assert Minutes(MONDAY + 5, MONDAY + 6).whole() == (MONDAY, MONDAY + DAY)
    assert Minutes(MONDAY, MONDAY + DAY).whole() == (MONDAY, MONDAY + DAY)
    assert Minutes(0, 5).parts(2) == [(0, 2), (2, 4), (4, 5)]


def test_no_time_at_all() -> None:
    for until in (MIDNIGHT, MIDNIGHT - timedelta(hours=1)):
        with pytest.raises(PeriodUnfit, match="since must be before until"):
            minutes_between(MIDNIGHT, until)
