"""Planted bugs are found by a short campaign. `make test` runs one without a bug, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.campaign import Campaign

CAUGHT = {
    "early-settled": {"after_ack"},
    "trusted-receipts": {"stale_ack"},
    "keys-out-of-order": {"key_order"},
}
SECONDS = 90
TRIES = 2


@pytest.mark.parametrize("plant", CAUGHT)
def test_a_planted_bug_is_caught(plant: str, tmp_path: Path) -> None:
    found: set[str] = set()
    for seed in range(TRIES):
        folder = tmp_path / str(seed)
        folder.mkdir()
        violations = Campaign(SECONDS, seed, folder, plant=plant).run()
        found |= {text.partition(":")[0] for text in violations}
        if found & CAUGHT[plant]:
            return
    pytest.fail(f"{plant} was not caught, only {found}")
