"""The simulator itself: it is deterministic, and it reaches what it means to reach."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.run import EVENTS, simulate
from tests.simulation.sqlite_tables import SimulatedSqlite
from tests.simulation.tables import ALL, StoreKind

SAME = range(2_000, 2_012)
"""Seeds whose whole histories are compared; `make sim` compares checksums of hundreds more."""


@pytest.mark.parametrize("store", ALL)
def test_a_seed_gives_the_same_run_again(store: StoreKind) -> None:
    first, world = simulate(42, keep=True, store=store)
    again, other = simulate(42, keep=True, store=store)
    assert first == again
    assert world.history == other.history
    assert first.events >= EVENTS[store]


@pytest.mark.parametrize("seed", SAME)
def test_a_seed_gives_the_same_run_on_every_store(seed: int) -> None:
    outcome, world = simulate(seed, keep=True, store="memory")
    other, elsewhere = simulate(seed, keep=True, store="sqlite")
    assert world.history == elsewhere.history
    assert outcome == other
    assert not outcome.broken, outcome.text


def test_histories_that_differ_have_different_checksums() -> None:
    assert len({simulate(seed, 200)[0].digest for seed in range(5)}) == 5


def test_the_sqlite_world_reaches_what_it_means_to_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[SimulatedSqlite] = []
    create = SimulatedSqlite.__init__

    def note(self: SimulatedSqlite, seed: int) -> None:
        create(self, seed)
        made.append(self)

    monkeypatch.setattr(SimulatedSqlite, "__init__", note)
    for seed in range(7, 20):
        simulate(seed, store="sqlite")
    assert sum(tables.hiccups for tables in made) > 20, "commits that fail and are run again"
    assert sum(tables.stats.alone for tables in made) > 10, "… call by call"
    assert sum(tables.stats.sweeps for tables in made) > 10, "sweeps between writes"
    assert sum(tables.stats.vacuums for tables in made) > 0, "space given back"


@pytest.mark.parametrize("store", ALL)
def test_one_command_reproduces_a_seed(tmp_path: Path, store: StoreKind) -> None:
    path = tmp_path / "history.jsonl"
    command = [sys.executable, "-m", "tests.simulation", "--seed", "3", "--history", str(path)]
    command += ["--store", store]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "no violation" in result.stdout
    assert f"seed 3 on {store}" in result.stdout
    assert len(path.read_text().splitlines()) >= EVENTS[store]
