"""Each planted bug is found by a short campaign. `make test` runs one without a bug, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.__main__ import said_of
from tests.crash.campaign import Campaign, Plan
from tests.crash.judge import Verdict, judge
from tests.crash.plants import CAUGHT, PLANTS

SEED = 7
TRIES = 2
PLANS = {
    "early-published": (3, 0),
    "early-settled": (3, 0),
    "forgotten-ids": (3, 0),
    "trusted-receipts": (0, 1),
    "keys-out-of-order": (1, 0),
}
"""Kills and stops that show it."""


def judged(plan: Plan, folder: Path) -> Verdict:
    campaign = Campaign(plan, folder)
    campaign.run()
    return judge(campaign.histories)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(plant: str, tmp_path: Path) -> None:
    kills, stops = PLANS[plant]
    found: set[str] = set()
    for seed in range(SEED, SEED + TRIES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found |= set(judged(Plan(kills, stops, seed, plant), folder).report.broken)
        if found & CAUGHT[plant]:
            return
    pytest.fail(f"{plant} was not caught, only {found}")


def test_a_plan_is_decided_by_its_seed() -> None:
    rounds = Plan(8, 3, 1).rounds()
    assert rounds == Plan(8, 3, 1).rounds()
    assert rounds != Plan(8, 3, 2).rounds()
    assert sorted(rounds) == ["kill"] * 8 + ["stop consumers"] + ["stop server"] * 2


def test_figures_are_told() -> None:
    verdict = judge([])
    verdict.seen.messages = 17
    assert said_of(verdict.seen).startswith("17 messages, 0 publishes confirmed")
