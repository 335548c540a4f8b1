"""Hours that are unlike those of earlier weeks."""

from __future__ import annotations

from pyspark.sql import SparkSession

from pushlane_spark.measuring.anomalies import (
    LEAST_WEEKS,
    MEASURES,
    WEEK,
    Anomaly,
    find_anomalies,
    judge,
    judge_queue,
    measures_of,
    spells_of,
)
from pushlane_spark.period import Minutes
from pushlane_spark.usage_frames import USAGE
from pushlane_storage.usage import bin_of
from tests.spark.usage_store import MONDAY

PLACE = "ann", "a"
PERIOD = Minutes(MONDAY, MONDAY + 120)
STEADY = [1_000, 1_020, 980, 1_010]


def test_what_is_usual_is_no_anomaly() -> None:
    for value in (1_000, 700, 1_400):
        assert judge(MEASURES["published"], value, STEADY) is None


def test_too_much_and_too_little() -> None:
    verdict = judge(MEASURES["published"], 3_015, STEADY)
    assert verdict is not None
    assert (verdict.expected, verdict.low, verdict.high) == (1_005, 502.5, 1_507.5)
    assert (verdict.weeks, verdict.score) == (4, 4)
    assert judge(MEASURES["published"], 0, STEADY) is not None
    assert judge(MEASURES["backlog"], 0, STEADY) is None, "less is better"


def test_one_odd_week_changes_nothing() -> None:
    verdict = judge(MEASURES["published"], 3_000, [*STEADY, 500_000])
    assert verdict is not None
    assert verdict.expected == 1_010


def test_weeks_that_vary_allow_more() -> None:
    assert judge(MEASURES["published"], 3_000, [200, 1_000, 1_900, 2_500]) is None


def test_little_is_not_worth_a_word() -> None:
    assert judge(MEASURES["dead"], 5, [0, 0, 0]) is None
    assert judge(MEASURES["dead"], 6, [0, 0, 0]) is not None


def test_too_few_weeks_say_nothing() -> None:
    assert judge(MEASURES["published"], 10**6, [1] * (LEAST_WEEKS - 1)) is None


def hours(published: dict[int, int]) -> dict[int, dict[str, int]]:
    return {hour: {"published": count} for hour, count in published.items()}


def test_a_queue_that_fell_silent() -> None:
    """Nothing was counted in the second hour: there is no row to be wrong."""
    earlier = {MONDAY - n * WEEK + h: 500 for n in (1, 2, 3) for h in (0, 60)}
    [found] = judge_queue(PLACE, hours({**earlier, MONDAY: 510}), PERIOD, 6)
    assert (found.hour, found.measure, found.value, found.expected) == (
        MONDAY + 60,
        "published",
        0,
        500,
    )


def test_a_new_queue_is_left_alone() -> None:
    known = {MONDAY - WEEK: 500, MONDAY - 2 * WEEK: 500, MONDAY: 90_000}
    assert list(judge_queue(PLACE, hours(known), PERIOD, 6)) == []
    assert list(judge_queue(PLACE, {}, PERIOD, 6)) == []


def test_only_whole_hours_are_judged() -> None:
    earlier = {MONDAY - n * WEEK: 500 for n in (1, 2, 3)}
    assert list(judge_queue(PLACE, hours(earlier), Minutes(MONDAY, MONDAY + 59), 6)) == []
    assert list(judge_queue(PLACE, hours(earlier), Minutes(MONDAY + 1, MONDAY + 60), 6)) == []


def test_measures() -> None:
    counters = {"published": 9, "dead.rejected": 2, "dead.max_attempts": 1, "max.backlog": 4}
    assert measures_of({**counters, f"delivery_ms.{bin_of(3)}": 5}) == {
        "published": 9,
        "retried": 0,
        "dead": 3,
        "backlog": 4,
        "delivery_p95_ms": 3.95,
    }
    assert measures_of({})["delivery_p95_ms"] is None


def test_on_a_frame(spark: SparkSession) -> None:
    rows = [
        ("ann", "a", MONDAY - n * WEEK + 7, "q/0", "published", 400) for n in range(LEAST_WEEKS + 1)
    ]
    rows.append(("ann", "a", MONDAY + 8, "q/1", "dead.rejected", 60))
    rows.append(("ann", "", MONDAY + 8, "n", "published", 10**9))
    frame = spark.createDataFrame(rows, USAGE)
    [found] = find_anomalies(frame, PERIOD)
    assert found == Anomaly("ann", "a", MONDAY, "dead", 60, 0, 0, 5, LEAST_WEEKS, 12)
    assert find_anomalies(frame, PERIOD, weeks=LEAST_WEEKS - 1) == []


def test_hours_that_follow_each_other_are_one_spell() -> None:
    def at(hour: int, score: float, queue: str = "a", value: float = 9) -> Anomaly:
        return Anomaly("ann", queue, MONDAY + hour * 60, "dead", value, 0, 0, 5, 3, score)

    spells = spells_of([at(3, 1), at(1, 2), at(2, 8), at(5, 9), at(4, 2, queue="b")])
    assert [[one.score for one in spell] for spell in spells] == [[9], [2, 8, 1], [2]]
    assert spells_of([]) == []
