"""Tables, objects, and a progress bar that only people see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pushlane.commands.output import (
    MANY,
    age,
    forget_output,
    nobody_reads,
    print_object,
    print_table,
    progress,
)
from tests.gateway.process import environment


def test_objects(capsys: pytest.CaptureFixture[str]) -> None:
    print_object({"a": 1, "long_name": "x", "none": None, "in": {"ner": [1]}, "empty": ""})
    assert capsys.readouterr().out == (
        'a          1\nlong_name  x\nin.ner     [1]\nempty      ""\n'
    )
    print_object({})
    assert capsys.readouterr().out == ""


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "b"], [{"a": "xyz", "b": True, "c": 1}, {"b": 1.5}])
    assert capsys.readouterr().out == "A    B\nxyz  true\n-    1.5\n"


@pytest.mark.parametrize(
    ("out", "err", "total", "shown"),
    [
        (False, True, MANY, True),
        (False, True, None, True),
        (False, True, MANY - 1, False),
        (True, True, MANY, False),
        (False, False, MANY, False),
    ],
)
def test_a_bar_only_for_many_and_only_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    out: bool,
    err: bool,
    total: int | None,
    shown: bool,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: out)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: err)
    monkeypatch.setenv("TERM", "xterm")
    with progress("publishing", total) as advance:
        advance(7)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("publishing" in captured.err) is shown
    assert ("7/" in captured.err) is shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"), (0.9, "0s"), (7, "7s"), (60, "1m 0s"), (725, "12m 5s"), (3_599, "59m 59s"),
        (7_260, "2h 1m"), (266_400, "3d 2h"), (40_000_000, "462d 23h"),
    ],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds * 1000) == text


PUSHLANE = Path(sys.prefix, "bin", "pushlane")


def piped(folder: Path, *args: str) -> tuple[int, str]:
    """Run a command whose output has no reader; its exit code and what it said on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [PUSHLANE, *args],
            stdout=writer,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            env=environment(),
            text=True,
            timeout=60,
        )
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "args", [["token", "list", "--json"], ["serve", "--print-config"]], ids=" ".join
)
def test_a_command_says_nothing_of_it(tmp_path: Path, args: list[str]) -> None:
    assert piped(tmp_path, *args) == (0, "")


def test_its_own_fault_is_still_told(tmp_path: Path) -> None:
    code, said = piped(tmp_path, "publish", "orders")
    assert (code, said.startswith("pushlane: nothing to publish")) == (2, True)


def test_who_reads_and_who_does_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert not nobody_reads()
        os.close(reader)
        assert nobody_reads()
        output.write("x")
        forget_output()  # else closing the file would raise BrokenPipeError
        assert not nobody_reads()


def test_no_output_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert not nobody_reads()
    forget_output()
