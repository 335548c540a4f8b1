"""The server that is attacked: how much memory it has, and how it treats a neighbour."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.attacks import raw
from tests.gateway.process import PUSHLANE, Process, environment

MIB = 1024 * 1024
LOOK_S, STILL, LONGEST_S = 0.05, 6, 60.0
"""It rests when it slept at so many looks in a row."""


class Memory:
    """What the server's process has grown by since this was made."""

    def __init__(self, process: Process) -> None:
        self._path = Path(f"/proc/{process.popen.pid}/status")
        self._before = self._kib("VmRSS")

    def grown(self) -> float:
        """In MiB, now."""
        return (self._kib("VmRSS") - self._before) / 1024

    def peak(self) -> float:
        """In MiB, at the worst moment of the process."""
        return (self._kib("VmHWM") - self._before) / 1024

    def falls_below(self, most: float, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.grown() >= most:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _kib(self, name: str) -> int:
        for line in self._path.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise AssertionError(f"no {name}")


def wait_until_idle(process: Process) -> None:
    """Until the server has done all that it will do with what it was sent."""
    path = Path(f"/proc/{process.popen.pid}/stat")
    still, before, until = 0, "", time.monotonic() + LONGEST_S
    while still < STILL:
        assert time.monotonic() < until, "it never rests"
        time.sleep(LOOK_S)
        fields = path.read_text().rpartition(") ")[2].split()
        state, now = fields[0], " ".join(fields[11:13])  # its time in user mode and in the kernel
        still = still + 1 if state == "S" and now == before else 0
        before = now


def make_key(folder: Path) -> str:
    """A key for the server that will run here: from now on everybody needs one."""
    command = ["token", "create", "neighbour", "--allow", "admin:*", "--data", str(folder / "data")]
    made = subprocess.run(
        [*PUSHLANE, *command],
        env=environment(), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return made.stdout.strip()


class Neighbour:
    """A client with nothing special: it publishes, and waits for the answer each time."""

    def __init__(self, url: str, key: str = "") -> None:
        hello = b'{"op":"hello","token":"%b"}' % key.encode() if key else raw.HELLO
        self._sock = raw.websocket(url, raw.frame(raw.TEXT, hello))
        assert b"welcome" in raw.hear(self._sock)
        self._id = 0

    def publish(self) -> float:
        """How long it took, in seconds."""
        self._id += 1
        text = b'{"op":"publish","id":%d,"to":"neighbour","messages":[{"body":1}]}' % self._id
        since = time.perf_counter()
        self._sock.sendall(raw.frame(raw.TEXT, text))
        while b'"published"' not in raw.hear(self._sock):
            pass
        return time.perf_counter() - since

    def p99(self, count: int = 100, pause: float = 0.002) -> float:
        """In seconds, of so many publishes."""
        self.publish()
        times = []
        for _ in range(count):
            times.append(self.publish())
            time.sleep(pause)
        return sorted(times)[int(count * 0.99) - 1]

    def close(self) -> None:
        self._sock.close()
