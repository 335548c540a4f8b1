"""`pushlane store`: what it prints, how it ends, and what it says when it can't."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from pushlane import cli
from pushlane_storage.queue import QueueConfig
from pushlane_storage.sqlite.store import SqliteStore
from tests.repo import ROOT
from tests.storage.samples import claimed, messages


async def make_store(folder: Path) -> None:
    store = await SqliteStore.open(folder)
    row = await store.catalog.create("default", "orders", QueueConfig())
    owner = await claimed(store, row.id)
    await owner.append(0, messages(3))
    await owner.append(3, messages(2))
    await store.close()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    trio.run(make_store, Path("data"))
    return Path("data")


class Ran:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *args: str) -> object:
        """Run the command as the installed script does; its exit status."""
        self._monkeypatch.setattr(sys, "argv", ["pushlane", "store", *args])
        with pytest.raises(SystemExit) as end:
            cli.main()
        self.out, self.err = self._capsys.readouterr()
        return end.value.code or 0

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.out)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ran:
    return Ran(monkeypatch, capsys)


def test_there_and_back(run: Ran, data: Path) -> None:
    assert run("backup", "data", "b") == 0
    assert run.out.startswith("backed up to b: 5 messages in 2 segments, 1 queues, ")
    assert run.err == ""
    assert run("verify", "b") == 0
    assert run.out.startswith("b is complete: 5 messages")
    assert run("restore", "b", "sqlite:again") == 0
    assert run.out.startswith("restored to again, epoch 1002: 5 messages in 2 segments")
    assert run("backup", "sqlite:./again", "c") == 0


def test_json(run: Ran, data: Path) -> None:
    assert run("backup", "./data", "b", "--json") == 0
    made = run.json
    assert made["backup"] == "b"
    assert made["manifest"]["contents"]["messages"] == 5
    assert run("verify", "b", "--json") == 0
    assert run.json == made
    assert run("restore", "b", "again", "--json", "--epoch-above", "5000") == 0
    assert run.json == {"data": "again", "epoch": 5000, "manifest": made["manifest"]}


def test_damaged_segments_show_in_the_exit_status(run: Ran, data: Path) -> None:
    connection = sqlite3.connect(data / "pushlane.db")
    connection.execute("UPDATE payload SET body = x'90' WHERE id = 1")
    connection.commit()
    connection.close()
    for args in (("backup", "data", "b"), ("verify", "b"), ("restore", "b", "again")):
        assert run(*args) == 3
        assert "5 messages" in run.out
        assert (
            run.err
            == "pushlane store: damaged rows in the store, copied as they are: 1 of segment\n"
        )


@pytest.mark.parametrize(
    ("args", "status", "text"),
    [
        (("backup", "nowhere", "b"), 2, "nowhere is not a store: there is no pushlane.db in it"),
        (("backup", "memory:", "b"), 2, "give a folder, or sqlite:DIR"),
        (("backup", "cassandra://host/space", "b"), 2, "not an embedded store"),
        (("backup", "sqlite:", "b"), 2, "names no folder"),
        (("backup", "data", "data"), 2, "data is not empty"),
        (("verify", "data"), 2, "has no manifest"),
        (("restore", "nowhere", "again"), 2, "has no manifest"),
        (("restore", "ok", "data"), 2, "data is not empty"),
        (("restore", "ok", "again", "--epoch-above", "9000000"), 2, "younger backup"),
        (("restore", "bad", "again"), 1, "use another backup"),
        (("verify", "bad"), 1, "use another backup"),
    ],
)
def test_errors_say_what_to_do(
    run: Ran, data: Path, args: tuple[str, ...], status: int, text: str
) -> None:
    assert run("backup", "data", "ok") == 0
    assert run("backup", "data", "bad") == 0
    with Path("bad/backup.db").open("ab") as file:
        file.write(b"more")
    assert run(*args) == status
    assert run.out == ""
    assert run.err.startswith("pushlane store: ")
    assert text in run.err
    assert not Path("again").exists()
    assert not Path("b").exists()


def examples() -> list[tuple[list[str], str]]:
    """The commands of the operators' page, with what they print."""
    text = (ROOT / "docs" / "embedded-store.md").read_text()
    found = []
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for example in block.split("$ ")[1:]:
            command, printed = example.split("\n", 1)
            found.append((command.split(), printed))
    return found


def test_the_examples_in_the_docs(
    run: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trio.run(make_store, Path("pushlane-data"))
    assert len(examples()) == 3
    for (program, group, *args), printed in examples():
        assert (program, group) == ("pushlane", "store")
        assert run(*args) == 0
        assert re.fullmatch(re.escape(printed).replace("…", r"\d+"), run.out), run.out


def test_help(run: Ran) -> None:
    assert run("--help") == 0
    assert "Back up a store into a new folder" in run.out
    assert run("restore", "--help") == 0
    assert "--epoch-above" in run.out


def test_a_bar_on_a_terminal(run: Ran, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert run("backup", "data", "b") == 0
    assert run.out.startswith("backed up to b")
    assert "copying" in run.err or "checking" in run.err or "reading" in run.err


def test_starting_the_command_line_does_not_load_the_store() -> None:
    script = (
        "import sys; from pushlane import cli; cli.build_app(); print('sqlite3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
