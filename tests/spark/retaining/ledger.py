"""What clients know of a queue, and what the retention job must have left of it.

The rules stand here, apart from the job: whatever it did, and however often it was killed, the
archive and the store together have each message once, and what has not ended is in the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
from pyspark.sql import SparkSession

from pushlane_spark.archive import read_archive
from pushlane_spark.look import Look
from pushlane_spark.source import open_source


class Ledger(msgspec.Struct):
    """Confirmed by the server, so it must be true."""

    bodies: dict[str, str] = {}
    """By id: what was published."""
    ended: set[str] = set()
    """Acked, or expired."""
    doubtful: set[str] = set()
    """Acks that got no answer."""


class Stored(msgspec.Struct):
    """What Spark finds: (id, body, state) of each row."""

    archive: list[tuple[str, str, str]]
    store: list[tuple[str, str, str]]


def find(spark: SparkSession, store: str, archive: str, queue: str = "orders") -> Stored:
    source = open_source(spark, store)
    [row] = source.queues().where(f"queue = '{queue}'").collect()
    kept = read_archive(spark, archive).where(f"queue = '{queue}'")
    return Stored(
        [tuple(one) for one in kept.select("id", "body", "state").collect()],
        [
            tuple(one)
            for one in Look(source, [row.queue_id]).messages.select("id", "body", "state").collect()
        ],
    )


def violations(ledger: Ledger, found: Stored) -> list[str]:
    """What is wrong."""
    archive = {id: (body, state) for id, body, state in found.archive}
    store = {id: (body, state) for id, body, state in found.store}
    return [
        *_twice(found.archive),
        *(
            f"{id} was never confirmed, and is in the archive"
            for id in archive
            if id not in ledger.bodies
        ),
        *(
            f"{id} is in the archive, and has not ended"
            for id, (_, state) in archive.items()
            if state == "open"
        ),
        *(
            f"{id} was lost: it has not ended, and is not in the store"
            for id in ledger.bodies
            if id not in ledger.ended | ledger.doubtful and store.get(id, ("", ""))[1] != "open"
        ),
        *(
            f"{id} has ended, and is neither in the archive nor in the store"
            for id in ledger.ended | ledger.doubtful
            if id not in archive and id not in store
        ),
        *(
            f"{id} has another body"
            for id, (body, _) in {**store, **archive}.items()
            if ledger.bodies.get(id, body) != body
        ),
    ]


def _twice(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    counts = Counter(id for id, _, _ in rows)
    return [f"{id} is in the archive {count} times" for id, count in counts.items() if count > 1]
