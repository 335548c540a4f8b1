"""Child processes that never outlive the test, stopped or not."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class ChildFailed(Exception):
    """A process ended, or was silent, when it should have said something."""


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Child:
    """A process with pipes for its stdin and stdout, and a file for its stderr."""

    def __init__(self, command: list[str], log: Path, cwd: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=cwd,
                env={name: v for name, v in os.environ.items() if not name.startswith("PUSHLANE_")},
                preexec_fn=_die_with_parent,
            )  # fmt: skip
        self._said = b""

    def say(self, line: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{line}\n".encode())
        self._popen.stdin.flush()

    def hear(self, beginning: str, seconds: float) -> str:
        """The rest of the next line, which begins like this."""
        assert self._popen.stdout is not None
        pipe = self._popen.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._said:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise ChildFailed(f"silent for {seconds} s: {self._errors()}")
            data = os.read(pipe, 4096)
            if not data:
                raise ChildFailed(f"it ended with {self._popen.wait()}: {self._errors()}")
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        if not line.startswith(beginning.encode()):
            raise ChildFailed(f"said {line!r}")
        return line.decode().removeprefix(beginning).strip()

    def signal(self, number: int) -> None:
        assert self.is_alive, f"it ended with {self._popen.returncode}: {self._errors()}"
        self._popen.send_signal(number)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def end(self, seconds: float) -> int:
        """Wait for its own end; its exit code."""
        code = self._popen.wait(seconds)
        self._close()
        return code

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._popen.kill()
        self._popen.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            pipe.close()

    def _errors(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
