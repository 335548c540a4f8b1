"""What lay in queues while nobody looked, beside a count minute by minute."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import trio
from pyspark.sql import SparkSession

from pushlane_spark.billing.rate_card import parse_rate_card
from pushlane_spark.billing.report import run
from pushlane_spark.billing.storage import LOOKED, idle_storage
from pushlane_spark.period import Minutes, time_of
from pushlane_spark.standings import STANDINGS, Standing
from pushlane_spark.usage_frames import HOUR, USAGE, sum_up
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
        return Standing("t", self.queue, self.node, self.last, self.level(self.last))

    def rows(self, first: int) -> list[tuple[str, str, int, str, str, int]]:
        changes = [(at, change) for at, change in self.changes.items() if at >= first]
        return [("t", self.queue, at, self.node, STORED, change) for at, change in changes]


def count(shards: list[Shard], looked: set[tuple[str, int]], gone: str, end: int) -> Hours:
    """Minute by minute: what lay in each queue in those in which nobody looked."""
    found: Hours = {}
    for minute in range(MONDAY, end):
        levels: dict[str, int] = {}
        for shard in shards:
            if shard.queue != gone or minute <= shard.last:
                levels[shard.queue] = levels.get(shard.queue, 0) + shard.level(minute)
        for queue, level in levels.items():
            if level and (queue, minute) not in looked:
                hour = queue, minute - minute % HOUR
                found[hour] = found.get(hour, 0) + 60 * level
    return found


def test_it_is_what_a_count_of_all_minutes_finds(spark: SparkSession) -> None:
    chance = random.Random(SEED)
    shards = [Shard(queue, number, chance) for queue in "abcd" for number in range(2)]
    looked = {
        (shard.queue, at + more)
        for shard in shards
        for at in chance.sample(list(shard.changes), 6)
        for more in range(chance.randint(1, 90))
        if MONDAY <= at + more < PERIOD.end
    }
    end = PERIOD.end - 100
    period = Minutes(MONDAY, end)
    rows = [("t", queue, minute, "n.1", LOOKED, 7) for queue, minute in looked if minute < end]
    filled = idle_storage(
        spark.createDataFrame([shard.standing() for shard in shards], STANDINGS),
        spark.createDataFrame([row for shard in shards for row in shard.rows(MONDAY)], USAGE),
        spark.createDataFrame(rows, USAGE),
        spark.createDataFrame([(f"{queue}-id",) for queue in "abc"], "queue_id string"),
        period,
    )
    expected = count(shards, looked, "d", end)
    assert expected
    hours = sum_up(filled, HOUR).collect()
    assert {(row.queue, row.window): row.value for row in hours} == expected


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
        row = await store.create_queue("ann", "a", QueueConfig())
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
        return [bill.used[LOOKED] for bill in report.tenants]

    put(url, rows_of("deleted"))
    put(url, rows_of(queue_id))
    assert used() == [600 * 24 * 3_600]
    assert used(now=60_000 * (MONDAY + 90)) == [600 * 90 * 60]
    assert used(now=60_000 * MONDAY) == []
