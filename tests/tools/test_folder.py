"""Folders for data that nobody needs afterwards."""

import os
import tempfile
from pathlib import Path

import pytest

from tools.services import folder
from tools.services.folder import LOCK, PREFIX, scratch_folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folder, "MEMORY", tmp_path)
    monkeypatch.setattr(folder, "ROOM_BYTES", 0)
    return tmp_path


def test_it_goes_at_the_end(place: Path) -> None:
    with scratch_folder() as scratch:
        assert scratch.parent == place
        (scratch / "data").mkdir()
    assert list(place.iterdir()) == []


def test_after_an_error_the_logs_stay(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with scratch_folder() as scratch:
            (scratch / "data").mkdir()
            (scratch / "a.log").write_text("what happened")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    [scratch] = place.iterdir()
    assert sorted(one.name for one in scratch.iterdir()) == ["a.log", LOCK]
    assert capsys.readouterr().err == f"logs are kept in {scratch}\n"
    with scratch_folder():
        assert (scratch / "a.log").exists()
    os.utime(scratch / LOCK, (0, 0))
    with scratch_folder():
        assert not scratch.exists(), "nobody came for it"


def test_without_logs_nothing_stays(place: Path) -> None:
    def fail() -> None:
        with scratch_folder() as scratch:
            (scratch / "data").mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_swept(place: Path) -> None:
    left = place / f"{PREFIX}left"
    (left / "data").mkdir(parents=True)
    (left / LOCK).touch()
    with scratch_folder() as mine, scratch_folder() as another:
        assert not left.exists()
        assert mine.exists()
        assert another.exists()


def test_on_disk(place: Path, tmp_path_factory: pytest.TempPathFactory,
                 monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    disk = tmp_path_factory.mktemp("disk")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    with scratch_folder(on_disk=True) as scratch:
        assert scratch.parent == disk
    monkeypatch.setattr(folder, "ROOM_BYTES", 1 << 60)
    with scratch_folder() as scratch:
        assert scratch.parent == disk, "memory has no room"
