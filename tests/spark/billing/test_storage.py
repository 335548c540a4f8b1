"""What lay in queues, beside a count minute by minute."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import trio
from pyspark.sql import SparkSession

from pushlane_spark.billing.rate_card import parse_rate_card
from pushlane_spark.billing.report import run
from pushlane_spark.billing.storage import COUNTER, storage
from pushlane_spark.frames import LONG, struct
from pushlane_spark.period import Minutes, time_of
from pushlane_spark.usage_frames import HOUR, STANDINGS, USAGE, Standing, sum_up
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.store import SqliteStore
from pushlane_storage.tally import STORED, Tally, pack_tally
from tests.spark.billing.test_rate_card import CARD
from tests.spark.usage_store import DAY, MONDAY, UsageRow, make_folder, put

SEED = int(os.environ.get("SEED", "1"))
PERIOD = Minutes(MONDAY, MONDAY + DAY)
Hours = dict[tuple[str, int], int]


class Shard:
    """One that is filled and emptied now and then, as its server would write it down."""

    def __init__(self, queue: str, number: int, chance: random.Random) -> None:
        self.queue, self.node = queue, f"{queue}-id/{number}"
        active = sorted(chance.sample(range(MONDAY - 100, MONDAY + DAY + 100), 12))
        self.changes: dict[int, int] = {}
        for minute in active:
            free = -sum(self.changes.values())
            self.changes[minute] = chance.randint(max(free, -50), 50)
        self.last = active[-1]

    def level(self, minute: int) -> int:
        return sum(change for at, change in self.changes.items() if at <= minute)

    def standing(self) -> Standing:
        levels = self.level(self.last - 1), self.level(self.last)
        return Standing("t", self.queue, self.node, self.last, *levels)

    def rows(self, first: int) -> list[tuple[str, str, int, str, str, int]]:
        changes = [(at, change) for at, change in self.changes.items() if at >= first]
        return [("t", self.queue, at, self.node, STORED, change) for at, change in changes]


def count(shards: list[Shard], ends: dict[str, int], end: int) -> Hours:
    """Minute by minute: what lay in each queue."""
    found: Hours = {}
    for minute in range(MONDAY, end):
        for shard in shards:
            if minute <= shard.last + ends[shard.queue]:
                hour = shard.queue, minute - minute % HOUR
                found[hour] = found.get(hour, 0) + 60 * shard.level(minute)
    return {hour: stored for hour, stored in found.items() if stored}


def test_it_is_what_a_count_of_all_minutes_finds(spark: SparkSession) -> None:
    chance = random.Random(SEED)
    ends = {"a": 100 * DAY, "b": 100 * DAY, "short": 30, "deleted": 0}
    shards = [Shard(queue, number, chance) for queue in ends for number in range(2)]
    period = Minutes(MONDAY, PERIOD.end - 100)
    standings = [(*shard.standing(), shard.last + 1 + ends[shard.queue]) for shard in shards]
    rows = [row for shard in shards for row in shard.rows(MONDAY)]
    stranger = ("t", "a", MONDAY, "nobody/0", STORED, 1_000)
    found = storage(
        spark.createDataFrame(standings, struct(STANDINGS, end=LONG)),
        spark.createDataFrame([*rows, stranger], USAGE),
        period,
    )
    hours = sum_up(found, HOUR).collect()
    expected = count(shards, ends, period.end)
    assert len({queue for queue, _ in expected}) == len(ends)
    assert {(row.queue, row.window): row.value for row in hours} == expected


def test_a_shard_that_goes_on_while_it_is_read(spark: SparkSession) -> None:
    """Its standing was read before it emptied itself, and its changes after that."""
    standing = (*Standing("t", "a", "id/0", MONDAY + 90, 0, 5_000), MONDAY + DAY)
    changes = [("t", "a", MONDAY + 90, "id/0", STORED, 20)]
    found = storage(
        spark.createDataFrame([standing], struct(STANDINGS, end=LONG)),
        spark.createDataFrame(changes, USAGE),
        Minutes(MONDAY, MONDAY + 2 * HOUR),
    )
    assert [(row.minute, row.value) for row in found.collect()] == [(MONDAY + 60, 20 * 30 * 60)]


BASE = Tally(MONDAY - 3 * DAY, {STORED: 1_000, "published": 7})


def rows_of(queue_id: str) -> list[UsageRow]:
    """Of a queue whose last change was days ago."""
    node = f"{queue_id}/0"
    return [
        UsageRow("ann", "a", 0, node, pack_tally(BASE)),
        UsageRow("ann", "a", BASE.minute, node, {STORED: -400, "acked": 3}),
    ]


def make_queue(folder: Path) -> str:
    """The id of a queue."""

    async def make() -> str:
        store = await SqliteStore.open(folder)
        row = await store.catalog.create("ann", "a", QueueConfig())
        await store.close()
        return row.id

    return trio.run(make)


def test_a_bill_has_what_lies_idle(spark: SparkSession, tmp_path: Path) -> None:
    url = make_folder(tmp_path / "data")
    queue_id = make_queue(tmp_path / "data")
    day: dict[str, Any] = {"since": time_of(MONDAY), "until": time_of(PERIOD.end)}
    card = parse_rate_card(CARD)

    def used(**more: Any) -> list[int]:
        report = run(spark, url, **day, rate_card=card, out=tmp_path / "out", **more)
        return [bill.used[COUNTER] for bill in report.tenants]

    seen = [
        UsageRow("ann", "a", MONDAY, "n.1", {COUNTER: 77}),
        UsageRow("ann", "unknown", MONDAY, "n.1", {COUNTER: 5}),
    ]
    put(url, [*rows_of("deleted"), *rows_of(queue_id)])
    assert used() == [600 * 24 * 3_600]
    assert used(now=60_000 * (MONDAY + 90)) == [600 * 90 * 60]
    assert used(now=60_000 * MONDAY) == []
    put(url, seen)
    assert used() == [600 * 24 * 3_600 + 5], "what servers saw counts where nothing else is known"
