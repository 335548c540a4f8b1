"""A campaign: recordings, the images of each, and what the judge says of them all."""

from __future__ import annotations

import faulthandler
import multiprocessing
import shutil
import signal
import tempfile
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from tests.powerloss import plants
from tests.powerloss.cuts import Cut, plan
from tests.powerloss.damage import KINDS
from tests.powerloss.disk import Disk
from tests.powerloss.judge import Judge, Past, quiet_logs
from tests.powerloss.log import marks, read_log
from tests.powerloss.recording import scratch

KEPT_FAILURES = 10
"""Failures with their texts; a broken store has thousands."""
ENOUGH = 5
"""Failures after which it is clear that something is wrong."""
STUCK_S = 15


class Failure(msgspec.Struct):
    seed: int
    image: int
    text: str


class Outcome(msgspec.Struct):
    """What became of the images of one recording."""

    images: int = 0
    cuts: dict[str, int] = {}
    damage: dict[str, int] = {}
    untouched: int = 0
    """Images in which nothing was pending: nothing to lose."""
    failed: int = 0
    failures: list[Failure] = []

    def add(self, other: Outcome) -> None:
        self.images += other.images
        self.cuts = dict(Counter(self.cuts) + Counter(other.cuts))
        self.damage = dict(Counter(self.damage) + Counter(other.damage))
        self.untouched += other.untouched
        self.failed += other.failed
        self.failures = (self.failures + other.failures)[:KEPT_FAILURES]


@contextmanager
def workspace(within: Path | None = None) -> Iterator[Path]:
    """A folder for what is not meant to last."""
    folder = Path(tempfile.mkdtemp(prefix="pushlane-powerloss-", dir=within or scratch()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Job(NamedTuple):
    """A stretch of a log: a worker replays the log once, up to its end."""

    log: Path
    seed: int
    plant: str
    cuts: list[Cut]


def jobs_of(log: Path, images: int, seed: int, plant: str = "", shares: int = 8) -> list[Job]:
    cuts = plan(read_log(log), images, seed)
    size = max(1, -(-len(cuts) // shares))
    return [Job(log, seed, plant, cuts[low : low + size]) for low in range(0, len(cuts), size)]


def examine(jobs: Iterable[Job], workers: int = 2, enough: int = ENOUGH) -> Outcome:
    """Make and judge the images of all jobs, until that many failed."""
    outcome = Outcome()
    context = multiprocessing.get_context("spawn")
    # Each job has a process of its own: whatever hangs or leaks there ends with it.
    with context.Pool(workers, maxtasksperchild=1) as pool:
        for done in pool.imap_unordered(work, jobs):
            outcome.add(done)
            if outcome.failed >= enough:
                break
    return outcome


def work(job: Job) -> Outcome:
    quiet_logs()
    signal.signal(signal.SIGALRM, _stuck)
    records = read_log(job.log)
    outcome, disk, fed = Outcome(), Disk(plants.lies_of(job.plant)), 0
    told, past = deque(marks(records)), Past()
    with workspace(job.log.parent) as folder:
        for cut in job.cuts:
            for record in records[fed : cut.place]:
                disk.feed(record)
            fed = cut.place
            while told and told[0][0] < cut.place:
                past.add(told.popleft()[1])
            _judge(disk, cut, past, job.seed, folder, outcome)
            if outcome.failed >= ENOUGH:
                break
    return outcome


class Stuck(Exception):
    """An image took far too long: a thread of the store does not come to an end."""


def _stuck(*_: object) -> None:
    faulthandler.dump_traceback()  # of all threads: which one it is
    raise Stuck(f"an image took more than {STUCK_S} s")


def _judge(disk: Disk, cut: Cut, past: Past, seed: int, folder: Path, outcome: Outcome) -> None:
    rng = Random(f"image/{seed}/{cut.number}")
    place = folder / str(cut.number)
    write_image(disk.image(KINDS[cut.damage](rng)), place)
    signal.alarm(STUCK_S)
    faults = Judge(past, rng).run(place)
    signal.alarm(0)
    shutil.rmtree(place)
    damage = cut.damage if disk.pending else "nothing pending"
    outcome.add(Outcome(1, {cut.kind: 1}, {damage: 1}, not disk.pending, bool(faults), []))
    if faults:
        head = f"seed {seed}, image {cut.number}: cut {cut.kind} (place {cut.place}), {cut.damage}"
        outcome.failures.append(Failure(seed, cut.number, "\n".join([head, *faults])))


def write_image(image: dict[str, bytes | None], folder: Path) -> None:
    folder.mkdir()
    for path, content in image.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
