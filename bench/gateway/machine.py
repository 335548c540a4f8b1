"""What a run was made on: the machine's shape, the commit, and who else used the CPU."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]


class Shape(msgspec.Struct, frozen=True):
    cores: int
    memory_gib: int
    kernel: str
    python: str
    node: str


class Load(msgspec.Struct, frozen=True):
    """At one moment: load averages, and ticks of the CPUs since the machine started."""

    averages: tuple[float, float, float]
    busy: int
    steal: int
    total: int


def shape() -> Shape:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Shape(
        os.cpu_count() or 0,
        round(pages / 2**30),
        platform.release().split("-")[0],
        platform.python_version(),
        _said("node", "--version").removeprefix("v"),
    )


def commit() -> str:
    """Of the working tree; with a + when something in it is not committed."""
    found = _said("git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD")
    changed = _said("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return found + ("+" if changed else "")


def _said(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def load() -> Load:
    fields = [int(ticks) for ticks in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    total = sum(fields[:8])
    return Load(os.getloadavg(), total - fields[3] - fields[4], fields[7], total)


def shares(before: Load, after: Load) -> tuple[float, float]:
    """Of all CPU time in between: what was busy, and what the host took for others."""
    total = max(1, after.total - before.total)
    return (after.busy - before.busy) / total, (after.steal - before.steal) / total
