"""Archives to be replayed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from pushlane_spark.archive import ARCHIVE, PARTITIONS
from pushlane_storage.seq import make_id

BEGAN = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
SHARDS = 2


class Kept(NamedTuple):
    """A message of an archive: the n-th of its shard."""

    n: int
    shard: int = 0
    key: str | None = None
    headers: dict[str, str] | None = None
    body: str | None = None
    data: bytes | None = None
    state: str = "acked"
    lane: int = 4
    seconds: int | None = None
    """After `BEGAN`; n unless the clock was wrong."""

    @property
    def id(self) -> str:
        return make_id("qid", self.shard, self.lane, self.seq)

    @property
    def seq(self) -> int:
        return (1 << 40) + self.n

    def row(self, queue: str) -> dict[str, Any]:
        at = BEGAN + timedelta(seconds=self.n if self.seconds is None else self.seconds)
        body = str(self.n) if self.data is None and self.body is None else self.body
        place = {"queue_id": "qid", "shard": self.shard, "lane": self.lane, "seq": self.seq}
        return dict.fromkeys(ARCHIVE.names) | {
            "tenant": "default", "queue": queue, "day": f"{at:%Y-%m-%d}", "id": self.id,
            "key": self.key, "headers": self.headers, "body": body, "data": self.data,
            "published_at": at, "event_at": at, "state": self.state, "size": 10,
            "epoch": 1, "start": 0, **place,
        }  # fmt: skip


def write_archive(spark: SparkSession, path: Path, kept: list[Kept], queue: str = "orders") -> str:
    rows = [tuple(one.row(queue)[name] for name in ARCHIVE.names) for one in kept]
    frame = spark.createDataFrame(rows, ARCHIVE)
    frame.write.partitionBy(*PARTITIONS).parquet(str(path), mode="append")
    return str(path)
