"""Child processes: what they say, how they end, and that they don't outlive anybody."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from tests.crash.child import Child, ChildFailed
from tests.crash.node import REPOSITORY

ECHO = "import sys\nfor line in sys.stdin: print('heard', line.strip(), flush=True)"


def child(tmp_path: Path, program: str) -> Child:
    return Child([sys.executable, "-c", program], tmp_path / "log", tmp_path)


def test_a_conversation(tmp_path: Path) -> None:
    echo = child(tmp_path, ECHO)
    for word in ("one", "two"):
        echo.say(word)
        assert echo.hear("heard ", 20) == word
    echo.kill()
    assert not echo.is_alive


def test_two_lines_at_once_are_two(tmp_path: Path) -> None:
    both = child(tmp_path, "print('a 1\\na 2', flush=True)")
    assert [both.hear("a ", 20), both.hear("a ", 20)] == ["1", "2"]
    assert both.end(20) == 0


def test_one_that_fails_says_why(tmp_path: Path) -> None:
    failing = child(tmp_path, "raise SystemExit('no such thing')")
    with pytest.raises(ChildFailed, match="ended with 1: no such thing"):
        failing.hear("ready", 20)
    with pytest.raises(AssertionError, match="ended with 1"):
        failing.signal(signal.SIGSTOP)
    failing.end(1)


def test_one_that_says_nothing_or_something_else(tmp_path: Path) -> None:
    echo = child(tmp_path, ECHO)
    with pytest.raises(ChildFailed, match="silent"):
        echo.hear("heard", 0.1)
    echo.say("x")
    with pytest.raises(ChildFailed, match="said b'heard x'"):
        echo.hear("ready", 20)
    echo.kill()


def test_a_stopped_one_dies_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import signal, sys, pathlib; from tests.crash.child import Child\n"
        "p = pathlib.Path(sys.argv[1])\n"
        "c = Child([sys.executable, '-c', 'import os, time; print(os.getpid(), flush=True); "
        "time.sleep(60)'], p / 'inner', p)\n"
        "pid = c.hear('', 20); c.signal(signal.SIGSTOP); print(pid, flush=True)\n"
        "sys.stdin.readline()"
    )
    parent = Child([sys.executable, "-c", program, str(tmp_path)], tmp_path / "log", REPOSITORY)
    pid = parent.hear("", 20)
    assert Path("/proc", pid).exists()
    parent.kill()
    deadline = time.monotonic() + 20
    while _is_there(pid):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.01)


def _is_there(pid: str) -> bool:
    """A zombie that nobody reaped counts as gone."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
