"""Processes that end without warning: whatever was acknowledged is there afterwards."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.errors import FolderUnusable
from pushlane_storage.interface import Backend
from pushlane_storage.seq import make_seq
from tests.storage.samples import START, seqs_of
from tests.storage.sqlite.tools import Child, Opened

WRITER = """
import resource, sys, trio
from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.interface import StoreRefused
from pushlane_storage.message import Message
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Settlement
from pushlane_storage.slot import slot_of
from pushlane_storage.outcome import append, settle
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.store import SqliteStore

folder, file_bytes = sys.argv[1], int(sys.argv[2])
LIMITS = Limits(checkpoint_bytes=400_000, finish_bytes=50_000, reserve_bytes=0)

async def write(store, epoch, lane):
    shard, key = ShardKey("q", 0), BucketKey(lane, epoch, 1_700_000_000_000)
    for n in range(100_000):
        first = make_seq(epoch, n * 5)
        segment = Segment(key, first, [Message(b"%d" % i * 200, i) for i in range(5)])
        rows = [Settlement(key, epoch, n * 10 + lane, [key], acked=[(n, n)])]
        try:
            await append(store, shard, segment, Bucket(key, make_seq(epoch, 0)) if n == 0 else None)
            print(f"a {lane} {first}", flush=True)
            await settle(store, shard, rows)
            print(f"s {lane} {n * 10 + lane}", flush=True)
        except StoreRefused:
            print(f"refused {lane} {n}", flush=True)
            return

async def main():
    store = await SqliteStore.open(folder, LIMITS)
    if file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    epoch = await store.ownership.claim(slot_of(ShardKey("q", 0)), "node")
    async with trio.open_nursery() as nursery:
        for lane in range(8):
            nursery.start_soon(write, store, epoch, lane)

trio.run(main)
"""

SHARD = ShardKey("q", 0)


async def assert_all_there(store: Backend, said: list[str]) -> int:
    """Everything that a writer was told to be durable is; how much that was."""
    appended: dict[int, set[int]] = {}
    settled: dict[int, set[int]] = {}
    for line in said:
        kind, *numbers = line.split()
        if kind != "refused":
            lane, number = map(int, numbers)
            (appended if kind == "a" else settled).setdefault(lane, set()).add(number)
    [epoch] = {key.epoch for key in [row.key for row in (await store.outline(SHARD)).buckets]}
    for lane, firsts in appended.items():
        key = BucketKey(lane, epoch, START)
        found = await store.segments(SHARD, key, 0, 1_000_000)
        assert firsts <= {segment.first for segment in found}
        expected = range(make_seq(epoch, 0), make_seq(epoch, 5 * len(found)))
        assert seqs_of(found) == list(expected)
        rows = await store.settlements(SHARD, key)
        assert settled.get(lane, set()) <= {row.n for row in rows}
    return sum(map(len, appended.values()))


@pytest.mark.parametrize("lines", [1, 300, 3_000])
async def test_kill_9_in_the_middle_of_writes(opened: Opened, lines: int) -> None:
    child = Child(WRITER, opened.folder, 0)
    said = [child.line() for _ in range(lines)]
    said += [line for line in child.kill().split("\n")[:-1] if len(line.split()) == 3]
    store = await opened()
    assert await assert_all_there(store, said) > lines // 3
    assert store.stats().epoch == 2
    assert opened.sql("PRAGMA integrity_check") == [("ok",)]


async def test_an_io_error_at_commit_ends_the_process(opened: Opened) -> None:
    """Beyond its largest file size a process gets EFBIG: not a full disk, but an I/O error."""
    child = Child(WRITER, opened.folder, 300_000)
    code, said = child.wait()
    assert code == os.EX_IOERR
    store = await opened()
    assert await assert_all_there(store, said.splitlines()) > 10
    assert opened.sql("PRAGMA integrity_check") == [("ok",)]


@pytest.fixture
def small_disk(folder: Path) -> Iterator[None]:
    """The folder on a file system of 3 MiB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root may mount a small file system")
    yield
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=9m", str(folder)], check=True)


@pytest.mark.usefixtures("small_disk")
async def test_a_full_disk_refuses_and_loses_nothing(opened: Opened) -> None:
    child = Child(WRITER, opened.folder, 0)
    code, said = child.wait()
    assert code == 0
    lines = said.splitlines()
    assert sum(line.startswith("refused") for line in lines) == 8
    with pytest.raises(FolderUnusable, match="full"):
        await opened()
    enlarge(opened.folder)
    store = await opened()
    assert await assert_all_there(store, lines) > 50
    assert opened.sql("PRAGMA integrity_check") == [("ok",)]
