"""The job is killed at any point, beside a server under load, and run again: nothing is lost, and
nothing is there twice.

RETENTION_KILLS=10 kills as many processes on each kind of store, wherever they are; without it one
is killed, and others are ended by an exception at each step, which is what a kill leaves of a
single-threaded job's files.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pushlane
from pushlane.testing import server
from pushlane_spark.retaining.job import run
from pushlane_spark.retaining.report import RetentionReport
from tests.spark.retaining.child import Kill, kill_after
from tests.spark.retaining.ledger import Ledger, find, violations
from tests.spark.retaining.load import bear_load, consume, make

KILLS = int(os.environ.get("RETENTION_KILLS", "1"))
SEED = int(os.environ.get("RETENTION_SEED", str(random.randrange(1_000_000))))
STEPS = (
    "looked",
    "staging",
    "staged",
    "verified",
    "committed",
    "published a file",
    "wrote the manifests",
    "cleaned up",
    "dropping",
    "dropped",
)
LONG = KILLS >= 10
KILLED_STORES = ["sqlite", "cassandra"] if LONG else ["sqlite"]
MOST_STEPS = 30 if LONG else 14
"""A first group of buckets takes about eleven."""
MOST_DELAY_S = 0.3
MORE = 25
"""Acks between two runs: two buckets are drained then, at least."""


class Killed(BaseException):
    pass


@contextmanager
def loaded(url: str, ledger: Ledger) -> Iterator[None]:
    """A queue, and load on it as long as the block runs."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    faults: list[BaseException] = []

    async def begin() -> None:
        async with pushlane.connect(url) as client:
            await make(client)

    def work() -> None:
        try:
            loop.run_until_complete(bear_load(url, ledger, stop))
        except BaseException as error:
            faults.append(error)

    loop.run_until_complete(begin())
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
    assert faults == []


def wait_for_more(ledger: Ledger) -> None:
    end = time.monotonic() + 120
    enough = len(ledger.ended) + MORE
    while len(ledger.ended) < enough:
        assert time.monotonic() < end, "there is no load"
        time.sleep(0.05)


def run_until(spark: SparkSession, store: str, archive: str, url: str, step: str) -> bool:
    """Run the job until it comes to a step; False: it never did."""

    def at(now: str) -> None:
        if now == step:
            raise Killed(step)

    try:
        run(spark, store, archive=archive, url=url, group_messages=20, at=at)
    except Killed:
        return True
    return False


def kill_jobs(store: str, archive: str, url: str, ledger: Ledger, log: Path) -> None:
    """Kill processes that run the job at random moments, and show where that was."""
    kind = store.partition(":")[0]
    chance = random.Random(f"{SEED} {kind}")
    kills: list[Kill] = []
    ends = 0
    while len(kills) < KILLS:
        wait_for_more(ledger)
        # Most steps take milliseconds, and some a second: so most delays are short.
        delay_s = MOST_DELAY_S * chance.random() ** 3
        kill = kill_after(chance.randint(1, MOST_STEPS), delay_s, log, store, archive, url)
        if kill is None:
            ends += 1
            assert ends <= KILLS, "it ends before it is killed"
        else:
            kills.append(kill)
    print(f"\n{kind}, RETENTION_SEED={SEED}: {ends} came to their end, {len(kills)} were killed at")
    print(*kills, sep="\n")


def check(
    spark: SparkSession, store: str, archive: str, url: str, ledger: Ledger
) -> RetentionReport:
    """The last run, to the end, when there is no more load; and all that is left is delivered."""
    report = run(spark, store, archive=archive, url=url)
    assert report.unfit == []
    found = find(spark, store, archive)
    assert violations(ledger, found) == [], f"RETENTION_SEED={SEED}"
    left = set(ledger.bodies) - ledger.ended

    async def deliver() -> None:
        async with pushlane.connect(url) as client:
            await consume(client, ledger, len(left))

    asyncio.run(deliver())
    assert set(ledger.bodies) == ledger.ended
    return report


def test_killed_at_every_step(
    spark: SparkSession, store: str, served: server, tmp_path: Path
) -> None:
    ledger, archive = Ledger(), str(tmp_path / "archive")
    chance = random.Random(SEED)
    steps = list(STEPS) if store.startswith("sqlite:") else ["staged", "committed", "dropping"]
    chance.shuffle(steps)
    reached = []
    with loaded(served.url, ledger):
        for step in steps:
            wait_for_more(ledger)
            if run_until(spark, store, archive, served.url, step):
                reached.append(step)
    assert sorted(reached) == sorted(steps)
    check(spark, store, archive, served.url, ledger)


@pytest.mark.parametrize("store", KILLED_STORES, indirect=True)
def test_killed_processes(
    spark: SparkSession,
    store: str,
    served: server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger, archive = Ledger(), str(tmp_path / "archive")
    with loaded(served.url, ledger), capsys.disabled() if LONG else nullcontext():
        kill_jobs(store, archive, served.url, ledger, tmp_path / "killed.log")
    check(spark, store, archive, served.url, ledger)


def test_the_check_can_fail(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger({"a": "1", "b": "2", "c": "3"}, {"a"})
    from tests.spark.retaining.ledger import Stored

    fine = Stored([("a", "1", "acked")], [("b", "2", "open"), ("c", "3", "open")])
    assert violations(ledger, fine) == []
    wrong = Stored([("a", "1", "acked")] * 2 + [("b", "9", "open"), ("x", "1", "acked")], [])
    assert len(violations(ledger, wrong)) == 6
