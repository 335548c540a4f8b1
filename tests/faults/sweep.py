"""A sweep: faults at many places of many lives, and what became of them all."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.faults.case import POINTS, Case, Seed, Verdict, prepare, try_case
from tests.faults.control import FOR_EVER
from tests.powerloss.judge import quiet_logs
from tests.powerloss.recording import scratch

FULL_DISK = "full disk"
KINDS = (*map(str, POINTS), FULL_DISK)
"""What can fail, in words."""
KEPT_FAILURES = 10
"""Failures with their texts."""


@contextmanager
def workspace() -> Iterator[Path]:
    """A folder for what is not meant to last."""
    folder = Path(tempfile.mkdtemp(prefix="pushlane-faults-", dir=scratch()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def plan(seed: Seed, cases: int) -> list[Case]:
    """So many cases: every point in turn and the full disk, at places all over a life."""
    rng = Random(f"plan/{seed.number}")
    kinds = (*POINTS, None)
    rows = -(-cases // len(kinds))
    found = []
    for row in range(rows):
        for point in kinds:
            calls = seed.growth if point is None else seed.calls[point]
            # One of each stretch of a life, and in it where chance will have it.
            at = 1 + int(calls * (row + rng.random()) / rows)
            found.append(Case(seed.number, point, at, rng.choice((1, 2, FOR_EVER))))
    return found[:cases]


class Job(NamedTuple):
    library: Path
    seed: Seed
    case: Case
    place: Path


def work(job: Job) -> Verdict:
    quiet_logs()
    return try_case(*job)


def sweep(library: Path, folder: Path, seeds: Sequence[int], cases: int, workers: int) -> Outcome:
    """So many cases of each seed."""
    outcome = Outcome()
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool:
        prepared = pool.starmap(prepare, [(library, folder / str(seed), seed) for seed in seeds])
        jobs = [
            Job(library, seed, case, folder / f"{seed.number}.{number}")
            for seed in prepared
            for number, case in enumerate(plan(seed, cases))
        ]
        for verdict in pool.imap_unordered(work, jobs):
            outcome.add(verdict)
    return outcome


class Outcome:
    def __init__(self) -> None:
        self.cases = 0
        self.struck: Counter[str] = Counter()
        """By what failed: cases in which it did."""
        self.ended: Counter[tuple[str, str]] = Counter()
        """By what failed and how the process ended, where it did fail."""
        self.refused = 0
        self.settled = 0
        self.failed = 0
        self.failures: list[str] = []

    def add(self, verdict: Verdict) -> None:
        self.cases += 1
        kind = FULL_DISK if verdict.case.point is None else str(verdict.case.point)
        if verdict.struck:
            self.struck[kind] += 1
            self.ended[kind, verdict.ended] += 1
        if verdict.case.point is None:
            self.refused += verdict.refused
            self.settled += verdict.settled
        if verdict.faults:
            self.failed += 1
            text = "\n".join([str(verdict.case), *verdict.faults])
            self.failures = [*self.failures, text][:KEPT_FAILURES]
