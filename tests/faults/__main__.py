"""`python -m tests.faults`: make the disk of the embedded store fail, restart, judge."""

from __future__ import annotations

import argparse
import sys
import time

from tests.faults.library import compile_faults
from tests.faults.sweep import KINDS, Outcome, sweep, workspace

SEEDS, CASES, WORKERS = 2, 24, 3
LEAST = 2
"""Every kind of fault must strike this often in a full run, or it was not tested."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cases", type=int, default=CASES, help="of each seed")
    parser.add_argument("--workers", type=int, default=WORKERS)
    args = parser.parse_args()
    began = time.monotonic()
    with workspace() as folder:
        seeds = range(args.seed, args.seed + args.seeds)
        outcome = sweep(compile_faults(folder), folder, seeds, args.cases, args.workers)
    report(outcome)
    print(f"{time.monotonic() - began:.0f} s")
    rare = [kind for kind in KINDS if outcome.struck[kind] < LEAST]
    if outcome.cases >= SEEDS * CASES and rare:
        print(f"too rare to count as tested: {', '.join(rare)}")
        return 1
    return 1 if outcome.failed else 0


def report(outcome: Outcome) -> None:
    for kind, cases in sorted(outcome.struck.items()):
        ends = {end: n for (what, end), n in sorted(outcome.ended.items()) if what == kind}
        print(f"{kind:24s} {cases:4d}: " + ", ".join(f"{n} {end}" for end, n in ends.items()))
    print(f"full disks: {outcome.refused} publishes refused, {outcome.settled} settles meanwhile")
    print(f"{outcome.cases} cases, {sum(outcome.struck.values())} struck, {outcome.failed} failed")
    for failure in outcome.failures:
        print(f"\n{failure}")


if __name__ == "__main__":
    sys.exit(main())
