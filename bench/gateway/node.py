"""The load generator in Node: its packages, and one run of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from bench.gateway.process import CLIENT_CORE, find, pinned
from bench.gateway.systems import Target

FOLDER = Path(__file__).parent / "node"
RUN_S = 900
FAULT_CHARACTERS = 4_000  # of a failed run's stderr: the fault stands first, its stack behind it


class LoadFailed(Exception):
    """The load generator ended with a fault."""


def missing() -> str | None:
    if find("node") is None or find("npm") is None:
        return "node and npm (Node 20 or later)"
    return None


def install() -> None:
    """What package-lock.json names, exactly; nothing when it is there."""
    lock, mark = FOLDER / "package-lock.json", FOLDER / "node_modules" / ".package-lock.json"
    if mark.exists() and mark.stat().st_mtime >= lock.stat().st_mtime:
        return
    command = ["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=FOLDER, check=True)


def measure(target: Target, name: str, queue: str, **numbers: object) -> dict[str, float]:
    """One measurement of a system. The result's fields are those of node/measures."""
    spec = {
        "adapter": target.adapter,
        "measure": name,
        "url": target.url,
        "pid": target.pid,
        "queue": queue,
        **target.extra,
        **numbers,
    }
    command = pinned(CLIENT_CORE, ["node", str(FOLDER / "load.mjs"), json.dumps(spec)])
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise LoadFailed(f"{name}: {done.stderr.strip()[:FAULT_CHARACTERS]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found
