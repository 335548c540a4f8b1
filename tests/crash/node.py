"""A server under test: a real `pushlane serve`, always on one port."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.crash.child import Child, ChildFailed

REPOSITORY = Path(__file__).parents[2]
SERVE = [sys.executable, "-c", "from pushlane.cli import main; main()", "serve"]
START_S = 90.0
ASK_S = 60.0
LOOPBACK = "127.0.0.1"
UTIME = 11
"""Its place in /proc/PID/stat behind the name; stime follows."""


class Node:
    """Started, killed, stopped and continued by the campaign."""

    def __init__(
        self, folder: Path, plant: str = "", *, backing: Sequence[str] = (), name: str = "server",
        planted: str = "tests.crash.plants", host: str = LOOPBACK, within: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`backing`: the arguments that say where it keeps things; without, in the folder.

        `planted` is the module that runs it with a bug; `within` stands before its command.
        """
        self._backing = list(backing) or ["--data", str(folder / "data")]
        self._log = folder / f"{name}.log"
        self.name = name
        serve = [sys.executable, "-m", planted, plant, "serve"] if plant else SERVE
        self._command = [*within, *serve]
        self._listen = f"{host}:0"
        self._child: Child | None = None
        self.url = ""

    def spawn(self) -> None:
        """Start it; `wait_until_ready` says when it is there."""
        arguments = ["--listen", self._listen, *self._backing, "--log-level", "warning"]
        self._child = Child([*self._command, *arguments], self._log, REPOSITORY)

    def wait_until_ready(self) -> None:
        self.url = self._there.hear("ready on ", START_S)
        self._listen = self.url.removeprefix("http://")
        self.ask("GET", "/readyz")

    def kill(self) -> None:
        """kill -9; returns when it is gone."""
        if not self._there.is_alive:
            raise ChildFailed(f"the server ended by itself with {self._there.end(0)}")
        self._there.kill()
        self._child = None

    def pause(self) -> None:
        self._there.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._there.signal(signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM; its exit code."""
        self.ask_to_end()
        return self.end()

    def ask_to_end(self) -> None:
        self._there.signal(signal.SIGTERM)

    def end(self) -> int:
        """Wait for its end; its exit code."""
        code = self._there.end(START_S)
        self._child = None
        return code

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    def cpu_ms(self) -> int:
        """How long it has been computing since its start."""
        fields = Path("/proc", str(self._there.pid), "stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[UTIME]) + int(fields[UTIME + 1])
        return ticks * 1000 // os.sysconf("SC_CLK_TCK")

    def queued_ms(self) -> int:
        """How long it has been ready to compute since its start, with no core free for it."""
        return int(Path("/proc", str(self._there.pid), "schedstat").read_text().split()[1]) // 10**6

    @property
    def _there(self) -> Child:
        assert self._child is not None, "not started"
        return self._child

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A request of the HTTP API; its answer, if that is JSON."""
        content = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, content, headers, method=method)
        with urllib.request.urlopen(request, timeout=ASK_S) as answer:
            said = answer.read()
        return json.loads(said) if said.startswith(b"{") else None

    def acked(self, queue: str) -> int:
        """How many of a queue's messages were acked since the server's start."""
        return int(self.ask("GET", f"/v1/queues/{queue}/stats")["acked"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def number(self, metric: str) -> float:
        """A metric without labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=ASK_S) as answer:
            for line in answer.read().decode().splitlines():
                name, _, value = line.partition(" ")
                if name == metric:
                    return float(value)
        raise LookupError(f"there is no {metric}")

    def left(self, queue: str) -> int:
        """How many messages a queue has, and is about to have."""
        stats = self.ask("GET", f"/v1/queues/{queue}/stats")
        return int(stats["stored"]) + int(stats["pending"])


def milliseconds(since: float) -> int:
    return round((time.monotonic() - since) * 1000)
