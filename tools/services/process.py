"""A process of ours that ends when we end, even by kill -9.

The kernel sees to that: it sends a child its parent-death signal when the *thread* that started it
ends. Threads of trio and of pytest come and go, so one thread that lives as long as this process
does all the starting.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path


class CannotStart(Exception):
    """A service can't be started; the message says what is missing, or where its log is."""


POLL_SECONDS = 0.05
TAIL_LINES = 30

_starter = ThreadPoolExecutor(1, thread_name_prefix="pushlane-services")


def need(command: str, package: str) -> str:
    """The path of a command."""
    found = shutil.which(command)
    if found is None:
        raise CannotStart(
            f"{command} is missing. Install it (on Debian: apt-get install {package})"
        )
    return found


class Process:
    """A command that can be started, stopped for a while, killed, and started again."""

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.command = [need("setpriv", "util-linux"), "--pdeathsig", "KILL", *command]
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None
        self._wanted = False

    @property
    def pid(self) -> int:
        assert self._child is not None, f"{self.name} was not started"
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def died(self) -> bool:
        """It ended though nobody here ended it."""
        return self._wanted and not self.running

    def start(self) -> None:
        assert not self.running, f"{self.name} runs"
        self._child = _starter.submit(self._start).result()
        self._wanted = True

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C is for us, and we stop it in good order.
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until it is ready. `CannotStart`: it ended, or it took too long."""
        end = time.monotonic() + seconds
        while not ready():
            if not self.running:
                raise self.fault("ended")
            if time.monotonic() > end:
                raise self.fault(f"was not ready after {seconds:g} s")
            time.sleep(POLL_SECONDS)

    def fault(self, what: str) -> CannotStart:
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return CannotStart("\n".join([f"{self.name} {what}; its log is {self.log}", *lines]))

    def pause(self) -> None:
        """SIGSTOP: it is there and doesn't answer."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, also when it is paused or gone."""
        self._wanted = False
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def terminate(self, seconds: float) -> None:
        """SIGTERM, and kill -9 when that takes too long."""
        self._wanted = False
        if self._child is not None:
            self._child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
            self.kill()
