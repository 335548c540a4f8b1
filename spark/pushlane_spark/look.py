"""One look at some queues of a store: their buckets, states, messages and damages.

The buckets are read once, and kept for the look: all else is read for these, so that what a job
counts, writes and drops is about the same buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pushlane_spark.decoding import decode
from pushlane_spark.frames import BUCKET
from pushlane_spark.source import Source
from pushlane_spark.states import at_hand, read_states


class Look:
    def __init__(self, source: Source, queue_ids: Sequence[str] | None = None) -> None:
        """Of these queues, or of all."""
        self.source = source
        self.buckets = source.buckets(queue_ids).localCheckpoint()

    @cached_property
    def states(self) -> DataFrame:
        """`STATES`, read once as well."""
        return at_hand(read_states(self.source, self.buckets).localCheckpoint())

    @cached_property
    def decoded(self) -> DataFrame:
        """`DECODED`: for those who want messages and damages in one pass."""
        return decode(self.source.segments(self.buckets), self.states)

    @property
    def messages(self) -> DataFrame:
        """`MESSAGES`: all that exist, whatever became of them."""
        return _whole(self.decoded)

    def messages_of(self, buckets: DataFrame, columns: Sequence[str] | None = None) -> DataFrame:
        """`MESSAGES` of some of the buckets of this look: the others are not read.

        `columns`: these only, and `BUCKET`. It is cheaper than to leave them out later.
        """
        return _whole(decode(self.source.segments(buckets), self.states, columns))

    @property
    def damages(self) -> DataFrame:
        """`DAMAGES`: segments that are not what was written."""
        damaged = self.decoded.where(F.col("damage").isNotNull())
        return damaged.select(*BUCKET, "damage.first", "damage.count", "damage.reason")


def _whole(decoded: DataFrame) -> DataFrame:
    return decoded.where(F.col("damage").isNull()).drop("damage")
