"""Every fault once, under load, and the checker's verdict. `make outages` has more of them."""

from __future__ import annotations

from pathlib import Path

from tests.outages.__main__ import campaign_of, table
from tests.outages.campaign import Plan
from tools.services.cassandra import Ring
from tools.services.redis import Redis

SEED = 1


def test_every_fault_once(ring: Ring, redis: Redis, tmp_path: Path) -> None:
    campaign = campaign_of(Plan(SEED), tmp_path, ring, redis, print)
    verdict = campaign.run()
    print(*table(campaign.windows), sep="\n")
    assert verdict.report.ok, str(verdict.report)
    assert verdict.seen.confirmed > 1_000, "too little load to say anything"
    assert verdict.seen.again, "nothing came again: nobody was disturbed"
