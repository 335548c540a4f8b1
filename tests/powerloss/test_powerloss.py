"""A small campaign without bugs, and one for each planted bug. `make test` runs the large one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from pushlane_history import event as history
from pushlane_history.checker import check
from tests.powerloss import plants
from tests.powerloss.campaign import examine, jobs_of, workspace
from tests.powerloss.cuts import plan
from tests.powerloss.log import BackupBegun, BackupMade, Created, Kind, marks, read_log
from tests.powerloss.recording import LIVES, record

SEED = 1


@pytest.fixture(scope="module")
def log() -> Iterator[Path]:
    """A recording without bugs."""
    with workspace() as folder:
        record(folder, SEED)
        yield folder / "log"


def test_no_image_fails(log: Path) -> None:
    outcome = examine(jobs_of(log, 60, SEED, shares=2))
    assert not outcome.failures, outcome.failures[0].text
    assert outcome.images == 60
    assert len(outcome.cuts) >= 2
    assert len(outcome.damage) >= 4


def test_the_recording_has_what_is_to_be_tested(log: Path) -> None:
    records = read_log(log)
    told = [mark for _, mark in marks(records)]
    events = [mark for mark in told if isinstance(mark, history.Event)]
    assert check(events).ok
    kinds = Counter(type(event) for event in events)
    for kind in (history.Published, history.Grant, history.Verdict, history.Void):
        assert kinds[kind] >= 5, kind
    assert kinds[history.Moved]  # how many depends on how fast it ran
    ends = {event.how for event in events if isinstance(event, history.Ended)}
    assert ends >= {"acked", "dead"}
    assert any(isinstance(event, history.Published) and event.duplicate for event in events)
    assert any(isinstance(mark, Created) for mark in told)
    begun = [place for place, mark in marks(records) if isinstance(mark, BackupBegun)]
    made = [place for place, mark in marks(records) if isinstance(mark, BackupMade)]
    assert len(begun) == len(made) == LIVES
    for low, high in zip(begun, made, strict=True):
        meanwhile = {mark.__class__ for place, mark in marks(records) if low < place < high}
        assert history.Published in meanwhile, "nothing went on during the backup"
    synced = Counter(line.path for line in records if line.kind is Kind.SYNC_BEGIN)
    assert synced["store/pushlane.db"] >= 4, "the write-ahead log was hardly ever copied"
    assert synced["store/pushlane.db-wal"] >= 50


def test_every_sync_is_cut_on_both_sides(log: Path) -> None:
    records = read_log(log)
    ends = [i for i, line in enumerate(records) if line.kind is Kind.SYNC_END]
    cuts = plan(records, 3 * len(ends), SEED)
    places = {cut.place for cut in cuts}
    assert {*ends, *(i + 1 for i in ends)} <= places
    assert len({cut.number for cut in cuts}) == len(cuts) == 3 * len(ends)
    assert cuts == plan(records, 3 * len(ends), SEED)


LOST = ("ack_before_durable", "grant_after_ack", "confirmed_settle_lost")
GONE = ("was created, and is gone",)
MALFORMED = ("malformed",)
EXPECTED: dict[str, tuple[str, ...]] = {
    "synchronous-off": LOST + GONE + MALFORMED,
    "synchronous-normal": LOST + GONE,  # the commit of a creation can be the lost one
    "no-folder-sync": GONE,
    "early-published": ("ack_before_durable", "lost: "),  # lost if it was granted, too
    "early-settled": ("grant_after_ack", "confirmed_settle_lost"),
    "wal-unsynced": LOST + GONE + MALFORMED,
    "database-unsynced": LOST + GONE + MALFORMED,
    "folders-unsynced": GONE,
    "backup-unsynced": ("is broken",),
    "backup-folder-unsynced": ("is not finished",),
    "manifest-first": ("is broken",),
}
"""What the judge must say of some image, so that a bug is not caught for a wrong reason."""


def assert_caught(log: Path, plant: str) -> None:
    outcome = examine(jobs_of(log, 150, SEED, plant, shares=4), enough=1)
    texts = [failure.text for failure in outcome.failures]
    assert any(word in text for text in texts for word in EXPECTED[plant]), texts


@pytest.mark.parametrize("plant", plants.LIES)
def test_a_disk_or_store_that_does_not_sync_is_caught(log: Path, plant: str) -> None:
    assert_caught(log, plant)


@pytest.mark.parametrize("plant", plants.PROCESS)
def test_a_planted_bug_is_caught(plant: str) -> None:
    with workspace() as folder:
        records = record(folder, SEED, plant, lives=1)
        events = [mark for _, mark in marks(records) if isinstance(mark, history.Event)]
        assert check(events).ok, "it shows without a power cut"
        assert_caught(folder / "log", plant)
