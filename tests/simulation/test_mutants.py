"""Every planted bug is caught, and by a rule that names it."""

from __future__ import annotations

from itertools import count, islice

import pytest

from tests.simulation import mutants, regressions, sqlite_mutants
from tests.simulation.cluster_world import mutants as cluster_mutants
from tests.simulation.mutants import Mutant, planted
from tests.simulation.profile import Profile
from tests.simulation.replicated import mutants as replicated_mutants
from tests.simulation.run import simulate

CORE, ROWS = mutants.plant.mutants, sqlite_mutants.plant.mutants
OWNERS = replicated_mutants.plant.mutants
NODES = cluster_mutants.plant.mutants
AGAIN = regressions.plant.mutants + regressions.plant_replicated.mutants
EVERY = CORE + ROWS + OWNERS + NODES + AGAIN

SEEDS = 400
"""Tried one after the other until the bug shows. Most show within ten; the others name a seed to
begin with, which may be out of date, or the worlds in which to look for it."""


def test_there_are_enough() -> None:
    assert len(CORE) >= 15
    assert len(ROWS) >= 5
    assert len(OWNERS) >= 9
    assert len(NODES) >= 9
    assert len({mutant.name for mutant in EVERY}) == len(EVERY)


def test_every_bug_that_was_found_is_planted() -> None:
    assert set(regressions.FOUND.values()) <= {mutant.name for mutant in EVERY}


@pytest.mark.parametrize("mutant", EVERY, ids=lambda mutant: mutant.name)
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    with planted(mutant):
        others: set[str] = set()
        worlds = (seed for seed in count() if mutant.among(Profile.draw(seed)))
        for seed in (mutant.seed, *islice(worlds, SEEDS)):
            broken = simulate(seed, store=mutant.store)[0].broken
            if mutant.caught_by & set(broken):
                return
            others.update(broken)
    pytest.fail(f"{SEEDS} seeds did not show it; caught by {sorted(others)} instead")
