"""A real `pushlane serve` process for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PUSHLANE = [sys.executable, "-c", "from pushlane.cli import main; main()"]
COMMAND = [*PUSHLANE, "serve"]
TIMEOUT = 60


def environment() -> dict[str, str]:
    """Ours, without what would configure the server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PUSHLANE_")}


class Process:
    def __init__(
        self, folder: Path, *flags: str, prepare: Callable[[], None] | None = None
    ) -> None:
        """`prepare` is called in the new process, before the server is."""
        self.errors = folder / "stderr.txt"
        with self.errors.open("ab") as errors:
            self.popen = subprocess.Popen(
                [*COMMAND, "--listen", "127.0.0.1:0", "--data", str(folder / "data"), *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
                env=environment(),
                text=True,
                preexec_fn=prepare,
            )
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line.startswith("ready on http://127.0.0.1:"), (line, self.errors.read_text())
        self.url = line.removeprefix("ready on ").strip()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait(TIMEOUT)

    def terminate(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the exit code."""
        self.popen.send_signal(number)
        return self.popen.wait(TIMEOUT)


@contextmanager
def serving(
    folder: Path, *flags: str, prepare: Callable[[], None] | None = None
) -> Iterator[Process]:
    process = Process(folder, *flags, prepare=prepare)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.kill()
        assert process.popen.stdout is not None
        process.popen.stdout.close()


def run(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run `pushlane serve` to its end, which is to come by itself."""
    return subprocess.run(
        [*COMMAND, *flags],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
