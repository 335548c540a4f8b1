"""Hours that were unlike the same hour of earlier weeks.

What is usual is the median of those weeks, and how much it varies their median deviation from it
(MAD): one odd week among them changes neither. A queue must have been there for some weeks before
anything is said of it; an hour of which nothing was counted counts as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

from pushlane_spark.frames import INT, LONG, TEXT, Batches, batched, rows_of, struct
from pushlane_spark.measuring.series import BACKLOG, DEAD, dead_of, latency
from pushlane_spark.period import Minutes
from pushlane_spark.usage_frames import DAY, HOUR, sum_up

WEEK = 7 * DAY
WEEKS = 6
"""How many earlier weeks are looked at, at most."""
LEAST_WEEKS = 3
"""Fewer say nothing of what is usual."""
SPREADS = 5
"""Deviations that are still usual."""
SHARE = 0.5
"""This part of the median is still usual, however steady the weeks were."""
MOST = 200
"""Anomalies that are listed: the greatest."""
_NORMAL = 1.4826
"""Times the MAD of what is normally distributed is its standard deviation."""
_REAL = DoubleType()

ANOMALIES = struct(
    struct(tenant=TEXT, queue=TEXT, hour=LONG, measure=TEXT, value=_REAL, expected=_REAL),
    struct(low=_REAL, high=_REAL, weeks=INT, score=_REAL),
)


class Measure(NamedTuple):
    title: str
    floor: float
    """A deviation up to this is nothing to speak of."""
    both_ways: bool = False
    """Whether too little is worth a word as well."""


MEASURES: Mapping[str, Measure] = {
    "published": Measure("messages published", 50, both_ways=True),
    "retried": Measure("retries", 20),
    "dead": Measure("dead letters", 5),
    "backlog": Measure("highest backlog", 100),
    "delivery_p95_ms": Measure("p95 of publish to delivery", 100),
}


class Anomaly(NamedTuple):
    """`low` to `high` would have been usual."""

    tenant: str
    queue: str
    hour: int
    measure: str
    value: float
    expected: float
    low: float
    high: float
    weeks: int
    score: float
    """How many times the usual deviation."""


class Verdict(NamedTuple):
    expected: float
    low: float
    high: float
    weeks: int
    score: float


def find_anomalies(usage: DataFrame, period: Minutes, weeks: int = WEEKS) -> list[Anomaly]:
    """Of the whole hours of a period; `usage` must reach back for so many weeks."""
    names = F.col("name").isin("published", "retried", BACKLOG)
    wanted = names | F.col("name").startswith(DEAD) | F.col("name").startswith("delivery_ms.")
    hours = sum_up(usage.where(wanted & (F.col("queue") != "")), HOUR)
    placed = hours.repartition("tenant", "queue").sortWithinPartitions("tenant", "queue", "window")
    found = placed.mapInArrow(partial(_judge_all, period=period, weeks=weeks), ANOMALIES)
    worst = found.orderBy(F.desc("score"), *ANOMALIES.names[:4]).limit(MOST)
    return [Anomaly(*row) for row in worst.collect()]


def _judge_all(batches: Batches, period: Minutes, weeks: int) -> Batches:
    def found() -> Iterator[dict[str, Any]]:
        for place, rows in groupby(rows_of(batches), lambda row: (row["tenant"], row["queue"])):
            hours: dict[int, dict[str, int]] = {}
            for row in rows:
                hours.setdefault(row["window"], {})[row["name"]] = row["value"]
            for anomaly in judge_queue(place, hours, period, weeks):
                yield anomaly._asdict()

    return batched(found(), ANOMALIES, 1_000)


def judge_queue(
    place: tuple[str, str], hours: Mapping[int, Mapping[str, int]], period: Minutes, weeks: int
) -> Iterator[Anomaly]:
    """From counters by hour, earlier weeks included."""
    measured = {hour: measures_of(counters) for hour, counters in hours.items()}
    known_since = min(measured, default=period.end)
    start = period.first + -period.first % HOUR
    for hour in range(start, period.end - HOUR + 1, HOUR):
        now = measured.get(hour, _NOTHING)
        earlier = [hour - n * WEEK for n in range(1, weeks + 1) if hour - n * WEEK >= known_since]
        for name, value in now.items():
            values = [measured.get(then, _NOTHING)[name] for then in earlier]
            usual = [known for known in values if known is not None]
            verdict = None if value is None else judge(MEASURES[name], value, usual)
            if value is not None and verdict is not None:
                yield Anomaly(*place, hour, name, value, **verdict._asdict())


def measures_of(counters: Mapping[str, int]) -> dict[str, float | None]:
    return {
        "published": counters.get("published", 0),
        "retried": counters.get("retried", 0),
        "dead": dead_of(counters),
        "backlog": counters.get(BACKLOG, 0),
        "delivery_p95_ms": latency(counters, "delivery_ms", 0.95),
    }


_NOTHING = measures_of({})


def judge(measure: Measure, value: float, earlier: Sequence[float]) -> Verdict | None:
    """None: it is usual, or nothing can be said."""
    if len(earlier) < LEAST_WEEKS:
        return None
    expected = median(earlier)
    deviation = median(abs(known - expected) for known in earlier)
    allowed = max(SPREADS * _NORMAL * deviation, SHARE * expected, measure.floor)
    low, high = max(expected - allowed, 0), expected + allowed
    if low <= value <= high or (value < low and not measure.both_ways):
        return None
    return Verdict(expected, low, high, len(earlier), abs(value - expected) / allowed)


def spells_of(anomalies: Iterable[Anomaly]) -> list[list[Anomaly]]:
    """Hours of one queue and measure that follow each other; the worst spell comes first."""

    def place(anomaly: Anomaly) -> tuple[str, str, str, bool, int]:
        is_high = anomaly.value > anomaly.high
        return anomaly.tenant, anomaly.queue, anomaly.measure, is_high, anomaly.hour

    spells: list[list[Anomaly]] = []
    for anomaly in sorted(anomalies, key=place):
        last = place(spells[-1][-1]) if spells else None
        if last == (*place(anomaly)[:-1], anomaly.hour - HOUR):
            spells[-1].append(anomaly)
        else:
            spells.append([anomaly])
    return sorted(spells, key=lambda spell: (-max(one.score for one in spell), place(spell[0])))
