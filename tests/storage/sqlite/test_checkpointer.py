"""Checkpoints: in the background, never on a log without anything to copy."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane_storage.sqlite.checkpointer import Checkpointer
from pushlane_storage.sqlite.connection import connect, open_database
from pushlane_storage.sqlite.folder import Folder, open_folder
from pushlane_storage.sqlite.limits import KIB, Limits
from pushlane_storage.sqlite.reader import Gate
from pushlane_storage.sqlite.schema import STEPS
from tests.storage.samples import claimed, messages
from tests.storage.sqlite.tools import Opened, fill

LIMITS = Limits(checkpoint_bytes=100 * KIB, finish_bytes=20 * KIB, passes=3, gate_ms=10)


class Rig:
    """A checkpointer over a real database, whose background passes wait to be let go."""

    def __init__(self, folder: Folder) -> None:
        self.faults: list[BaseException] = []
        self.passes: list[tuple[int, int]] = []
        """What each background pass found: frames in the log, and how many it copied."""
        self._begin = threading.Semaphore(0)
        self._ended = threading.Semaphore(0)
        rig = self

        class Background(sqlite3.Connection):
            def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
                if "wal_checkpoint" not in statement:
                    return super().execute(statement, *values)  # type: ignore[arg-type]
                assert rig._begin.acquire(timeout=10)
                _, logged, copied = super().execute(statement).fetchone()
                rig.passes.append((logged, copied))
                rig._ended.release()
                return super().execute("SELECT ?, ?, ?", (0, logged, copied))

        self.connection, _ = open_database(folder, LIMITS, STEPS)
        background = sqlite3.connect(
            folder.database, isolation_level=None, check_same_thread=False, factory=Background
        )
        self.gate = Gate()
        self.checkpointer = Checkpointer(
            self.connection, background, self.gate, LIMITS, self.faults.append
        )
        self.connection.execute("CREATE TABLE t (x)")

    def running(self) -> bool:
        """A background pass was begun, and the writer has not seen its end."""
        return self.checkpointer._running

    def commit(self, size: int) -> None:
        self.connection.execute("INSERT INTO t VALUES (randomblob(?))", (size,))
        self.checkpointer.committed(size)

    def background(self) -> None:
        """Let a background pass run, and wait until it is over."""
        self._begin.release()
        assert self._ended.acquire(timeout=10)
        assert self.checkpointer._over.wait(10)

    def frames(self) -> tuple[int, int]:
        """Frames in the log, and how many are copied, as SQLite says."""
        _, logged, copied = self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        return logged, copied

    def close(self) -> None:
        self.checkpointer.close()
        self.connection.close()


@pytest.fixture
def rig(folder: Path) -> Iterator[Rig]:
    opened = open_folder(folder)
    rig = Rig(opened)
    yield rig
    rig.close()
    opened.close()


def test_the_background_copies_and_the_writer_finishes(rig: Rig) -> None:
    rig.commit(90 * KIB)
    assert not rig.running()
    rig.commit(20 * KIB)
    assert rig.running()
    rig.commit(5 * KIB)  # the writer goes on meanwhile
    rig.background()
    rig.commit(5 * KIB)
    assert rig.checkpointer.logged == 0
    assert rig.checkpointer.finished == 1
    rig.commit(1 * KIB)  # the log starts anew
    logged, _ = rig.frames()
    assert logged < 5


def test_much_that_is_left_is_for_another_pass(rig: Rig) -> None:
    rig.commit(110 * KIB)
    for _ in range(2):
        rig.commit(50 * KIB)
        rig.background()
        rig.commit(1 * KIB)  # sees that the pass is over
        assert not rig.running()
        rig.commit(1 * KIB)  # and begins the next one
        assert rig.running()
    assert rig.checkpointer.finished == 0
    rig.commit(50 * KIB)
    rig.background()
    rig.commit(1 * KIB)  # the third was the last: the writer copies the rest
    assert rig.checkpointer.finished == 1


def test_no_pass_begins_on_a_log_that_is_copied_completely(rig: Rig) -> None:
    """What SQLite's WAL-reset bug needs: see checkpointer.py."""
    rig.commit(110 * KIB)
    rig.commit(60 * KIB)
    rig.background()  # it copied both: nothing is left
    assert rig.passes[-1][0] == rig.passes[-1][1]
    rig.checkpointer.committed(0)  # the writer looks, without having written
    rig.checkpointer.committed(0)
    assert not rig.running()
    rig.commit(1 * KIB)
    if rig.running():
        logged_before = rig.passes[-1][0]
        rig.background()
        logged, copied = rig.passes[-1]
        assert (logged, copied) != (logged_before, logged_before)
    assert not rig.faults


def test_a_reader_inside_is_waited_for(rig: Rig) -> None:
    rig.commit(1 * KIB)
    inside, leave = threading.Event(), threading.Event()

    def read() -> None:
        with rig.gate.reading():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=read)
    thread.start()
    inside.wait(10)
    rig.checkpointer.finish()  # it gives up waiting, and SQLite copies all the same
    assert rig.checkpointer.finished == 1
    leave.set()
    thread.join()


def test_finishing_waits_for_a_pass_under_way(rig: Rig) -> None:
    rig.commit(110 * KIB)
    assert rig.running()
    threading.Timer(0.05, rig.background).start()
    rig.checkpointer.finish()
    assert rig.checkpointer.logged == 0
    rig.checkpointer.finish()
    assert rig.checkpointer.finished == 1


async def test_the_log_stays_small(opened: Opened) -> None:
    limits = Limits(checkpoint_bytes=300 * KIB, finish_bytes=100 * KIB, idle_ms=1_000)
    store = await opened(limits)
    owner = await claimed(store)
    await fill(owner, 30, 10)
    stats = store.stats()
    assert stats.database_bytes > 6 * limits.checkpoint_bytes
    assert stats.checkpoints >= 3
    assert stats.log_bytes < 3 * limits.checkpoint_bytes


async def test_only_what_went_into_the_log_counts(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit without a change must not count as one: see checkpointer.py."""
    store = await opened()
    owner = await claimed(store)
    await owner.append(0, messages(2))
    sizes: list[int] = []
    monkeypatch.setattr(Checkpointer, "committed", lambda self, size: sizes.append(size))
    await owner.append(0, messages(2))  # again
    await store.usage.put([])
    await store.drop(owner.shard, owner.bucket(start=1))
    with pytest.raises(AssertionError, match="overlap"):
        await owner.append(1, messages(2))
    assert sizes == []
    await owner.append(2, messages(2))
    assert len(sizes) == 1


def test_connections_do_not_checkpoint_on_their_own(folder: Path) -> None:
    opened = open_folder(folder)
    connection, _ = open_database(opened, LIMITS, STEPS)
    other = connect(opened.database, 1 << 20, LIMITS)
    for one in (connection, other):
        assert one.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        assert one.execute("PRAGMA synchronous").fetchone() == (2,)
        assert one.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        one.close()
    opened.close()
