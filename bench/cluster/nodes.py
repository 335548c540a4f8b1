"""Three nodes on one Cassandra and one Redis, as real processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.services.cassandra import running_cassandra
from tools.services.cassandra_files import Options
from tools.services.redis import running_redis

SIZE = 3
START_S, STOP_S = 180.0, 60.0
TENURE_MS = 1_000
"""Less than usual: a node that comes back gets its share before the next round."""
SHARE_S = 8.0
"""By then it has got it."""
JAVA = Options(sync="batch", quick=False, heap_mb=1_024)
SERVE = [sys.executable, "-c", "from pushlane.cli import main; main()", "serve"]
UTIME = 11
"""Its place in /proc/PID/stat behind the name; stime follows."""


class Node:
    """It may be killed, paused and stopped, and started again where it was."""

    def __init__(
        self, name: str, folder: Path, backing: list[str],
        host: str = "127.0.0.1", within: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`within` stands before its command."""
        self.name = name
        self._log = folder / f"{name}.log"
        self._backing = backing
        self._listen = f"{host}:0"
        self._within = within
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        """It is ready when this returns."""
        before = self._log.stat().st_size if self._log.exists() else 0
        command = [*self._within, *SERVE, "--listen", self._listen, *self._backing]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--set", f"cluster.name={self.name}", "--log-level", "warning"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env={k: v for k, v in os.environ.items() if not k.startswith("PUSHLANE_")},
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not (found := self._ready(before)):
            assert time.monotonic() < deadline, f"{self.name} is not ready: see {self._log}"
            assert self._process.poll() is None, f"{self.name} ended: {self._log.read_text()}"
            time.sleep(0.05)
        self.url = found
        self._listen = found.removeprefix("http://")

    def _ready(self, before: int) -> str:
        found = re.search(r"^ready on (http://\S+)$", self._log.read_text()[before:], re.MULTILINE)
        return found[1] if found else ""

    @property
    def _there(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def kill(self) -> None:
        self._there.kill()
        self._there.wait()
        self._process = None

    def pause(self) -> None:
        self._there.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._there.send_signal(signal.SIGCONT)

    def ask_to_end(self) -> None:
        self._there.send_signal(signal.SIGTERM)

    def ended(self) -> bool:
        return self._there.poll() is not None

    def end(self) -> None:
        """In good order."""
        self.ask_to_end()
        code = self._there.wait(STOP_S)
        assert code == 0, f"{self.name} ended with {code}"
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.kill()

    def cpu_s(self) -> float:
        """How long it has been computing."""
        stat = Path("/proc", str(self._there.pid), "stat").read_text().rpartition(")")[2].split()
        ticks = int(stat[UTIME]) + int(stat[UTIME + 1])
        return ticks / os.sysconf("SC_CLK_TCK")

    def requests(self) -> float:
        """How many it has sent to Cassandra."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            found = re.search(r"^pushlane_store_requests (\S+)", answer.read().decode(), re.M)
        assert found is not None
        return float(found[1])

    def memory_kib(self) -> int:
        """What it has in memory, its share of what it shares with others."""
        lines = Path("/proc", str(self._there.pid), "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))

    def put(self, path: str, body: bytes) -> None:
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.url + path, body, headers, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def running_nodes(folder: Path, keyspace: str) -> Iterator[list[Node]]:
    """On services of their own, until the block ends."""
    with running_cassandra(1, JAVA, on_disk=True) as ring, running_redis() as cache:
        backing = ["--store", ring.url(keyspace), "--leases", cache.url]
        backing += ["--set", f"cluster.tenure_ms={TENURE_MS}"]
        nodes = [Node(f"node-{n + 1}", folder, backing) for n in range(SIZE)]
        try:
            for node in nodes:
                node.start()
            yield nodes
        finally:
            for node in nodes:
                node.close()
