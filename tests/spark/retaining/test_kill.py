"""The job is killed at any point, beside a server under load, and run again: nothing is lost, and
nothing is there twice.

RETENTION_KILLS=10 kills as many processes; without it a few are killed, and the others are ended
by an exception at the same points, which is what a kill leaves of a single-threaded job's files.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import pushlane
from pushlane.testing import server
from pushlane_spark.retaining.job import run
from pushlane_spark.retaining.report import RetentionReport
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


def kill_at(store: str, archive: str, url: str, number: int) -> str:
    """Kill a process that runs the job when it has told of so many steps; what it told last."""
    command = [sys.executable, "-m", "tests.spark.retaining.child", store, archive, url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        told = ""
        for line in child.stdout:
            told, number = line.strip(), number - 1
            if not number:
                break
        child.kill()
    return told


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


def test_killed_processes(spark: SparkSession, small: list[str], tmp_path: Path) -> None:
    ledger, archive = Ledger(), str(tmp_path / "archive")
    store = f"sqlite:{tmp_path / 'store'}"
    chance = random.Random(SEED)
    with server(store=store, arguments=small) as url:
        with loaded(url, ledger):
            for _ in range(KILLS):
                wait_for_more(ledger)
                assert kill_at(store, archive, url, chance.randint(1, 14))
        check(spark, store, archive, url, ledger)


def test_the_check_can_fail(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger({"a": "1", "b": "2", "c": "3"}, {"a"})
    from tests.spark.retaining.ledger import Stored

    fine = Stored([("a", "1", "acked")], [("b", "2", "open"), ("c", "3", "open")])
    assert violations(ledger, fine) == []
    wrong = Stored([("a", "1", "acked")] * 2 + [("b", "9", "open"), ("x", "1", "acked")], [])
    assert len(violations(ledger, wrong)) == 6
