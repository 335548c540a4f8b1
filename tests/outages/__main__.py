"""`python -m tests.outages`: break what a gateway stands on, under load; say what came of it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.crash.__main__ import progress, said_of
from tests.outages.campaign import Campaign, Plan
from tests.outages.faults import FAULTS
from tests.outages.gaps import Window
from tests.outages.plants import PLANTS
from tools.services.cassandra import Ring, running_cassandra
from tools.services.redis import Redis, running_redis

TIMES = 3
TRIES = 3
"""Campaigns in which a planted bug must be found."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.outages", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, help="how often each fault comes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=FAULTS, action="append", help="this fault; repeatable")
    parser.add_argument("--plants", action="store_true", help="with bugs, each to be found")
    args = parser.parse_args()
    plan = Plan(args.seed, args.times, tuple(args.only or FAULTS))
    folder = Path(tempfile.mkdtemp(prefix="pushlane-outages-"))
    try:
        with running_cassandra(3) as ring, running_redis() as redis:
            service = Service(folder, ring, redis)
            passed = service.find_plants(args.seed) if args.plants else service.hold(plan)
    except BaseException:
        print(f"histories and logs are in {folder}")
        raise
    if not passed:
        print(f"histories and logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


class Service:
    """What campaigns are held on, one after the other."""

    def __init__(self, folder: Path, ring: Ring, redis: Redis) -> None:
        self._folder = folder
        self._ring = ring
        self._redis = redis

    def hold(self, plan: Plan) -> bool:
        """Whether all went well."""
        print(f"seed {plan.seed}: {len(plan.rounds())} faults")
        campaign = Campaign(plan, self._folder, self._ring, self._redis, progress)
        verdict = campaign.run()
        print(*table(campaign.windows), sep="\n")
        print(said_of(verdict.seen))
        print(f"notes: {verdict.report.notes}; {campaign.seconds:.0f} s")
        print(verdict.report)
        return verdict.report.ok

    def find_plants(self, seed: int) -> bool:
        """Whether every planted bug is found."""
        missed = [name for name in PLANTS if not self._finds(name, seed)]
        if missed:
            print(f"not found: {', '.join(missed)}")
        return not missed

    def _finds(self, name: str, seed: int) -> bool:
        plant = PLANTS[name]
        for number in range(seed, seed + TRIES):
            folder = self._folder / f"{name}-{number}"
            folder.mkdir()
            plan = Plan(number, 1, (plant.fault,), name)
            campaign = Campaign(plan, folder, self._ring, self._redis)
            broken = campaign.run().report.broken
            print(f"{name}, seed {number}: {broken or 'nothing'} ({campaign.seconds:.0f} s)")
            if plant.caught & set(broken):
                return True
        return False


def table(windows: Sequence[Window]) -> Iterator[str]:
    """How long publishes were not accepted, by fault."""
    yield "| fault | times | not accepted, median | at most | bar | load |"
    yield "|---|---|---|---|---|---|"
    for kind in FAULTS:
        found = [window for window in windows if window.kind == kind]
        if found:
            outages = [window.outage_ms for window in found]
            bars = max(window.bar_ms for window in found)
            load = max(window.load for window in found)
            yield (
                f"| {kind} | {len(found)} | {median(outages):.0f} ms | {max(outages)} ms"
                f" | {bars} ms | {load:.1f} |"
            )


if __name__ == "__main__":
    sys.exit(main())
