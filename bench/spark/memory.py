"""What a process and all that it started have in memory, at most."""

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

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.mib = max(self.mib, tree_mib(self._pid))
            if self._over.wait(EVERY_S):
                return


def tree_mib(pid: int) -> float:
    return sum(map(_pss_kib, _tree(pid))) / 1024


def _tree(pid: int) -> set[int]:
    parents = {int(name): _parent(name) for name in os.listdir("/proc") if name.isdigit()}
    found, grew = {pid}, True
    while grew:
        more = {child for child, parent in parents.items() if parent in found}
        grew = not more <= found
        found |= more
    return found


def _parent(pid: str) -> int:
    try:
        return int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it is over
        return 0


def _pss_kib(pid: int) -> int:
    try:
        lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
