"""The parent of Spark's Python workers."""

from __future__ import annotations

import gc
import sys
import zipimport
from collections.abc import Iterable, Iterator

from pyspark.sql import SparkSession

from pushlane_spark.daemon import NEEDED


def test_workers_are_its_children(spark: SparkSession) -> None:
    def look(rows: Iterable[int]) -> Iterator[tuple[str, int, list[str]]]:
        own = zipimport.zipimporter.invalidate_caches.__module__
        yield own, gc.get_freeze_count(), [name for name in NEEDED if name not in sys.modules]

    [(owner, frozen, missing)] = (
        spark.sparkContext.parallelize([1], 1).mapPartitions(look).collect()
    )
    assert owner == "__main__"
    assert frozen > 10_000
    assert missing == []
