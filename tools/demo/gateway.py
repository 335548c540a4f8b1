"""`pushlane serve` as a child: killed, it is started again, on the same port and the same store.

It doesn't matter who killed it: the page's button or a `kill -9` from another terminal.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from tools.services.process import CannotStart

HOST = "127.0.0.1"
COMMAND = [sys.executable, "-c", "from pushlane.cli import main; main()", "serve"]
START_SECONDS = 60.0
"""A machine that is busy takes some seconds; one that takes longer has another trouble."""
QUICK_SECONDS = 1.0
"""Whoever ends by itself so soon after it was ready would do so again."""
TAIL_LINES = 20
RESUME_MS = 10_000
"""A killed consumer's session waits this long: longer than a lease of the page's, so that one sees
leases run out; shorter than the default, so that nobody waits for half a minute."""


class Gateway:
    """The child, and how often it was started."""

    def __init__(
        self, port: int, options: Sequence[str], log: Path, *,
        name: str = "server", away_s: float = 0.0,
    ) -> None:  # fmt: skip
        """`options` of `pushlane serve`. Killed, it stays away for so long."""
        self.name = name
        self.port = port
        self.starts = 0
        self._options = options
        self._log = log
        self._away_s = away_s
        self._child: subprocess.Popen[str] | None = None
        self._change = trio.Condition()
        self.is_running = False
        self._wanted_end = False

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep it running, for ever. Raises CannotStart."""
        try:
            await self._start()
            task_status.started()
            while True:
                await self._until_it_ends()
                await trio.sleep(self._away_s)
                await self._start()
        finally:
            self._kill()

    async def restart(self) -> None:
        """kill -9, and wait until it is back."""
        await self.started(1)
        starts = self.starts
        self._wanted_end = True
        self._kill()
        await self.started(starts + 1)

    async def started(self, times: int) -> None:
        """Wait until it was ready so often."""
        async with self._change:
            while self.starts < times:
                await self._change.wait()

    async def _start(self) -> None:
        self._wanted_end = False
        self._child = self._spawn()
        assert self._child.stdout is not None
        with trio.move_on_after(START_SECONDS):
            read = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
            line = await read(self._child.stdout.readline)
            if line.startswith("ready on "):
                self.starts += 1
                self.is_running = True
                async with self._change:
                    self._change.notify_all()
                return
        self._kill()
        raise self._fault(f"{self.name} did not start")

    def _spawn(self) -> subprocess.Popen[str]:
        """From this thread, which lives as long as we do: where the kernel offers it, the child
        dies with the thread that started it, so that no kill -9 of ours leaves it behind.
        """
        with_us = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        options = ["--listen", f"{HOST}:{self.port}", *self._options]
        options += ["--set", f"limits.resume_ms={RESUME_MS}"]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*with_us, *COMMAND, *options],
                cwd=self._log.parent,
                env={n: v for n, v in os.environ.items() if not n.startswith("PUSHLANE_")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us
                text=True,
            )

    async def _until_it_ends(self) -> None:
        assert self._child is not None
        since = time.monotonic()
        code = await trio.to_thread.run_sync(self._child.wait, abandon_on_cancel=True)
        self.is_running = False
        self._close_pipe()
        by_itself = not self._wanted_end and code != -signal.SIGKILL
        if by_itself and time.monotonic() - since < QUICK_SECONDS:
            raise self._fault(f"{self.name} ended with {code}")

    def _kill(self) -> None:
        """Not gently: losing nothing that way is what this is about."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._close_pipe()

    def _close_pipe(self) -> None:
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()

    def _fault(self, what: str) -> CannotStart:
        lines = self._log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return CannotStart("\n".join([f"{what}; this is the end of its log:", *lines]))
