"""Clients of the JavaScript SDK: a Node process that publishes and consumes (`worker.mjs`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.crash.crew import Crew
from tests.crash.load import JOBS, LEASE_MS, SLOW_S, WORK

SCRIPT = Path(__file__).with_name("worker.mjs")
PAUSE_MS = 20


def hire_script(crew: Crew, url: str, pace: float, within: Sequence[str] = ()) -> None:
    """A producer and a consumer of the JavaScript SDK, each in a process."""
    rest = [str(PAUSE_MS * pace), WORK, JOBS, str(LEASE_MS), str(round(SLOW_S * 1000))]

    def command(role: str, number: int, history: Path) -> list[str]:
        return [*within, "node", str(SCRIPT), role, url, str(number), str(history), *rest]

    for role in ("producers", "consumers"):
        crew.hire_command(role, partial(command, role))
