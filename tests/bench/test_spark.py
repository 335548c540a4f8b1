"""The benchmark of the Spark jobs: its stores, what it watches, and how it judges."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from bench.spark import __main__ as main_module
from bench.spark import filling
from bench.spark.__main__ import Bench
from bench.spark.filling import QUEUES, fill_now
from bench.spark.memory import Peak
from bench.spark.phases import Phase
from pushlane_storage.bucket import ShardKey
from pushlane_storage.segment import Segment
from pushlane_storage.sqlite.store import SqliteStore


def test_a_store_is_as_large_as_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "BUCKET", 500)
    count = fill_now(f"sqlite:{tmp_path}", 8_000)
    assert count == 8_000

    async def look() -> tuple[int, int, set[int]]:
        store = await SqliteStore.open(tmp_path)
        found: list[Segment] = []
        drained = 0
        for tenant, name in QUEUES:
            row = await store.catalog.read(tenant, name)
            assert row is not None
            shard = ShardKey(row.id, 0)
            for bucket in (await store.outline(shard)).buckets:
                drained += bucket.drained
                found += await store.segments(shard, bucket.key, bucket.first, 1_000)
        await store.close()
        sizes = {len(message.body) for segment in found for message in segment.messages}
        return sum(len(segment.messages) for segment in found), drained, sizes

    assert trio.run(look) == (8_000, 2 * len(QUEUES), {200})


def test_the_whole_family_is_watched() -> None:
    child = "import time; b = bytearray(200 << 20); sum(range(10**7)); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], process_group=0)
    try:
        with Peak(process.pid) as peak:
            for _ in range(300):
                if peak.mib > 200 and peak.cpu_s > 0.1:
                    break
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(0.1)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    assert 200 < peak.mib < 400
    assert peak.cpu_s > 0.1


def test_bars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that grows faster than what is read, too long, or too much memory: each is told."""
    times = {("fine", 500_000): 10.0, ("fine", 5_000_000): 90.0}
    times |= {("slow", 500_000): 10.0, ("slow", 5_000_000): 301.0}

    def measure(name: str, _: str, count: int) -> Phase:
        return Phase(name, count, 1.0, times[name, count], peak_mib=5_000 if name == "slow" else 1)

    monkeypatch.setattr(main_module, "_in_process", measure)
    monkeypatch.setattr(main_module, "fill_now", lambda _, count: count)
    bench = Bench(tmp_path, 1)
    bench.grown("fine", "slow")
    assert [check.reached for check in bench.result.checks] == [True] * 3 + [False] * 3


@pytest.mark.parametrize(("reached", "code"), [(True, 0), (False, 1)])
def test_the_exit_code_says_whether_all_bars_were_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reached: bool, code: int
) -> None:
    def part(bench: Bench) -> None:
        bench.check("a", "1", "< 2", reached)

    figures = tmp_path / "figures.json"
    monkeypatch.setitem(main_module.PARTS, "read", part)
    arguments: list[Any] = ["bench", "--only", "read", "--data", tmp_path, "--json", figures]
    monkeypatch.setattr(sys, "argv", [str(each) for each in arguments])
    assert main_module.main() == code
    assert '"reached": ' in figures.read_text()
