"""Processes that end with their parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.repo import ROOT
from tools.services.process import CannotStart, Process, need

PATIENCE_SECONDS = 30

# Starts a child from a thread that ends, says its pid, and waits to be killed.
PARENT = """
import sys, threading, time
from pathlib import Path
from tools.services.process import Process
process = Process("sleep", ["sleep", "600"], Path(sys.argv[1]))
thread = threading.Thread(target=process.start)
thread.start()
thread.join()
time.sleep(0.2)
print(process.pid, process.running, flush=True)
time.sleep(600)
"""


def sleeper(log: Path, seconds: str = "600") -> Process:
    return Process("sleep", ["sleep", seconds], log)


def is_alive(pid: int) -> bool:
    """A zombie that nobody has waited for is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # the second: it went while it was read
        return False


def wait_gone(pid: int) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while is_alive(pid):
        assert time.monotonic() < end, f"{pid} is still there"
        time.sleep(0.02)


def wait_died(process: Process) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not process.died:
        assert time.monotonic() < end, f"{process.name} is still there"
        time.sleep(0.02)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text().split("State:\t")[1][0]


def test_start_kill_and_start_again(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    process.kill()  # nothing to kill
    for _ in range(2):
        process.start()
        pid = process.pid
        assert process.running
        assert is_alive(pid)
        process.kill()
        assert (process.running, process.died) == (False, False)
        assert not is_alive(pid)


def test_a_death_that_we_did_not_ask_for_is_noticed(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    process.start()
    assert not process.died
    os.kill(process.pid, signal.SIGKILL)
    wait_died(process)


def test_pause_and_resume(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    process.start()
    try:
        process.pause()
        end = time.monotonic() + PATIENCE_SECONDS
        while state_of(process.pid) != "T":
            assert time.monotonic() < end
            time.sleep(0.01)
        process.resume()
        while state_of(process.pid) == "T":
            assert time.monotonic() < end
            time.sleep(0.01)
        process.pause()
    finally:
        process.terminate(0.1)  # paused, it doesn't hear SIGTERM
    assert not process.running


def test_it_outlives_the_thread_that_started_it_but_not_the_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid, running = parent.stdout.readline().split()
        assert running == "True"
        assert is_alive(int(pid))
        parent.kill()
        wait_gone(int(pid))


def test_readiness_is_waited_for(tmp_path: Path) -> None:
    process = sleeper(tmp_path / "log")
    process.start()
    ready = threading.Event()
    threading.Timer(0.1, ready.set).start()
    process.until(ready.is_set, PATIENCE_SECONDS)
    with pytest.raises(CannotStart, match=r"not ready after 0\.1 s; its log is .*log"):
        process.until(lambda: False, 0.1)
    process.kill()


def test_a_process_that_ends_early_shows_its_log(tmp_path: Path) -> None:
    process = Process("loud", ["sh", "-c", "echo what went wrong; exit 3"], tmp_path / "log")
    process.start()
    with pytest.raises(CannotStart, match=r"(?s)loud ended; its log is .*what went wrong"):
        process.until(lambda: False, PATIENCE_SECONDS)


def test_a_missing_command_is_named() -> None:
    with pytest.raises(CannotStart, match=r"no-such-thing is missing.*apt-get install thing"):
        need("no-such-thing", "thing")
