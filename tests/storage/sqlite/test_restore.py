"""Restoring: into an empty folder, all or nothing, and far ahead of what was given out before."""

import os
from pathlib import Path

import pytest

from pushlane_storage.errors import (
    ChecksumMismatch,
    EpochsExhausted,
    FolderUnusable,
    NoSpace,
    TargetNotEmpty,
    TargetUnusable,
)
from pushlane_storage.message import Message
from pushlane_storage.restored_epoch import BURST, INTERVAL_S, LAST, restored_epoch
from pushlane_storage.sqlite.backup import backup
from pushlane_storage.sqlite.folder import RESTORING, open_folder
from pushlane_storage.sqlite.manifest import Manifest
from pushlane_storage.sqlite.restore import restore
from pushlane_storage.sqlite.store import SqliteStore
from tests.storage.samples import START, claimed, messages
from tests.storage.sqlite.tools import Opened, modes

DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
async def made(opened: Opened) -> Manifest:
    """A backup of a folder that has an owner, and is closed."""
    store = await opened(wall=lambda: START)
    owner = await claimed(store, "q")
    await owner.append(0, messages(3))
    manifest = await store.backup(opened.backup)
    await store.close()
    return manifest


@pytest.fixture
def place(folder: Path) -> Path:
    return folder.parent / "again"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def restore_openly(backup: Path, place: Path, there: bool) -> None:
    """Where the process closes nothing by itself."""
    if there:
        place.mkdir()
        place.chmod(0o755)
    before = os.umask(0)
    try:
        restore(backup, place)
    finally:
        os.umask(before)


@pytest.mark.parametrize("there", [False, True])
async def test_what_is_restored_is_its_owners_alone(
    opened: Opened, made: Manifest, place: Path, there: bool
) -> None:
    restore_openly(opened.backup, place, there)
    assert modes(place) == {"again": 0o700, "lock": 0o600, "pushlane.db": 0o600}
    backed_up = modes(opened.backup)
    assert backed_up.pop(opened.backup.name) == 0o700
    assert set(backed_up.values()) == {0o600}


class TestTheEpoch:
    async def test_it_is_above_all_that_was_given_out_since(
        self, opened: Opened, made: Manifest, place: Path
    ) -> None:
        """The store goes on for a day and is opened again and again; then the backup is used."""
        for _ in range(20):
            store = await opened()
            for slot in (0, 0, 7):
                last = await store.ownership.claim(slot, "n")
            await store.close()
        restored = restore(opened.backup, place, now=START + DAY_MS)
        assert restored.epoch == made.epoch + BURST + DAY_MS // 1000 // INTERVAL_S
        again = await SqliteStore.open(place)
        assert again.stats().epoch == restored.epoch + 1 > last
        owner = await claimed(again, "q")
        assert owner.epoch == restored.epoch + 1
        await owner.append(0, [Message(b"new", START)])
        await again.close()
        again = await SqliteStore.open(place)
        assert again.stats().epoch == restored.epoch + 2
        await again.close()

    async def test_it_can_be_said(self, opened: Opened, made: Manifest, place: Path) -> None:
        assert restore(opened.backup, place, now=START, above=50_000).epoch == 50_000

    async def test_it_fits_into_a_seq(self, opened: Opened, made: Manifest, place: Path) -> None:
        """The greatest epoch that is given out can be stored, and its fences are safe in JSON."""
        assert restore(opened.backup, place, now=START, above=LAST).epoch == LAST
        store = await SqliteStore.open(place)
        owner = await claimed(store, "q")
        segment = await owner.append((1 << 40) - 1, messages(1))
        assert segment.first < 1 << 63
        assert owner.epoch << 20 < 1 << 53
        assert await store.segments(owner.shard, segment.bucket, 0, 9) == [segment]
        await store.close()

    def test_distances(self) -> None:
        assert restored_epoch(7, START, START) == 7 + BURST
        assert restored_epoch(7, START, START + 1) == 8 + BURST
        assert restored_epoch(7, START, START - DAY_MS) == 7 + BURST  # a clock that is wrong
        assert restored_epoch(7, START, START + DAY_MS) == 7 + BURST + 2_880
        assert restored_epoch(7, START, START, above=9) == 7 + BURST

    def test_a_later_restore_is_always_ahead(self) -> None:
        """Also of a store that was restored from the same backup and opened once in a while."""
        first = restored_epoch(7, START, START + 5_000)
        openings = 10
        later = START + 5_000 + (openings + 1) * INTERVAL_S * 1000
        assert restored_epoch(7, START, later) > first + openings

    def test_there_is_an_end(self) -> None:
        with pytest.raises(EpochsExhausted, match="younger backup") as refused:
            restored_epoch(LAST, START, START)
        assert refused.value.epoch == LAST + BURST

    async def test_the_end_is_seen_before_anything_is_touched(
        self, opened: Opened, made: Manifest, place: Path
    ) -> None:
        with pytest.raises(EpochsExhausted):
            restore(opened.backup, place, above=LAST + 1)
        assert not (place.parent / "again").exists()


