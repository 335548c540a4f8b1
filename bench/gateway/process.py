"""Processes of a benchmark: each on its core, with its output in a file, ended by us."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]
"""The same one where there is only one."""
START_S = 60
STOP_S = 20
FILES = 20_000
"""Open files that a process may have: 5,000 connections and some more."""


class DidNotStart(Exception):
    """A server was not ready in time, or ended."""


def pinned(core: int, command: Sequence[str]) -> list[str]:
    return ["taskset", "-c", str(core), *command]


def raise_limits() -> None:
    """For us and everything that we start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def find(command: str, *folders: Path) -> str | None:
    """Where a command is: in one of these folders, or on the path."""
    for folder in folders:
        if (folder / command).is_file():
            return str(folder / command)
    return shutil.which(command)


def accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    ready: Callable[[], bool],
    *,
    core: int = SERVER_CORE,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from ready on until the block ends."""
    with (folder / "output.txt").open("ab") as output:
        process = subprocess.Popen(
            pinned(core, command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(process, folder, ready)
        yield process
    finally:
        _end(process)


def _wait(process: subprocess.Popen[bytes], folder: Path, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + START_S
    while not ready():
        if process.poll() is not None or time.monotonic() > until:
            said = (folder / "output.txt").read_text(errors="replace").splitlines()[-5:]
            raise DidNotStart("\n".join(said) or f"exit code {process.poll()}")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
