"""A crew: the processes with clients, from their start until everything has drained."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pushlane_history import event as history
from tests.crash.child import Child
from tests.crash.load import QUEUES
from tests.crash.node import REPOSITORY
from tests.crash.recorder import Recorder

DRAIN_S = 60.0
END_S = 60.0
DRIVER = 0
"""The driver's own part of the history; those of workers are numbered from 1."""

Say = Callable[[str], None]


class Crew:
    def __init__(self, folder: Path, seed: int, say: Say = lambda _: None) -> None:
        self._folder = folder
        self._seed = seed
        self._say = say
        self.recorder = Recorder(DRIVER)
        self.producers: list[Child] = []
        self.consumers: list[Child] = []
        self.histories: list[Path] = []

    @property
    def workers(self) -> list[Child]:
        return [*self.producers, *self.consumers]

    def hire(self, role: str, url: str, *, pace: float = 1.0, within: Sequence[str] = ()) -> int:
        """Start a worker; its number.

        `pace`: how much more slowly it publishes. `within` stands before its command.
        """

        def command(number: int, path: Path) -> list[str]:
            return [
                *within, sys.executable, "-m", "tests.crash.worker", role, "--url", url,
                "--seed", str(self._seed), "--number", str(number), "--history", str(path),
                "--pace", str(pace),
            ]  # fmt: skip

        return self.hire_command(role, command)

    def hire_command(self, role: str, command_for: Callable[[int, Path], list[str]]) -> int:
        """Any other process that does what a worker does (`worker.py`); its number.

        `command_for` gets the number, and the path of the history that it is to write.
        """
        number = len(self.workers) + DRIVER + 1
        path = self._folder / f"{number}.{role}.jsonl"
        command = command_for(number, path)
        child = Child(command, self._folder / f"{number}.{role}.log", REPOSITORY)
        (self.producers if role == "producers" else self.consumers).append(child)
        self.histories.append(path)
        return number

    def wait_until_begun(self) -> None:
        for worker in self.workers:
            worker.hear("begun", END_S)

    def finish(self, left: Callable[[], int], drain_s: float = DRAIN_S) -> None:
        """Producers stop, consumers are well, and nothing may be `left`; then all end.

        It may take `drain_s` in all, and `DRAIN_S` in which nothing more is done.
        """
        for worker in self.producers:
            worker.say("calm")
        for worker in self.producers:
            worker.hear("done", END_S)
        for worker in self.consumers:
            worker.say("calm")
        self._drain(left, drain_s)
        for worker in self.consumers:
            worker.say("end")
        for worker in self.consumers:
            worker.hear("done", END_S)
        for worker in self.workers:
            assert worker.end(END_S) == 0

    def _drain(self, left: Callable[[], int], seconds: float) -> None:
        recorder = self.recorder
        recorder.add(history.Quiesce(recorder.at, QUEUES, recorder.at + round(seconds * 1000)))
        end = time.monotonic() + seconds
        found = least = left()
        moved_at = time.monotonic()
        while found and time.monotonic() < min(end, moved_at + DRAIN_S):
            time.sleep(0.1)
            found = left()
            if found < least:
                least, moved_at = found, time.monotonic()
        self._say(f"drained: {found} messages left")
        recorder.add(history.Drained(recorder.at, found))

    def write(self) -> None:
        """The driver's part of the history."""
        path = self._folder / "driver.jsonl"
        self.recorder.write(path)
        self.histories.append(path)

    def kill(self) -> None:
        for worker in self.workers:
            if worker.is_alive:
                worker.kill()
