"""Single cases without bugs, the reserve, and each planted bug. `make test` runs a sweep, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.faults.case import POINTS, Case, Seed, Verdict, prepare, try_case
from tests.faults.control import FOR_EVER, Control, File, Operation, Point
from tests.faults.library import compile_faults, run_faulty
from tests.faults.notebook import read_notebook
from tests.faults.plants import PLANTS
from tests.faults.sweep import Outcome, plan, workspace
from tests.faults.workload import STOPPED
from tests.powerloss.judge import Judge, Past
from tests.powerloss.workload import FOLDER

SEED = 1
LOG_WRITE = Point(File.LOG, Operation.WRITE)
LOG_SYNC = Point(File.LOG, Operation.SYNC)
READ = Point(File.DATABASE, Operation.READ)
FOLDER_SYNC = Point(File.FOLDER, Operation.SYNC)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with workspace() as folder:
        yield folder


@pytest.fixture(scope="module")
def library(folder: Path) -> Path:
    return compile_faults(folder)


@pytest.fixture(scope="module")
def seed(library: Path, folder: Path) -> Seed:
    return prepare(library, folder / "seed", SEED)


def judged(library: Path, seed: Seed, case: Case) -> Verdict:
    return try_case(library, seed, case, seed.folder.parent / "case")


def test_a_life_does_what_is_to_fail(seed: Seed) -> None:
    for point in POINTS:
        assert seed.calls[point] >= (3 if point.file is File.FOLDER else 5), point
    assert seed.growth > 100_000


def test_a_plan_visits_every_point_all_over_a_life(seed: Seed) -> None:
    cases = plan(seed, 80)
    assert len(cases) == 80
    assert cases == plan(seed, 80)
    for point in POINTS:
        places = [case.at for case in cases if case.point == point]
        assert len(places) == 10
        assert 1 <= min(places) <= seed.calls[point] // 10 + 1
        assert seed.calls[point] * 0.9 <= max(places) <= seed.calls[point] + 1


@pytest.mark.parametrize("point", [LOG_WRITE, LOG_SYNC], ids=str)
def test_a_failed_commit_ends_the_process_and_loses_nothing(
    library: Path, seed: Seed, point: Point
) -> None:
    verdict = judged(library, seed, Case(SEED, point, seed.calls[point] // 2, 1))
    assert not verdict.faults, verdict.faults[0]
    assert (verdict.ended, verdict.struck) == ("stopped by the store", 1)
    assert STOPPED == os.EX_IOERR


def test_a_read_that_fails_once_is_repeated(library: Path, seed: Seed) -> None:
    verdict = judged(library, seed, Case(SEED, READ, seed.calls[READ] // 2, 1))
    assert not verdict.faults, verdict.faults[0]
    assert verdict.struck == 1


def test_a_disk_that_can_not_be_read_any_more_gives_up_nothing(library: Path, seed: Seed) -> None:
    verdict = judged(library, seed, Case(SEED, READ, seed.calls[READ] // 2, FOR_EVER))
    assert not verdict.faults, verdict.faults[0]


def test_a_folder_that_can_not_be_synced_is_not_opened(library: Path, seed: Seed) -> None:
    verdict = judged(library, seed, Case(SEED, FOLDER_SYNC, 1, FOR_EVER))
    assert not verdict.faults, verdict.faults[0]
    assert verdict.ended == "could not be opened"


def test_a_full_disk_refuses_publishes_and_takes_settles(library: Path, seed: Seed) -> None:
    verdict = judged(library, seed, Case(SEED, None, 150_000, 1))
    assert not verdict.faults, verdict.faults[0]
    assert verdict.ended == "in good order"
    assert verdict.refused > 10
    assert verdict.settled > 5


def test_only_the_reserve_is_left(library: Path, folder: Path) -> None:
    place = folder / "reserve"
    place.mkdir()
    control, history = Control(place / "control"), place / "history"
    done = run_faulty(
        library, place / FOLDER, control.path, "tests.faults.reserve",
        "--history", history, "--control", control.path,
    )  # fmt: skip
    control.close()
    assert done.returncode == 0, done.stderr[-3000:]
    past = Past()
    for mark in read_notebook(history):
        past.add(mark)
    assert Judge(past, Random(SEED)).run(place) == []


CAUGHT: dict[str, tuple[Point | None, tuple[str, ...]]] = {
    "commit_failures_are_ignored": (LOG_SYNC, ("ack_before_durable", "confirmed_settle_lost")),
    "refusals_are_forgotten": (None, ("ack_before_durable", "lost")),
    "what_can_not_be_read_is_lost": (READ, ("dead_cause", "the store lost some")),
}
"""By what each planted bug shows, and what the judge must say of it."""
TRIES = 20


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_bug_is_caught(library: Path, seed: Seed, plant: str) -> None:
    point, words = CAUGHT[plant]
    calls = 150_000 if point is None else seed.calls[point]
    said: list[str] = []
    for number in range(TRIES):
        at = calls * (number + 2) // (TRIES + 3)
        case = Case(SEED, point, at, 6, plant)
        said += judged(library, seed, case).faults
        if any(word in text for text in said for word in words):
            return
    pytest.fail(f"{plant} was not caught: {said}")


def test_an_outcome_counts_what_struck() -> None:
    outcome = Outcome()
    case = Case(SEED, LOG_SYNC, 3, 1)
    outcome.add(Verdict(case, "stopped by the store", 1, 0, 0, []))
    outcome.add(Verdict(case, "in good order", 0, 0, 0, ["lost: something"]))
    assert (outcome.cases, outcome.failed) == (2, 1)
    assert outcome.struck == {"sync of the log": 1}
    assert outcome.ended == {("sync of the log", "stopped by the store"): 1}
    assert "sync of the log: 1 calls from number 3 on" in outcome.failures[0]
