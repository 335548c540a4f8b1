"""Backup and restore in processes of their own: beside a busy server, and killed half-way."""

import time
from pathlib import Path

import pytest

from pushlane_storage.errors import BackupUnfinished, FolderUnusable, TargetNotEmpty
from pushlane_storage.sqlite.backup import backup, verify
from pushlane_storage.sqlite.limits import KIB, Limits
from pushlane_storage.sqlite.restore import restore
from pushlane_storage.sqlite.store import SqliteStore
from tests.storage.samples import claimed
from tests.storage.sqlite.test_crash import WRITER, assert_all_there
from tests.storage.sqlite.tools import Child, Opened, fill

STAGES = ("copying", "checking the structure", "checking every segment")

HELPER = """
import sys, time
from pathlib import Path
from pushlane_storage.sqlite import copying
from pushlane_storage.sqlite.{module} import {module}

copying.PIECE_ROWS = 50
told = []

def tell(stage, done, total):
    told.append(stage)
    print(stage, flush=True)
    if stage in {stages}:
        time.sleep(0.05)
    if stage == {halt!r} or len(told) == {halt!r}:
        time.sleep(3600)  # until it is killed

{module}(Path(sys.argv[1]), Path(sys.argv[2]), progress=tell)
print("done", flush=True)
"""


def helper(module: str, source: Path, target: Path, *slow: str, halt: str | int = "") -> Child:
    """A process that makes a backup, or restores one, and takes its time for some stages.

    It goes no further than this stage, or than what it says after so many lines.
    """
    return Child(HELPER.format(module=module, stages=slow, halt=halt), source, target)


def told(child: Child, line: str) -> None:
    while (said := child.line()) != line:
        assert said, f"it ended before it said {line}"


async def test_a_store_that_is_written_to_all_the_time(opened: Opened) -> None:
    """The backup comes to an end, and has everything that was durable before it began."""
    writer = Child(WRITER, opened.folder, 0)
    before = [writer.line() for _ in range(3_000)]
    child = helper("backup", opened.folder, opened.backup)
    told(child, "done")
    assert child.wait()[0] == 0
    assert writer.process.poll() is None, "the writer was not still at work"
    writer.kill()
    manifest = verify(opened.backup)
    assert manifest.contents.damaged == {}
    place = opened.folder.parent / "again"
    restore(opened.backup, place)
    store = await SqliteStore.open(place)
    assert await assert_all_there(store, before) > 1_000
    await store.close()


async def test_the_log_starts_anew_while_a_slow_backup_reads(opened: Opened) -> None:
    """Between its pieces a backup holds nothing: the server's checkpoints come to an end."""
    store = await opened(Limits(checkpoint_bytes=200 * KIB, finish_bytes=50 * KIB))
    owner = await claimed(store)
    await fill(owner, 1, 300)
    child = helper("backup", opened.folder, opened.backup, "copying")
    told(child, "copying")
    finished, until = store.stats().checkpoints, time.monotonic() + 0.2
    while time.monotonic() < until:
        await fill(await claimed(store), 1, 20)
    stats = store.stats()
    assert stats.checkpoints - finished >= 2
    assert stats.log_bytes < 2_000 * KIB
    assert stats.refused_log == 0
    told(child, "done")
    child.wait()
    verify(opened.backup)


@pytest.mark.parametrize("stage", STAGES)
async def test_kill_9_in_the_middle_of_a_backup(opened: Opened, stage: str) -> None:
    store = await opened()
    await fill(await claimed(store), 2, 50)
    child = helper("backup", opened.folder, opened.backup, halt=stage)
    told(child, stage)
    child.kill()
    with pytest.raises(BackupUnfinished):
        verify(opened.backup)
    with pytest.raises(BackupUnfinished):
        restore(opened.backup, opened.folder.parent / "again")
    with pytest.raises(TargetNotEmpty):
        await store.backup(opened.backup)
    await store.backup(opened.folder.parent / "another")


@pytest.mark.parametrize("passed", range(1, 13, 2))
async def test_kill_9_in_the_middle_of_a_restore(opened: Opened, passed: int) -> None:
    """It verifies, copies, and verifies again; whenever it dies, there is no store."""
    store = await opened()
    await fill(await claimed(store), 1, 10)
    backup(opened.folder, opened.backup)
    place = opened.folder.parent / "again"
    child = helper("restore", opened.backup, place, halt=3 * passed)
    said = [child.line() for _ in range(3 * passed)]
    child.kill()
    if "copying" in said and "done" not in said:
        with pytest.raises(FolderUnusable, match="run it again"):
            await SqliteStore.open(place)
    elif "done" not in said:
        assert not (opened.folder.parent / "again").exists()
    if "done" not in said:
        restore(opened.backup, place)
    await (await SqliteStore.open(place)).close()
