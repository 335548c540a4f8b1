"""Lines of a bill, from small frames: exact, rounded once, and adding up."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from pushlane_spark.billing.pricing import COUNTERS, LINES, costs_of, make_lines
from pushlane_spark.billing.rate_card import ITEMS, parse_rate_card
from pushlane_spark.usage_frames import USAGE
from tests.spark.billing.test_rate_card import CARD
from tests.spark.usage_store import DAY, MONDAY

NOTHING = dict.fromkeys(COUNTERS, 0)
FREE = dict.fromkeys(ITEMS, Decimal(0))


def cost(price: str, amount: str, counter: str, used: int) -> int:
    costs = costs_of({**NOTHING, counter: used}, {**FREE, price: Decimal(amount)})
    assert costs["total"] == costs[f"{counter}_cost"] == sum(costs.values()) - costs["total"]
    return costs["total"]


def test_units() -> None:
    assert cost("million_published", "0.5", "published", 3_000_000) == 1_500_000
    assert cost("million_delivered", "0.5", "delivered", 1) == 0  # half a millionth, to even
    assert cost("million_delivered", "0.5", "delivered", 3) == 2
    assert cost("gib_in", "1", "bytes_in", 2**30) == 1_000_000
    assert cost("gib_out", "0.09", "bytes_out", 2**40) == 92_160_000
    assert cost("thousand_connection_hours", "2", "connection_ms", 3_600_000) == 2_000
    assert cost("gib_month_stored", "0.1", "stored_byte_s", 730 * 3_600 * 2**30) == 100_000


def test_large_numbers_stay_exact() -> None:
    used = 2**62 + 1
    assert cost("gib_in", "0.1", "bytes_in", used) == (used * 100_000 + 2**29) // 2**30


def test_hours_days_and_prices_of_the_time(spark: SparkSession) -> None:
    usage = [
        ("ann", "a", MONDAY, "q/0", "published", 10_000_000),
        ("ann", "a", MONDAY + 59, "q/1", "published", 5_000_000),
        ("ann", "a", MONDAY + 60, "n", "bytes_out", 2**30),
        ("ann", "a", MONDAY + 60, "n", "max.backlog", 9),
        ("ann", "a", MONDAY + DAY, "q/0", "published", 1_000_000),
        ("bob", "", MONDAY, "n", "connection_ms", 60_000),
        ("bob", "b", MONDAY, "n", "delivered", 0),
        ("bob", "b", MONDAY, "n", "ack_ms.3", 7),
    ]
    frame = make_lines(spark.createDataFrame(usage, USAGE), parse_rate_card(CARD))
    assert frame.schema.names == LINES.names
    lines = {(row.tenant, row.queue, row.window, row.minutes): row for row in frame.collect()}
    totals = {key: row.total for key, row in lines.items()}
    assert totals == {
        ("ann", "a", MONDAY, 60): 1_500_000,
        ("ann", "a", MONDAY + 60, 60): 50_000,  # a price of her own
        ("ann", "a", MONDAY, DAY): 1_550_000,
        ("ann", "a", MONDAY + DAY, 60): 2_000_000,
        ("ann", "a", MONDAY + DAY, DAY): 2_000_000,
        ("bob", "", MONDAY, 60): 0,
        ("bob", "", MONDAY, DAY): 0,
    }
    day = lines["ann", "a", MONDAY, DAY]
    assert (day.published, day.bytes_out, day.published_cost) == (15_000_000, 2**30, 1_500_000)


def test_usage_from_before_the_card(spark: SparkSession) -> None:
    usage = [("ann", "a", MONDAY - 365 * DAY, "n", "published", 1)]
    with pytest.raises(PythonException, match="the rate card has no prices for 2025-06-08"):
        make_lines(spark.createDataFrame(usage, USAGE), parse_rate_card(CARD)).collect()
