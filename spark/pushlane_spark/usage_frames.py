"""Usage rows as a frame: a row per counter, and what can be made of them.

Rows of several nodes for the same minute add up; of names that begin with `max.` the greatest
counts. Minute 0 is where shards note how far they have counted, and no usage.

Where each shard stood when it last wrote usage (how many bytes lay in it, and when that was)
follows from its tally (see `pushlane_storage.tally`) and the row of the tally's minute. The base of
a minute never changes; its row does, while it lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pushlane_spark.frames import BYTES, INT, LONG, TEXT, Batches, struct
from pushlane_storage.interface import StoreDamaged
from pushlane_storage.tally import STORED, unpack_tally
from pushlane_storage.usage import BILLING, Usage, UsageKey, bounds_of, unpack

STORED_USAGE = struct(tenant=TEXT, queue=TEXT, minute=LONG, node=TEXT, counters=BYTES)
USAGE = struct(tenant=TEXT, queue=TEXT, minute=LONG, node=TEXT, name=TEXT, value=LONG)
SHARD_USAGE = struct(tenant=TEXT, queue=TEXT, queue_id=TEXT, shard=INT, name=TEXT, value=LONG)

HOUR, DAY = 60, 24 * 60
"""Windows, in minutes."""
MAX = "max."

_counters = msgspec.msgpack.Decoder(tuple[int, dict[str, int]])


def decode_usage(stored: DataFrame) -> DataFrame:
    """`USAGE` of `STORED_USAGE`, without minute 0 and without what billing wrote."""
    counted = (F.col("minute") > 0) & (F.col("node") != BILLING)
    return stored.where(counted).mapInArrow(_decode, USAGE)


def _decode(batches: Batches) -> Batches:
    schema = to_arrow_schema(USAGE)
    for batch in batches:
        found = [counter for row in batch.to_pylist() for counter in _read(row)]
        columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in schema]
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )


def _read(row: dict[str, Any]) -> Iterator[tuple[str, str, int, str, str, int]]:
    place = row["tenant"], row["queue"], row["minute"], row["node"]
    try:
        _, counters = _counters.decode(row["counters"])
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the usage row {place} can't be read: {error}") from error
    for name, value in counters.items():
        yield *place, name, value


def sum_up(usage: DataFrame, minutes: int) -> DataFrame:
    """Per tenant, queue and window: `window` (the first minute of it), `name`, `value`."""
    window = (F.col("minute") - F.col("minute") % minutes).alias("window")
    return add(usage, ["tenant", "queue", window, "name"])


def add(usage: DataFrame, keys: Sequence[str | Column]) -> DataFrame:
    """`value` of all rows that have the same keys, among which must be `name`."""
    both = usage.groupBy(*keys).agg(F.sum("value").alias("sum"), F.max("value").alias("max"))
    value = F.when(F.col("name").startswith(MAX), F.col("max")).otherwise(F.col("sum"))
    return both.withColumn("value", value).drop("sum", "max")


def of_shards(usage: DataFrame) -> DataFrame:
    """`SHARD_USAGE`: what each shard counted itself; its node is `QUEUE_ID/SHARD`."""
    exact = usage.where(F.col("node").rlike("^[^/]+/[0-9]+$"))
    parts = F.split("node", "/")
    placed = exact.withColumns({"queue_id": parts[0], "shard": parts[1].cast("int")})
    return add(placed, ["tenant", "queue", "queue_id", "shard", "name"]).to(SHARD_USAGE)


def bins_of(counters: Mapping[str, int], histogram: str) -> dict[int, int]:
    """The bins of one histogram among counters: `publish_ms.12` is bin 12 of `publish_ms`."""
    start = histogram + "."
    return {
        int(name.removeprefix(start)): value
        for name, value in counters.items()
        if name.startswith(start) and value > 0
    }


def percentile(bins: Mapping[int, int], share: float) -> float | None:
    """Milliseconds that this share of all stayed below; between the bounds of a bin it is taken
    to be spread evenly. None when nothing was counted."""
    assert 0 <= share <= 1
    left = share * sum(bins.values())
    for number in sorted(bins):
        low, high = bounds_of(number)
        if left <= bins[number]:
            return low + (high - low) * left / bins[number]
        left -= bins[number]
    return float(bounds_of(max(bins))[1]) if bins else None


STANDINGS = struct(tenant=TEXT, queue=TEXT, node=TEXT, minute=LONG, base=LONG, stored=LONG)
"""When `minute` began, `base` bytes were stored and not settled, and at its end (or by now, if that
is not over) `stored`."""

Stored = tuple[str, str, int, str, bytes]
"""A usage row: tenant, queue, minute, node, counters."""


class Standing(NamedTuple):
    tenant: str
    queue: str
    node: str
    minute: int
    base: int
    stored: int


def standings_of(
    tallies: Iterable[Stored], find: Callable[[list[UsageKey]], Iterable[Stored]]
) -> list[Standing]:
    """`find` reads the rows of these keys, as far as they are there. Shards of which nobody keeps
    a tally any more are left out."""
    bases: dict[UsageKey, int] = {}
    for row in tallies:
        usage = _usage(row)
        tally = unpack_tally(usage)
        if tally is not None:
            key = msgspec.structs.replace(usage.key, minute=tally.minute)
            bases[key] = tally.base.get(STORED, 0)
    changes = {usage.key: usage.counters.get(STORED, 0) for usage in map(_usage, find([*bases]))}
    return [
        Standing(key.tenant, key.queue, key.node, key.minute, base, base + changes.get(key, 0))
        for key, base in bases.items()
    ]


def _usage(row: Stored) -> Usage:
    tenant, queue, minute, node, counters = row
    key = UsageKey(tenant, queue, minute, node)
    try:
        return unpack(key, bytes(counters))
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the usage row {key} can't be read: {error}") from error
