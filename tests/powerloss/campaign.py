"""A campaign: recordings, the images of each, and what the judge says of them all."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec

from tests.powerloss import plants
from tests.powerloss.cuts import Cut, plan
from tests.powerloss.damage import KINDS
from tests.powerloss.disk import Disk, Lies
from tests.powerloss.judge import Judge, quiet_logs
from tests.powerloss.log import Mark, Record, marks, read_log
from tests.powerloss.recording import record, scratch

KEPT_FAILURES = 10
"""Failures with their texts; a broken store has thousands."""


class Failure(msgspec.Struct):
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
def workspace() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pushlane-powerloss-", dir=scratch()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def examine(
    log: Path, images: int, seed: int, plant: str = "", workers: int = 2, only: int | None = None
) -> Outcome:
    """Make and judge the images of a log; `only` one of them."""
    lies = plants.lies_of(plant)
    cuts = plan(read_log(log), images, seed)
    if only is not None:
        cuts = [cut for cut in cuts if cut.number == only]
        return _work(log, cuts, seed, lies)
    # A share is a stretch of the log: each worker replays it once, up to its end.
    size = max(1, -(-len(cuts) // (4 * workers)))
    shares = [cuts[low : low + size] for low in range(0, len(cuts), size)]
    shares.reverse()  # the longest first
    outcome = Outcome()
    if workers == 1:
        for share in shares:
            outcome.add(_work(log, share, seed, lies))
        return outcome
    context = multiprocessing.get_context("fork")
    with context.Pool(workers) as pool:
        jobs = [(str(log), share, seed, plant) for share in shares]
        for done in pool.imap_unordered(_job, jobs):
            outcome.add(done)
    return outcome


def _job(job: tuple[str, list[Cut], int, str]) -> Outcome:
    log, cuts, seed, plant = job
    return _work(Path(log), cuts, seed, plants.lies_of(plant))


def _work(log: Path, cuts: Iterable[Cut], seed: int, lies: Lies) -> Outcome:
    quiet_logs()
    records = read_log(log)
    outcome, disk, fed = Outcome(), Disk(lies), 0
    told = list(marks(records))
    past: list[Mark] = []
    with workspace() as folder:
        for cut in cuts:
            for record_ in records[fed : cut.place]:
                disk.feed(record_)
            fed = cut.place
            while len(past) < len(told) and told[len(past)][0] < cut.place:
                past.append(told[len(past)][1])
            _judge(disk, cut, past, seed, folder, outcome)
    return outcome


def _judge(
    disk: Disk, cut: Cut, past: list[Mark], seed: int, folder: Path, outcome: Outcome
) -> None:
    rng = Random(f"image/{seed}/{cut.number}")
    place = folder / str(cut.number)
    write_image(disk.image(KINDS[cut.damage](rng)), place)
    faults = Judge(past, rng).run(place)
    shutil.rmtree(place)
    damage = cut.damage if disk.pending else "nothing pending"
    outcome.add(
        Outcome(1, {cut.kind: 1}, {damage: 1}, not disk.pending, bool(faults), [])
    )
    if faults:
        head = f"image {cut.number}: cut {cut.kind} (place {cut.place}), {cut.damage}"
        outcome.failures.append(Failure(cut.number, "\n".join([head, *faults])))


def write_image(image: dict[str, bytes | None], folder: Path) -> None:
    folder.mkdir()
    for path, content in image.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)
