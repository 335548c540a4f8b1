"""Every fault of a cluster once, under load, and the checker's verdict."""

from __future__ import annotations

from pathlib import Path

from tests.outages.__main__ import cluster_campaign_of, table
from tests.outages.campaign import Plan
from tests.outages.cluster.faults import FAULTS
from tools.services.cassandra import Ring
from tools.services.redis import Redis

SEED = 1


def test_every_fault_once(single: Ring, redis: Redis, tmp_path: Path) -> None:
    plan = Plan(SEED, kinds=tuple(FAULTS))
    campaign = cluster_campaign_of(plan, tmp_path, single, redis, print)
    verdict = campaign.run()
    print(*table(campaign.windows), sep="\n")
    assert verdict.report.ok, str(verdict.report)
    assert verdict.seen.confirmed > 1_000, "too little load to say anything"
    assert verdict.seen.again, "nothing came again: nobody was disturbed"
