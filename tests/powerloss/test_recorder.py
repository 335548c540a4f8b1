"""The recorder: everything that reaches the folder is in the log, and in order."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.powerloss.campaign import workspace
from tests.powerloss.log import DamagedLog, Kind, Record, read_log
from tests.powerloss.recording import NoCompiler, compare, compile_recorder, run_recorded

FILES = """
import os, shutil, sys
os.chdir(sys.argv[1])
os.mkdir("sub")
with open("sub/a", "wb", buffering=0) as file:
    file.write(b"hello")
    file.writelines([b" wor", b"ld"])
fd = os.open("b", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"x" * 5000, 100)
os.pwritev(fd, [b"one", b"two"], 10)
os.writev(fd, [b"A", b"B"])
os.ftruncate(fd, 3000)
os.posix_fallocate(fd, 0, 4000)
copy = os.dup(fd)
os.pwrite(copy, b"by a copy", 50)
os.fsync(copy)
os.close(fd)
os.truncate("b", 3900)
open("b", "ab").write(b"at the end")
shutil.copyfile("b", "c")
os.link("c", "d")
os.rename("d", "e")
os.replace("sub/a", "sub/z")
os.unlink("c")
open("e", "wb").close()
os.mkdir("gone")
os.rmdir("gone")
folder = os.open("sub", os.O_RDONLY)
os.fsync(folder)
open("database-shm", "wb").write(b"not recorded")
"""

DATABASE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1] + "/test.db", isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("PRAGMA synchronous = FULL")
database.execute("CREATE TABLE t (x)")
for n in range(50):
    database.execute("INSERT INTO t VALUES (?)", (b"x" * 100 * n,))
    if n % 20 == 0:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
"""

MAP = """
import mmap, os, sys
fd = os.open(sys.argv[1] + "/mapped", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 4096)
mmap.mmap(fd, 4096)[:5] = b"hello"
"""

MARKS = """
import os, sys
from pushlane_history.event import Crash
from tests.powerloss.log import Created, Marker
mark = Marker()
fd = os.open(sys.argv[1] + "/file", os.O_RDWR | os.O_CREAT)
mark(Created("before"))
os.write(fd, b"data")
mark(Crash(1, "after"))
"""

DEATH = """
import os, sys, threading, time
def write(name):
    fd = os.open(sys.argv[1] + "/" + name, os.O_RDWR | os.O_CREAT)
    for n in range(1_000_000):
        os.pwrite(fd, bytes([n % 256]) * 400_000, n % 7 * 100_000)
for name in "abcd":
    threading.Thread(target=write, args=(name,), daemon=True).start()
time.sleep(0.02)
os._exit(7)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with workspace() as folder:
        (folder / "watched").mkdir()
        yield folder


def run(folder: Path, script: str) -> list[Record]:
    log = folder / "log"
    command = [sys.executable, "-c", script, str(folder / "watched")]
    run_recorded(compile_recorder(folder), folder / "watched", log, command)
    return read_log(log)


def test_the_log_tells_all_that_is_there(folder: Path) -> None:
    records = run(folder, FILES)
    compare(records, folder / "watched")
    assert (folder / "watched" / "b").stat().st_size == 3910
    synced = [record.path for record in records if record.kind is Kind.SYNC_BEGIN]
    assert synced == ["b", "sub"]
    assert not any("shm" in record.path for record in records)


def test_a_database(folder: Path) -> None:
    records = run(folder, DATABASE)
    compare(records, folder / "watched")
    synced = {record.path for record in records if record.kind is Kind.SYNC_BEGIN}
    assert synced >= {"test.db", "test.db-wal", ""}


def test_what_got_past_the_recorder_is_noticed(folder: Path) -> None:
    records = run(folder, DATABASE)
    with (folder / "watched" / "test.db").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DamagedLog, match=r"missed changes of test\.db"):
        compare(records, folder / "watched")


def test_a_memory_map_is_trouble(folder: Path) -> None:
    with pytest.raises(DamagedLog, match="memory map"):
        run(folder, MAP)


def test_marks_stand_between_the_writes(folder: Path) -> None:
    kinds = [record.kind for record in run(folder, MARKS)]
    assert kinds == [Kind.BEGIN, Kind.CREATE, Kind.MARK, Kind.WRITE, Kind.MARK]


def test_a_process_that_ends_itself_leaves_no_change_without_its_record(folder: Path) -> None:
    for _ in range(3):
        compare(run(folder, DEATH), folder / "watched")


def test_a_log_that_ends_within_a_record_is_refused(folder: Path) -> None:
    run(folder, MARKS)
    log = folder / "log"
    whole = log.read_bytes()
    for missing in (1, 30):
        log.write_bytes(whole[:-missing])
        with pytest.raises(DamagedLog, match="within a record"):
            read_log(log)


def test_no_marks_without_the_recorder() -> None:
    from tests.powerloss.log import Marker

    with pytest.raises(DamagedLog, match="without the recorder"):
        Marker()


def test_no_compiler_is_a_clear_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(NoCompiler, match="install gcc"):
        compile_recorder(folder)
