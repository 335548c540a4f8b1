"""Private files: whole or not at all, durable, and nobody else's."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from pushlane_gateway.auth import private_file
from pushlane_gateway.auth.private_file import (
    FileTooLarge,
    NotOurFile,
    locked,
    make_folder,
    read_bounded,
    write_private,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_private(tmp_path / "a", b"one")
    finally:
        os.umask(before)
    assert mode(tmp_path / "a") == 0o600


def test_a_file_that_others_could_read_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)


def test_file_and_folder_are_synced_and_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        done.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_replace)
    write_private(tmp_path / "a", b"one")
    assert done == ["file", "rename", "folder"]


@pytest.mark.parametrize("step", ["fsync", "replace", "write"])
def test_a_failure_leaves_the_old_one_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "a"
    write_private(path, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="no space"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:2]))
    write_private(tmp_path / "a", b"12345")
    assert (tmp_path / "a").read_bytes() == b"12345"


def test_root_hands_it_to_whom_the_old_one_or_the_folder_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _, uid, gid: given.append((uid, gid)))
    folder = tmp_path.stat()
    write_private(tmp_path / "a", b"one")
    assert given == [(folder.st_uid, folder.st_gid)]
    old = (tmp_path / "a").stat()
    write_private(tmp_path / "a", b"two")
    assert given[1:] == [(old.st_uid, old.st_gid)]


def test_others_hand_nothing_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "fchown", lambda *_: pytest.fail("not ours to give"))
    write_private(tmp_path / "a", b"one")


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_file, "MAX_BYTES", 10)
    (tmp_path / "a").write_bytes(b"x" * 10)
    assert read_bounded(tmp_path / "a")[0] == b"x" * 10
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(FileTooLarge):
        read_bounded(tmp_path / "a")


def test_folders_are_made_on_the_way(tmp_path: Path) -> None:
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")

    def count() -> None:
        for _ in range(50):
            with locked(path):
                write_private(path, str(int(path.read_text()) + 1).encode())

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "200"


def test_the_folder_that_is_made_is_the_owners_alone(tmp_path: Path) -> None:
    make_folder(tmp_path / "above" / "data")
    assert mode(tmp_path / "above" / "data") == 0o700
    assert mode(tmp_path / "above") != 0o700


@pytest.mark.parametrize("kind", ["link", "dangling link", "second name", "pipe"])
def test_a_lock_is_never_somebody_elses_file(tmp_path: Path, kind: str) -> None:
    other, lock = tmp_path / "other", tmp_path / "a.lock"
    other.write_bytes(b"precious")
    if kind == "link":
        lock.symlink_to(other)
    elif kind == "dangling link":
        lock.symlink_to(tmp_path / "made by us")
    elif kind == "second name":
        lock.hardlink_to(other)
    else:
        os.mkfifo(lock)
    with pytest.raises(NotOurFile), locked(tmp_path / "a"):
        pass
    assert other.read_bytes() == b"precious"
    assert not (tmp_path / "made by us").exists()


def test_reading_without_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert read_bounded(tmp_path / "b")[0] == b"one"
    with pytest.raises(NotOurFile, match="it is a link"):
        read_bounded(tmp_path / "b", follow=False)
    assert read_bounded(tmp_path / "a", follow=False)[0] == b"one"
