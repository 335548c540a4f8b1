"""Every planted bug is caught, and by a rule that names it."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, planted
from tests.simulation.run import simulate

SEEDS = 150
"""Tried one after the other until the bug shows; most show within ten."""


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 15
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    with planted(mutant):
        others: set[str] = set()
        for seed in range(SEEDS):
            broken = simulate(seed)[0].broken
            if mutant.caught_by & set(broken):
                return
            others.update(broken)
    pytest.fail(f"{SEEDS} seeds did not show it; caught by {sorted(others)} instead")
