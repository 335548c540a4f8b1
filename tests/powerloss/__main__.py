"""`python -m tests.powerloss`: record, cut, judge, and say what was found."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.powerloss import plants
from tests.powerloss.campaign import Job, Outcome, examine, jobs_of, work, workspace
from tests.powerloss.log import Kind
from tests.powerloss.recording import record, scratch

IMAGES = 2_000
RECORDINGS = 3
WORKERS = 3
"""More than there are cores in CI: an image waits for the store's threads now and then."""
SHARES = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.powerloss")
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--recordings", type=int, default=RECORDINGS)
    parser.add_argument("--seed", type=int, default=1, help="of the first recording")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--plant", choices=plants.ALL, default="", help="with a bug, to be found")
    parser.add_argument("--log", type=Path, help="judge this recording, kept by a failed run")
    parser.add_argument("--image", type=int, help="with --log: only this image")
    args = parser.parse_args()
    if args.log is not None:
        return again(args)
    with workspace() as folder:
        began = time.monotonic()
        logs = record_all(folder, args)
        recorded = time.monotonic()
        share = -(-args.images // args.recordings)
        jobs = [
            job
            for seed, log in logs.items()
            for job in jobs_of(log, share, seed, args.plant, SHARES)
        ]
        outcome = examine(sorted(jobs, key=cost, reverse=True), args.workers)
        took = time.monotonic() - recorded
        report(outcome)
        print(f"recorded in {recorded - began:.0f} s, {outcome.images / took:.0f} images/s")
        for log in keep(outcome, logs):
            print(f"again: python -m tests.powerloss --images {share} {log}")
    return 1 if outcome.failed else 0


def cost(job: Job) -> int:
    """Later cuts have more to read and to check."""
    return sum(cut.place for cut in job.cuts)


def again(args: argparse.Namespace) -> int:
    jobs = jobs_of(args.log, args.images, args.seed, args.plant, SHARES)
    if args.image is None:
        outcome = examine(jobs, args.workers)
    else:
        cuts = [cut for job in jobs for cut in job.cuts if cut.number == args.image]
        outcome = work(Job(args.log, args.seed, args.plant, cuts))
    report(outcome)
    return 1 if outcome.failed else 0


def record_all(folder: Path, args: argparse.Namespace) -> dict[int, Path]:
    """By seed: the log of a recording. Two at a time: most of one is waiting."""

    def make(seed: int) -> Path:
        place = folder / str(seed)
        place.mkdir()
        plant = args.plant if args.plant in plants.PROCESS else ""
        syncs = sum(line.kind is Kind.SYNC_END for line in record(place, seed, plant))
        all_of = "all" if 2 * syncs <= -(-args.images // args.recordings) else "NOT all"
        print(f"recording {seed}: {syncs} syncs, {all_of} cut on both sides", flush=True)
        return place / "log"

    seeds = range(args.seed, args.seed + args.recordings)
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(seeds, pool.map(make, seeds), strict=True))


def report(outcome: Outcome) -> None:
    print(f"{outcome.images} images, {outcome.failed} failed")
    for title, counts in (("cut", outcome.cuts), ("damage", outcome.damage)):
        print(f"  {title}: " + ", ".join(f"{n} {name}" for name, n in sorted(counts.items())))
    for failure in outcome.failures:
        print(f"\n{failure.text}")


def keep(outcome: Outcome, logs: dict[int, Path]) -> list[str]:
    """A recording can't be made again: threads have their own mind. So its log stays."""
    lines = []
    for failure in outcome.failures:
        kept = scratch() / f"powerloss-{failure.seed}.log"
        shutil.copy(logs[failure.seed], kept)
        lines.append(f"--seed {failure.seed} --log {kept} --image {failure.image}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
