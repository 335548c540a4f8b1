"""`python -m tests.outages`: break what a gateway stands on, under load; say what came of it."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from tests.crash.__main__ import progress, said_of
from tests.crash.crew import Say
from tests.outages.campaign import Campaign, Plan
from tests.outages.cluster.faults import FAULTS as CLUSTER_FAULTS
from tests.outages.cluster.plants import PLANTS as CLUSTER_PLANTS
from tests.outages.cluster.stage import ClusterStage
from tests.outages.faults import FAULTS
from tests.outages.gaps import Window
from tests.outages.plants import PLANTS
from tests.outages.stage import Stage
from tools.services.cassandra import Ring, running_cassandra
from tools.services.redis import Redis, running_redis

TIMES = 3
TRIES = 3
"""Campaigns in which a planted bug must be found."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.outages", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, help="how often each fault comes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="this fault; repeatable")
    parser.add_argument("--plants", action="store_true", help="with bugs, each to be found")
    parser.add_argument("--cluster", action="store_true", help="three nodes on one Cassandra")
    parser.add_argument("--minutes", type=float, default=0.0, help="all again until then")
    args = parser.parse_args()
    kinds = CLUSTER_FAULTS if args.cluster else FAULTS
    if unknown := set(args.only or ()) - set(kinds):
        parser.error(f"no such fault: {', '.join(unknown)}; there are: {', '.join(kinds)}")
    plan = Plan(args.seed, args.times, tuple(args.only or kinds), minutes=args.minutes)
    folder = Path(tempfile.mkdtemp(prefix="pushlane-outages-"))
    try:
        with running_cassandra(1 if args.cluster else 3) as ring, running_redis() as redis:
            service = Service(folder, ring, redis, args.cluster)
            passed = service.find_plants(args.seed) if args.plants else service.hold(plan)
    except BaseException:
        print(f"histories and logs are in {folder}")
        raise
    if not passed:
        print(f"histories and logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def campaign_of(
    plan: Plan, folder: Path, ring: Ring, redis: Redis, say: Say = lambda _: None
) -> Campaign:
    """One server, and another one that takes over."""
    keyspace = f"outages_{secrets.token_hex(4)}"
    stage = Stage(folder, plan.seed, ring, redis, keyspace, plan.plant, say)
    return Campaign(plan, folder, stage, FAULTS, say)


def cluster_campaign_of(
    plan: Plan, folder: Path, ring: Ring, redis: Redis, say: Say = lambda _: None
) -> Campaign:
    keyspace = f"outages_{secrets.token_hex(4)}"
    stage = ClusterStage(folder, plan.seed, ring, redis, keyspace, plan.plant, say)
    return Campaign(plan, folder, stage, CLUSTER_FAULTS, say)


class Service:
    """What campaigns are held on, one after the other."""

    def __init__(self, folder: Path, ring: Ring, redis: Redis, cluster: bool) -> None:
        self._make = cluster_campaign_of if cluster else campaign_of
        self._plants = CLUSTER_PLANTS if cluster else PLANTS
        self._folder = folder
        self._ring = ring
        self._redis = redis

    def hold(self, plan: Plan) -> bool:
        """Whether all went well."""
        print(f"seed {plan.seed}: {len(plan.rounds())} faults")
        campaign = self._make(plan, self._folder, self._ring, self._redis, progress)
        verdict = campaign.run()
        print(*table(campaign.windows), sep="\n")
        print(said_of(verdict.seen))
        print(f"notes: {verdict.report.notes}; {campaign.seconds:.0f} s")
        print(verdict.report)
        return verdict.report.ok

    def find_plants(self, seed: int) -> bool:
        """Whether every planted bug is found."""
        missed = [name for name in self._plants if not self._finds(name, seed)]
        if missed:
            print(f"not found: {', '.join(missed)}")
        return not missed

    def _finds(self, name: str, seed: int) -> bool:
        plant = self._plants[name]
        for number in range(seed, seed + TRIES):
            folder = self._folder / f"{name}-{number}"
            folder.mkdir()
            plan = Plan(number, 1, (plant.fault,), name)
            campaign = self._make(plan, folder, self._ring, self._redis)
            broken = campaign.run().report.broken
            print(f"{name}, seed {number}: {broken or 'nothing'} ({campaign.seconds:.0f} s)")
            if plant.caught & set(broken):
                return True
        return False


def table(windows: Sequence[Window]) -> Iterator[str]:
    """How long publishes were not accepted, by fault."""
    yield "| fault | times | not accepted, median | at most | bar | load |"
    yield "|---|---|---|---|---|---|"
    for kind in {**FAULTS, **CLUSTER_FAULTS}:
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
