"""One service for several processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.repo import ROOT
from tests.tools.test_process import PATIENCE_SECONDS, is_alive, wait_gone
from tools.services.folder import is_held
from tools.services.process import CannotStart
from tools.services.shared import shared_service

# Uses Redis, says its pid, and goes on using it until it is killed or told to end.
USER = """
import sys
from pathlib import Path
from tools.services.shared import shared_service
with shared_service("redis", Path(sys.argv[1])) as service:
    print(service.pid, flush=True)
    sys.stdin.read()
"""


class User:
    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def redis(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        self.process.communicate()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def wait_clean(folder: Path) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while folder.exists():
        assert time.monotonic() < end, list(folder.iterdir())
        time.sleep(0.02)


@pytest.mark.parametrize("last", ["leaves", "is killed"])
def test_two_users_share_one_and_the_last_one_out_stops_it(tmp_path: Path, last: str) -> None:
    folder = tmp_path / "shared"
    first, second = User(folder), User(folder)
    pid = first.redis()
    assert second.redis() == pid
    first.leave()
    with shared_service("redis", folder) as third:
        assert third.pid == pid
        assert is_alive(pid)
    assert is_alive(pid)
    if last == "leaves":
        second.leave()
    else:
        second.kill()
    wait_gone(pid)
    wait_clean(folder)


def test_who_comes_while_it_stops_gets_another(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    pids = set()
    for _ in range(4):
        with shared_service("redis", folder) as service:
            pids.add(service.pid)
            assert is_alive(service.pid)
            time.sleep(0.1)
            assert is_alive(service.pid), "the old keeper does not touch it"
    for pid in pids:
        wait_gone(pid)
    wait_clean(folder)


def test_a_keeper_that_was_killed_takes_its_service_along(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    with shared_service("redis", folder) as service:
        [keeper] = Path(f"/proc/{service.pid}/status").read_text().split("PPid:\t")[1].split()[:1]
        os.kill(int(keeper), signal.SIGKILL)
        wait_gone(service.pid)
    end = time.monotonic() + PATIENCE_SECONDS
    while is_held(folder / "redis.keeper"):  # its threads end one by one
        assert time.monotonic() < end
        time.sleep(0.02)
    with shared_service("redis", folder) as another:
        assert another.pid != service.pid
        assert is_alive(another.pid)


def test_a_service_that_can_not_start_fails_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with (
        pytest.raises(CannotStart, match=r"setpriv is missing|redis-server is missing"),
        shared_service("redis", tmp_path),
    ):
        pass
    monkeypatch.undo()
    with shared_service("redis", tmp_path) as service:
        assert is_alive(service.pid)
