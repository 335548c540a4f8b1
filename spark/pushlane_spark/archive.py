"""The archive: messages as Parquet, in folders by tenant, queue and day of publish.

It has the messages themselves, not segments: what is kept for years should need nothing of ours to
be read. `id` is what makes a message the same in the store and in the archive.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pushlane_spark import frames
from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.frames import TEXT, struct

PARTITIONS = ("tenant", "queue", "day")
"""The folders, from the outside in."""
ARCHIVE = struct(frames.MESSAGES, tenant=TEXT, queue=TEXT, day=TEXT)


def archived_form(messages: DataFrame) -> DataFrame:
    """`ARCHIVE` of messages that say their tenant and queue."""
    day = F.date_format("published_at", "yyyy-MM-dd")
    return messages.withColumn("day", day).to(ARCHIVE)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """`ARCHIVE`: all of it; what is asked of tenant, queue and day says which folders are read."""
    try:
        # With the columns named nothing is guessed: a queue may be called 007.
        return spark.read.schema(ARCHIVE).parquet(path)
    except AnalysisException as error:
        raise StoreUnreadable(f"there is no archive in {path}: {error.getErrorClass()}") from error
