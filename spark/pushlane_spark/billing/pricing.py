"""Lines of a bill: what a tenant's queue used in an hour or a day, and what that costs.

Every amount of an hour is rounded once, half to even, to a millionth of the currency. A day is the
sum of its hours, and a total the sum of its amounts, so that whatever is added up agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pushlane_spark.billing.rate_card import ITEMS, MICRO, RateCard, day_of
from pushlane_spark.frames import INT, LONG, TEXT, Batches, batched, rows_of, struct
from pushlane_spark.usage_frames import DAY, HOUR, sum_up

COUNTERS = [item.counter for item in ITEMS.values()]
COSTS = [f"{counter}_cost" for counter in COUNTERS]
LINES = struct(
    struct(tenant=TEXT, queue=TEXT, window=LONG, minutes=INT),
    struct(**dict.fromkeys(COUNTERS, LONG)),
    struct(**dict.fromkeys([*COSTS, "total"], LONG)),
)
"""`window` is its first minute, `minutes` its length; costs are millionths of the currency. The
line of queue "" has what a tenant's connections cost."""
_BATCH = 1_000
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)


def make_lines(usage: DataFrame, card: RateCard) -> DataFrame:
    """`LINES` of `USAGE`: those of hours, and those of days."""
    hours = _used(usage).mapInArrow(partial(_priced, card=card), LINES)
    return hours.unionByName(_days(hours))


def _used(usage: DataFrame) -> DataFrame:
    counted = usage.where(F.col("name").isin(COUNTERS) & (F.col("value") > 0))
    sums = sum_up(counted, HOUR)
    columns = [_counter(counter) for counter in COUNTERS]
    return sums.groupBy("tenant", "queue", "window").agg(*columns)


def _counter(counter: str) -> Column:
    value = F.sum(F.when(F.col("name") == counter, F.col("value")))
    return F.coalesce(value, F.lit(0)).alias(counter)


def _priced(batches: Batches, card: RateCard) -> Batches:
    def lines() -> Iterator[dict[str, Any]]:
        for row in rows_of(batches):
            prices = card.on(day_of(row["window"])).of(row["tenant"])
            yield {**row, "minutes": HOUR, **costs_of(row, prices)}

    return batched(lines(), LINES, _BATCH)


def costs_of(used: Mapping[str, Any], prices: Mapping[str, Decimal]) -> dict[str, int]:
    """In millionths, by counter, and their total."""
    costs = {
        f"{item.counter}_cost": _cost(used[item.counter], prices[name], item.per)
        for name, item in ITEMS.items()
    }
    return {**costs, "total": sum(costs.values())}


def _cost(amount: int, price: Decimal, per: int) -> int:
    exact = _EXACT.divide(_EXACT.multiply(Decimal(amount * MICRO), price), Decimal(per))
    return int(exact.to_integral_value(ROUND_HALF_EVEN, _EXACT))


def _days(hours: DataFrame) -> DataFrame:
    window = (F.col("window") - F.col("window") % DAY).alias("window")
    sums = [F.sum(name).alias(name) for name in [*COUNTERS, *COSTS, "total"]]
    days = hours.groupBy("tenant", "queue", window).agg(*sums)
    return days.withColumn("minutes", F.lit(DAY)).to(LINES)
