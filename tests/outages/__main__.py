"""`python -m tests.outages`: break what a gateway stands on, under load; say what came of it."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Protocol

from tests.crash.__main__ import progress, said_of
from tests.crash.crew import Say
from tests.outages.campaign import Campaign, Plan
from tests.outages.cluster.faults import FAULTS as CLUSTER_FAULTS
from tests.outages.cluster.ground import Loopback
from tests.outages.cluster.long import LONG_FAULTS, LongStage
from tests.outages.cluster.namespaces import Namespaces, running_namespaces
from tests.outages.cluster.network import leave_the_world
from tests.outages.cluster.plants import PLANTS as CLUSTER_PLANTS
from tests.outages.cluster.stage import ClusterStage
from tests.outages.faults import FAULTS
from tests.outages.gaps import Window
from tests.outages.plants import PLANTS, Plant
from tests.outages.stage import Stage
from tools.services.cassandra import Ring, running_cassandra
from tools.services.redis import Redis, running_redis

TIMES = 3
TRIES = 3
"""Campaigns in which a planted bug must be found."""


def main() -> int:
    args, kinds = _arguments()
    plan = Plan(args.seed, args.times, tuple(args.only or kinds), minutes=args.minutes)
    folder = Path(tempfile.mkdtemp(prefix="pushlane-outages-"))
    try:
        with _grounds(args, folder) as grounds:
            passed = grounds.find_plants(args.seed) if args.plants else grounds.hold(plan)
    except BaseException:
        print(f"histories and logs are in {folder}")
        raise
    if not passed:
        print(f"histories and logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def _arguments() -> tuple[argparse.Namespace, Iterable[str]]:
    """And the names of the faults there are."""
    parser = argparse.ArgumentParser(prog="python -m tests.outages", description=__doc__)
    parser.add_argument("--times", type=int, default=TIMES, help="how often each fault comes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="this fault; repeatable")
    parser.add_argument("--plants", action="store_true", help="with bugs, each to be found")
    parser.add_argument("--cluster", action="store_true", help="three nodes on one Cassandra")
    parser.add_argument("--long", action="store_true", help="on a ring of three, in namespaces")
    parser.add_argument("--minutes", type=float, default=0.0, help="all again until then")
    args = parser.parse_args()
    if args.long and not args.cluster:
        parser.error("--long is a form of --cluster")
    kinds: Iterable[str] = FAULTS
    if args.cluster:
        kinds = LONG_FAULTS if args.long else CLUSTER_FAULTS
    if unknown := set(args.only or ()) - set(kinds):
        parser.error(f"no such fault: {', '.join(unknown)}; there are: {', '.join(kinds)}")
    return args, kinds


@contextmanager
def _grounds(args: argparse.Namespace, folder: Path) -> Iterator[Service]:
    """What to break, while it runs."""
    if args.long:
        leave_the_world()
        with running_namespaces() as namespaces:
            yield Service(folder, partial(long_campaign_of, namespaces=namespaces), CLUSTER_PLANTS)
        return
    make, plants = (cluster_campaign_of, CLUSTER_PLANTS) if args.cluster else (campaign_of, PLANTS)
    with running_cassandra(1 if args.cluster else 3) as ring, running_redis() as redis:
        yield Service(folder, partial(make, ring=ring, redis=redis), plants)


def campaign_of(
    plan: Plan, folder: Path, ring: Ring, redis: Redis, say: Say = lambda _: None
) -> Campaign:
    """One server, and another one that takes over."""
    stage = Stage(folder, plan.seed, ring, redis, _keyspace(), plan.plant, say)
    return Campaign(plan, folder, stage, FAULTS, say)


def cluster_campaign_of(
    plan: Plan, folder: Path, ring: Ring, redis: Redis, say: Say = lambda _: None
) -> Campaign:
    ground = Loopback(ring, redis)
    stage = ClusterStage(folder, plan.seed, ground, _keyspace(), plan.plant, say)
    return Campaign(plan, folder, stage, CLUSTER_FAULTS, say)


def long_campaign_of(
    plan: Plan, folder: Path, namespaces: Namespaces, say: Say = lambda _: None
) -> Campaign:
    stage = LongStage(folder, plan.seed, namespaces, _keyspace(), plan.plant, say)
    return Campaign(plan, folder, stage, LONG_FAULTS, say)


def _keyspace() -> str:
    return f"outages_{secrets.token_hex(4)}"


class Make(Protocol):
    def __call__(self, plan: Plan, folder: Path, *, say: Say = ...) -> Campaign: ...


class Service:
    """What campaigns are held on, one after the other."""

    def __init__(self, folder: Path, make: Make, plants: Mapping[str, Plant]) -> None:
        self._folder = folder
        self._make = make
        self._plants = plants

    def hold(self, plan: Plan) -> bool:
        """Whether all went well."""
        print(f"seed {plan.seed}: {len(plan.rounds())} faults")
        campaign = self._make(plan, self._folder, say=progress)
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
            campaign = self._make(plan, folder)
            broken = campaign.run().report.broken
            print(f"{name}, seed {number}: {broken or 'nothing'} ({campaign.seconds:.0f} s)")
            if plant.caught & set(broken):
                return True
        return False


def table(windows: Sequence[Window]) -> Iterator[str]:
    """How long publishes were not accepted, by fault."""
    yield "| fault | times | not accepted, median | at most | bar | load |"
    yield "|---|---|---|---|---|---|"
    for kind in sorted({window.kind for window in windows}):
        found = [window for window in windows if window.kind == kind]
        outages = [window.outage_ms for window in found]
        bars = max(window.bar_ms for window in found)
        load = max(window.load for window in found)
        yield (
            f"| {kind} | {len(found)} | {median(outages):.0f} ms | {max(outages)} ms"
            f" | {bars} ms | {load:.1f} |"
        )


if __name__ == "__main__":
    sys.exit(main())
