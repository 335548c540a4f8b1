"""What a process and all that it started use: memory at most, and CPU time."""

from __future__ import annotations

import os
import threading
from pathlib import Path

EVERY_S = 0.5


class Peak:
    """Watches while it is entered. What processes share counts once: workers are forks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.mib = 0.0
        self._cpu: dict[int, float] = {}

    @property
    def cpu_s(self) -> float:
        """Seconds of CPU, but for what a process used after it was last looked at."""
        return sum(self._cpu.values())

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            processes = _tree(self._pid)
            self.mib = max(self.mib, sum(map(_pss_kib, processes)) / 1024)
            for pid in processes:
                self._cpu[pid] = max(self._cpu.get(pid, 0.0), _cpu_s(pid))
            if self._over.wait(EVERY_S):
                return


def _tree(pid: int) -> set[int]:
    parents = {int(name): _parent(name) for name in os.listdir("/proc") if name.isdigit()}
    found, grew = {pid}, True
    while grew:
        more = {child for child, parent in parents.items() if parent in found}
        grew = not more <= found
        found |= more
    return found


def _parent(pid: str) -> int:
    return int(_stat(pid)[1])


def _cpu_s(pid: int) -> float:
    user, system = _stat(str(pid))[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _stat(pid: str) -> list[str]:
    """What stands behind the name; zeros when it is over."""
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 20


def _pss_kib(pid: int) -> int:
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
