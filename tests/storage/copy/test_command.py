"""`pushlane store copy`: what it prints, and how it ends."""

from __future__ import annotations

import io
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
import trio

from pushlane_storage.copy import command
from pushlane_storage.copy.command import LINE_S, Lines
from pushlane_storage.copy.sqlite_target import SqliteWriter
from tests.storage.copy.tools import fill
from tests.storage.test_store_command import Ran

TOLD = "4 queues, 480 messages in 111 segments, 42 settlements, 99 scheduled"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    return Ran(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def source(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    trio.run(fill, "sqlite:data")


def damage(statement: str) -> None:
    with closing(sqlite3.connect("data/pushlane.db")) as connection:
        connection.execute(statement)
        connection.commit()


def test_a_copy(run: Ran) -> None:
    assert run("copy", "sqlite:data", "sqlite:new", "--dry-run") == 0
    assert run.out == (
        "would copy sqlite:data to sqlite:new: 4 queues, 3 shards, 480 messages in 12 buckets\n"
    )
    assert not Path("new").exists()
    assert run("copy", "./data", "sqlite:new") == 0
    first, second = run.out.splitlines()
    assert first == f"copied sqlite:data to sqlite:new: {TOLD}"
    assert second.startswith("verified on both sides: 3 shards, checksum ")
    assert second.endswith("; servers begin with epoch 1003")
    assert run.err == ""
    assert run("copy", "sqlite:data", "new") == 0
    assert run.out.startswith(f"sqlite:new is a finished copy of sqlite:data already: {TOLD}")


def test_json(run: Ran) -> None:
    assert run("copy", "data", "new", "--json", "--dry-run") == 0
    assert run.json["outcome"] == "planned"
    assert run("copy", "data", "new", "--json") == 0
    told = run.json
    assert told["outcome"] == "finished"
    assert told["record"]["copied"]["messages"] == 480
    assert [line["queue"] for line in told["verified"]["shards"]] == ["orders"] * 2 + [
        "orders.dead"
    ]
    assert run("copy", "data", "new", "--json") == 0
    assert run.json["outcome"] == "finished before"


def test_refused(run: Ran) -> None:
    assert run("copy", "memory:", "new") == 2
    assert run.err.startswith("pushlane store: a store in memory ends with its server")
    assert run.out == ""


def test_failed_half_way(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteWriter, "segments", full)
        assert run("copy", "data", "new") == 1
    assert run.err == (
        "pushlane store: sqlite:new can't be written: database or disk is full; make room or check"
        " the disk, then run it again\n"
    )
    assert run("copy", "data", "new", "--dry-run") == 0
    assert run.out.endswith("12 buckets, 0 messages of it copied before\n")
    assert run("copy", "data", "new") == 0


def test_stopped(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SqliteWriter, "segments", interrupt)
    assert run("copy", "data", "new") == 1
    assert run.err == "pushlane store: stopped: run it again, and it goes on\n"


def test_damaged(run: Ran) -> None:
    damage("UPDATE payload SET body = x'90' WHERE id <= 12")
    assert run("copy", "data", "new") == 3
    assert run.out.startswith("copied sqlite:data")
    start = "pushlane store: 11 damaged rows in the source, copied as they are"
    assert run.err.startswith(f"{start}: segment ")
    assert run.err.endswith(", and 1 more\n")
    assert run("copy", "data", "new") == 3
    assert run.err == f"{start}\n"


def test_help(run: Ran) -> None:
    assert run("--help") == 0
    assert "Copy a store into an empty one" in run.out
    assert run("copy", "--help") == 0
    for word in ("--dry-run", "cassandra://HOST", "Exit status: 0 done", "No server may use"):
        assert word in run.out


def test_a_bar_on_a_terminal(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert run("copy", "data", "new") == 0
    assert "messages" in run.err
    assert "verifying" in run.err or "copying" in run.err


def test_lines_for_a_log() -> None:
    now = 0.0
    file = io.StringIO()
    lines = Lines(file, lambda: now)
    lines("counting", 0, 0)
    now = LINE_S
    lines("counting", 0, 0)
    lines("copying", 1, 9)
    now = 2 * LINE_S
    lines("copying", 2, 9)
    assert file.getvalue() == (
        "pushlane store: counting\npushlane store: copying: 2 of 9 messages\n"
    )
    with command.telling(file) as tell:
        assert isinstance(tell, Lines)