class TestTheTarget:
    async def test_a_folder_with_something_in_it(
        self, opened: Opened, made: Manifest, place: Path
    ) -> None:
        with pytest.raises(TargetNotEmpty, match=r"pushlane\.db"):
            restore(opened.backup, opened.folder)
        (place.parent / "again").mkdir()
        (place / "precious").write_text("data")
        with pytest.raises(TargetNotEmpty, match="precious"):
            restore(opened.backup, place)
        assert names(place) == ["precious"]

    async def test_an_empty_folder(self, opened: Opened, made: Manifest, place: Path) -> None:
        (place / "lost+found").mkdir(parents=True)
        restore(opened.backup, place)
        assert names(place) == ["lock", "lost+found", "pushlane.db"]

    async def test_a_folder_that_is_in_use(
        self, opened: Opened, made: Manifest, place: Path
    ) -> None:
        held = open_folder(place)
        with pytest.raises(TargetUnusable, match=f"process {os.getpid()}"):
            restore(opened.backup, place)
        held.close()
        restore(opened.backup, place)

    async def test_a_file(self, opened: Opened, made: Manifest, place: Path) -> None:
        (place.parent / "again").write_text("a file")
        with pytest.raises(TargetUnusable):
            restore(opened.backup, place)

    async def test_too_little_room(
        self, opened: Opened, made: Manifest, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pushlane_storage.sqlite.restore.free_bytes", lambda path: 1)
        with pytest.raises(NoSpace) as refused:
            restore(opened.backup, place)
        assert (refused.value.needed, refused.value.free) == (made.bytes, 1)
        assert not (place.parent / "again").exists()

    async def test_a_disk_that_is_full_half_way(
        self, opened: Opened, made: Manifest, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("pushlane_storage.sqlite.restore._copy", full)
        with pytest.raises(NoSpace):
            restore(opened.backup, place)
        assert names(place) == ["lock"]


class TestHalfWay:
    async def test_a_copy_that_went_wrong(
        self, opened: Opened, made: Manifest, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def copy(source: Path, target: Path, progress: object) -> None:
            target.write_bytes(source.read_bytes()[:-1] + b"x")

        with monkeypatch.context() as patch:
            patch.setattr("pushlane_storage.sqlite.restore._copy", copy)
            with pytest.raises(ChecksumMismatch):
                restore(opened.backup, place)
        assert names(place) == ["lock"]
        restore(opened.backup, place)

    async def test_a_folder_in_which_a_restore_was_stopped_is_not_served(
        self, opened: Opened, made: Manifest, place: Path
    ) -> None:
        (place.parent / "again").mkdir()
        (place / RESTORING).write_bytes((opened.backup / "backup.db").read_bytes())
        with pytest.raises(FolderUnusable, match="run it again"):
            await SqliteStore.open(place)
        restore(opened.backup, place)
        await (await SqliteStore.open(place)).close()

    async def test_a_restored_store_can_be_backed_up(
        self, opened: Opened, made: Manifest, place: Path
    ) -> None:
        restore(opened.backup, place)
        again = backup(place, place.parent / "second")
        assert again.contents.digest == made.contents.digest
        assert again.epoch >= made.epoch + BURST
