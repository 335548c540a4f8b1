"""For tests of programs that use Pushlane: a real server, for as long as a block runs.

    with pushlane.testing.server() as url:
        ...

    async with pushlane.testing.server() as url, pushlane.connect(url) as client:
        ...

It runs `pushlane serve` as a child process on a free port, with a folder of its own that is gone
afterwards, so `pushlane-server` must be installed. It works in any event loop: starting and
stopping block for the moment that they take.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType

_RUN = "from pushlane.cli import main; main()"
_READY = "ready on "


class ServerFailed(Exception):
    """The server did not start; the message has what it said."""


class server:
    """A server as a context manager, sync or async; gives its URL.

    `store` is `"sqlite"` (in a temporary folder), `"memory"`, or a store's URL. `arguments` are
    added to the command. `start_s` and `stop_s` bound how long it may take to start and to drain.
    """

    def __init__(
        self,
        *,
        store: str = "sqlite",
        arguments: Sequence[str] = (),
        start_s: float = 60.0,
        stop_s: float = 10.0,
    ) -> None:
        self._store = store
        self._arguments = list(arguments)
        self._start_s = start_s
        self._stop_s = stop_s
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._listen = "127.0.0.1:0"
        self.url = ""

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> str:
        """Start it; its URL. Started again, it has the same port and the same store."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="pushlane-")
        command = [sys.executable, "-c", _RUN, "serve", "--listen", self._listen]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*command, "--store", self._store_url, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self._folder.name,
                env={name: v for name, v in os.environ.items() if not name.startswith("PUSHLANE_")},
            )
        try:
            self.url = self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        self._listen = self.url.removeprefix("http://")
        return self.url

    def stop(self) -> int:
        """End it gracefully (SIGTERM); its exit code."""
        assert self._process is not None, "not started"
        self._process.terminate()
        try:
            self._process.wait(self._stop_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._reap()

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        assert self._process is not None, "not started"
        self._process.kill()
        self._reap()

    def log(self) -> str:
        """What it wrote to stderr."""
        with open(self._log, errors="replace") as log:
            return log.read()

    def _reap(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait()
        self._process.stdout.close()
        return code

    @property
    def _log(self) -> str:
        assert self._folder is not None
        return os.path.join(self._folder.name, "server.log")

    @property
    def _store_url(self) -> str:
        assert self._folder is not None
        short = {"sqlite": f"sqlite:{self._folder.name}/data", "memory": "memory:"}
        return short.get(self._store, self._store)

    def _wait_until_ready(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + self._start_s
        said = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([pipe], [], [], left)[0]:
                raise ServerFailed(f"not ready within {self._start_s} s: {self.log()}")
            data = os.read(pipe, 4096)
            if not data:
                raise ServerFailed(f"it ended with {self._process.wait()}: {self.log()}")
            said += data
            for line in said.decode(errors="replace").splitlines(keepends=True):
                if line.startswith(_READY) and line.endswith("\n"):
                    return line.removeprefix(_READY).strip()

    # with, async with

    def __enter__(self) -> str:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None and self._process.poll() is None:
                self.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    async def __aenter__(self) -> str:
        return self.__enter__()

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(exc_type, exc, traceback)
