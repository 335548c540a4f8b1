"""A reader's machine: a folder, a shell, and the server that the page tells to start.

Pages say 127.0.0.1:8420; here it is a free port, in what is run and, turned back, in what is
printed. The same with Cassandra and Redis, where a page uses them. `.venv` leads to the
repository's, so commands can be run as they stand.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from tests.docs.console import Example, is_shown
from tests.docs.places import Places
from tests.gateway.process import environment
from tests.repo import ROOT

PORT = ":8420"
NOWHERE = Places()
READY = "ready on "
TIMEOUT = 60.0
"""Seconds for one command: only a machine that is very busy needs more than two."""


class Machine:
    def __init__(self, folder: Path, places: Places = NOWHERE) -> None:
        self._places = places
        self.folder = folder / "home"
        self.folder.mkdir()
        (self.folder / ".venv").symlink_to(ROOT / ".venv")
        (self.folder / "deploy").symlink_to(ROOT / "deploy")
        (self.folder / "node_modules").mkdir()
        (self.folder / "node_modules" / "pushlane").symlink_to(ROOT / "sdk_js")
        self._exports = folder / "exports"
        self._log = folder / "server.log"
        self._port = f":{_free_port()}"
        self.url = f"ws://127.0.0.1{self._port}"
        self._environment = {
            **environment(),
            "PYTHONUNBUFFERED": "1",  # a page shows a terminal, where lines come in their order
            "PATH": f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}",
            "PUSHLANE_URL": self.url,
            "PUSHLANE_LISTEN": f"127.0.0.1{self._port}",
        }
        self._server: subprocess.Popen[str] | None = None

    def here(self, text: str) -> str:
        """From what a page says to what is true here."""
        return self._places.here(text.replace(PORT, self._port))

    def run(self, example: Example) -> None:
        """Do it, and compare what is printed."""
        if example.command == "make serve":
            example = example._replace(command=recipe("serve"))
        if example.shown.startswith(READY):
            printed = self._serve(example.command)
        elif example.is_interrupted:
            printed = self._interrupt(example)
        else:
            printed = self._run(example.command)
        printed = self._places.shown(printed).replace(self._port, PORT)
        if printed and not printed.endswith("\n"):
            printed += "\n"  # a page can't show that there is none
        assert is_shown(example.shown, printed), (
            f"line {example.line}: {example.command}\nshown:\n{example.shown}\nprinted:\n{printed}"
            f"\nlog:\n{self.log()}"
        )

    def stop(self) -> None:
        """End the server as an operator would, unless the page has killed it."""
        if self._server is None:
            return
        server, self._server = self._server, None
        with server:
            server.terminate()
            code = server.wait(TIMEOUT)
        assert code in (0, -signal.SIGKILL), (code, self.log())

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def _script(self, command: str) -> list[str]:
        """What a page exports, its later commands have."""
        before = f"source {self._exports}\n" if self._exports.exists() else ""
        after = f"\ncode=$?; export -p > {self._exports}; exit $code"
        return ["bash", "-c", before + self.here(command) + after]

    def _run(self, command: str) -> str:
        return subprocess.run(
            self._script(command),
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
        ).stdout

    def _interrupt(self, example: Example) -> str:
        """Wait for all that is shown, then press Ctrl-C."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self.here(example.command)}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with process, _Deadline(process):
            assert process.stdout is not None
            printed = "".join(process.stdout.readline() for _ in example.shown.splitlines())
            process.send_signal(signal.SIGINT)
            return printed + process.stdout.read()

    def _serve(self, command: str) -> str:
        """Start a server instead of the one that runs; the line that it prints."""
        self.stop()
        exports = f"source {self._exports}\n" if self._exports.exists() else ""
        with self._log.open("a") as log:
            self._server = subprocess.Popen(
                ["bash", "-c", f"{exports}exec {self.here(command)}"],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        with _Deadline(self._server):
            assert self._server.stdout is not None
            return self._server.stdout.readline()


class _Deadline:
    """Kills a process that takes too long, so that a read of its output ends."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __enter__(self) -> None:
        self._timer = threading.Timer(TIMEOUT, self._process.kill)
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def recipe(target: str) -> str:
    """The last command that `make TARGET` runs."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", target],
        cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
