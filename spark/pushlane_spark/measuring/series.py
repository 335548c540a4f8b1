"""What usage says of a period: by window of time, by queue and by shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pushlane_spark.period import Minutes
from pushlane_spark.usage_frames import MAX, add, bins_of, of_shards, percentile, sum_up

BACKLOG, OLDEST = "max.backlog", "max.oldest_ms"
DEAD = "dead."
LATENCIES = {
    "publish_ms": "Publish to acknowledgement",
    "delivery_ms": "Publish to delivery",
    "ack_ms": "Delivery to ack",
}
STEPS = (1, 5, 15, 60, 360, 1_440)
POINTS = 200
"""Most windows of a plot, unless the period is longer than so many days."""

Counters = dict[str, int]


class Counted(NamedTuple):
    """Counters of all tenants that a job looks at."""

    windows: dict[tuple[str, int], Counters]
    """By tenant, and the first minute of a window."""
    queues: dict[tuple[str, str], Counters]
    """By tenant and queue; those of queue "" are of the tenant's connections."""
    shards: dict[tuple[str, str], dict[int, int]]
    """By tenant and queue: what was published to each shard."""


def step_of(period: Minutes) -> int:
    """How long windows are, so that a plot has few enough to be read."""
    length = period.end - period.first
    return next((step for step in STEPS if length <= POINTS * step), STEPS[-1])


def count(usage: DataFrame, step: int) -> Counted:
    sums = sum_up(usage, step).persist()
    try:
        windows: dict[tuple[str, int], Counters] = {}
        for row in _over_queues(sums).collect():
            windows.setdefault((row.tenant, row.window), {})[row.name] = row.value
        queues: dict[tuple[str, str], Counters] = {}
        for row in add(sums, ["tenant", "queue", "name"]).collect():
            queues.setdefault((row.tenant, row.queue), {})[row.name] = row.value
    finally:
        sums.unpersist()
    shards: dict[tuple[str, str], dict[int, int]] = {}
    for row in of_shards(usage.where(F.col("name") == "published")).collect():
        known = shards.setdefault((row.tenant, row.queue), {})
        known[row.shard] = known.get(row.shard, 0) + row.value
    return Counted(windows, queues, shards)


def _over_queues(sums: DataFrame) -> DataFrame:
    """Of a tenant. Backlogs of several queues add up, as no other maximum does."""
    is_backlog = F.col("name") == BACKLOG
    keys = ["tenant", "window", "name"]
    rest = add(sums.where(~is_backlog), keys)
    return rest.unionByName(
        sums.where(is_backlog).groupBy(*keys).agg(F.sum("value").alias("value"))
    )


def together(parts: Iterable[Mapping[str, int]]) -> Counters:
    """Counters of several tenants, added up."""
    found: Counters = {}
    for counters in parts:
        for name, value in counters.items():
            if name.startswith(MAX) and name != BACKLOG:
                found[name] = max(found.get(name, 0), value)
            else:
                found[name] = found.get(name, 0) + value
    return found


def dead_of(counters: Mapping[str, int]) -> int:
    return sum(value for name, value in counters.items() if name.startswith(DEAD))


def causes_of(counters: Mapping[str, int]) -> dict[str, int]:
    """Dead letters by cause, and what else ended without an ack."""
    others = ("expired", "dropped", "purged")
    found = {name.removeprefix(DEAD): n for name, n in counters.items() if name.startswith(DEAD)}
    return found | {name: counters[name] for name in others if counters.get(name)}


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def retry_rate(counters: Mapping[str, int]) -> float | None:
    """Of deliveries."""
    return share(counters.get("retried", 0), counters.get("delivered", 0))


def dead_rate(counters: Mapping[str, int]) -> float | None:
    """Of messages that ended by an ack or among the dead letters."""
    dead = dead_of(counters)
    return share(dead, dead + counters.get("acked", 0))


def latency(counters: Mapping[str, int], histogram: str, part: float) -> float | None:
    return percentile(bins_of(counters, histogram), part)


def skew(shards: Mapping[int, int]) -> float | None:
    """How much more the busiest shard got than an even share: 1 is even. None for a single one."""
    if len(shards) < 2 or not sum(shards.values()):
        return None
    return max(shards.values()) * len(shards) / sum(shards.values())
