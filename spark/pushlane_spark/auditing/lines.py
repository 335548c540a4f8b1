"""Recorded histories as a frame: a row per line, with its place.

A history is a file, or a folder whose files are its parts, in the order of their names. A last line
without its end was cut off by a crash, and left out, as the checker does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_spark.errors import HistoryUnfit
from pushlane_spark.frames import LONG, TEXT, struct

PLACE = ["file", "block", "row"]
LINES = struct(history=TEXT, file=TEXT, block=LONG, row=LONG, line=TEXT)
"""Lines of a history, ordered by `PLACE`."""
_END = ord("\n")


def read_lines(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """`LINES` of these histories, each named by its path; `HistoryUnfit`."""
    if not paths:
        raise HistoryUnfit("there is no history to audit")
    return reduce(DataFrame.unionByName, [_read(spark, path) for path in dict.fromkeys(paths)])


def _read(spark: SparkSession, path: str) -> DataFrame:
    try:
        lines = spark.read.text(path)
    except AnalysisException as error:
        raise HistoryUnfit(f"there is no history in {path}: {error.getErrorClass()}") from error
    found = lines.select(
        F.lit(path).alias("history"),
        F.input_file_name().alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
        # It grows within a block, which is what it is compared in.
        F.monotonically_increasing_id().alias("row"),
        F.col("value").alias("line"),
    )
    return _without(found, _cut_off(spark, lines.inputFiles()))


def _without(lines: DataFrame, cut_off: list[str]) -> DataFrame:
    """Without the last lines of some files."""
    if not cut_off:
        return lines
    place = F.struct("block", "row")
    last = lines.where(F.col("file").isin(cut_off)).groupBy("file").agg(F.max(place).alias("last"))
    return (
        lines.join(F.broadcast(last), "file", "left")
        .where(F.col("last").isNull() | (place != F.col("last")))
        .select(LINES.names)
    )


def _cut_off(spark: SparkSession, files: list[str]) -> list[str]:
    """Files that don't end as a line does."""
    context: Any = spark.sparkContext
    found = []
    for file in files:
        path = context._jvm.org.apache.hadoop.fs.Path(context._jvm.java.net.URI(file))
        system = path.getFileSystem(context._jsc.hadoopConfiguration())
        size = system.getFileStatus(path).getLen()
        if size and _byte(system.open(path), size - 1) != _END:
            found.append(file)
    return found


def _byte(stream: Any, at: int) -> int:
    try:
        stream.seek(at)
        return int(stream.read())
    finally:
        stream.close()
