"""The minutes that a job is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from pushlane_spark.errors import PeriodUnfit
from pushlane_spark.usage_frames import DAY


class Minutes(NamedTuple):
    """From `first` to the one before `end`, in Unix minutes."""

    first: int
    end: int

    @property
    def last(self) -> int:
        return self.end - 1

    def whole(self, minutes: int = DAY) -> Minutes:
        """All windows of so many minutes that have a part in it."""
        return Minutes(self.first - self.first % minutes, self.end + -self.end % minutes)

    def parts(self, minutes: int) -> list[Minutes]:
        """It, cut into parts of so many minutes."""
        starts = range(self.first, self.end, minutes)
        return [Minutes(start, min(start + minutes, self.end)) for start in starts]


def minutes_between(since: datetime, until: datetime) -> Minutes:
    """Times without a zone are UTC, and a minute that has begun counts; `PeriodUnfit`."""
    first, end = int(_seconds(since) // 60), int(-(-_seconds(until) // 60))
    if first < 1 or end <= first:
        raise PeriodUnfit(f"nothing lies between {since} and {until}: since must be before until")
    return Minutes(first, end)


def _seconds(at: datetime) -> float:
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()


def time_of(minute: int) -> datetime:
    return datetime.fromtimestamp(60 * minute, UTC)
