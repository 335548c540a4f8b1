"""Restoring a backup into a folder that can be served.

First the backup is verified against its manifest, all of it, before the target is touched. Then
it is copied under another name, the copy is verified, its epoch raised (restored_epoch.py), and
verified again; all of it is made durable, and only then it gets its name. A restore that was
stopped at any point leaves a folder that can't be served, and in which the same restore can be
run again.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path

import msgspec

from pushlane_storage.errors import (
    CopyFailed,
    NoSpace,
    OpenError,
    TargetNotEmpty,
    TargetUnusable,
)
from pushlane_storage.files import private_opener
from pushlane_storage.restored_epoch import restored_epoch
from pushlane_storage.sqlite.backup import (
    free_bytes,
    silent,
    sync_file,
    verify,
    verify_contents,
    verify_file,
)
from pushlane_storage.sqlite.errors import FULL, code_of
from pushlane_storage.sqlite.folder import LOCK, RESTORING, Folder, open_folder
from pushlane_storage.sqlite.inspection import Progress
from pushlane_storage.sqlite.manifest import BACKUP, Manifest
from pushlane_storage.sqlite.schema import STEPS
from pushlane_storage.wall import wall_clock

PIECE_BYTES = 4 << 20
OURS = {LOCK, RESTORING, "lost+found"}
"""What a folder may hold: what a restore leaves that was stopped, and a new file system has."""


class Restored(msgspec.Struct, frozen=True):
    manifest: Manifest
    epoch: int
    """The first opening has one more."""


def restore(
    source: Path,
    target: Path,
    *,
    progress: Progress = silent,
    now: int | None = None,
    known: int = len(STEPS),
    above: int = 0,
) -> Restored:
    """Restore a backup into a target folder, which must be empty or not there.

    `now` is the wall clock. `above` is an epoch that was certainly not exceeded by what was
    served since the backup. `BackupError` says why nothing was restored.
    """
    at = wall_clock() if now is None else now
    _check_empty(target)
    manifest = verify(source, progress=progress, known=known)
    epoch = restored_epoch(manifest.epoch, manifest.taken_at, at, above)
    free = free_bytes(target)
    if free < manifest.bytes:
        raise NoSpace(target, manifest.bytes, free)
    with _locked(target) as folder, _disk_errors(target, manifest):
        place = folder.path / RESTORING
        try:
            _copy(source / BACKUP, place, progress)
            verify_file(place, manifest, progress)
            _raise_epoch(place, epoch)
            sync_file(place)
            verify_contents(place, manifest, progress)
        except BaseException:
            place.unlink(missing_ok=True)
            raise
        folder.sync()
        place.rename(folder.database)
        folder.sync()
    return Restored(manifest, epoch)


def _check_empty(target: Path) -> None:
    try:
        names = {path.name for path in target.iterdir()} if target.exists() else set()
    except OSError as error:
        raise TargetUnusable(
            f"{target} can't be used: {error.strerror}; choose another folder"
        ) from error
    if foreign := names - OURS:
        raise TargetNotEmpty(target, min(foreign))


@contextmanager
def _locked(target: Path) -> Iterator[Folder]:
    """The target's lock: no server may begin to serve it meanwhile."""
    try:
        folder = open_folder(target)
    except OpenError as error:
        raise TargetUnusable(str(error)) from error
    try:
        _check_empty(target)
        yield folder
    finally:
        folder.close()


@contextmanager
def _disk_errors(target: Path, manifest: Manifest) -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if getattr(error, "errno", 0) in (ENOSPC, EDQUOT) or code_of(error) == FULL:
            raise NoSpace(target, manifest.bytes, free_bytes(target)) from error
        raise CopyFailed(f"{target} can't be written: {error}; check the disk") from error


def _copy(source: Path, place: Path, progress: Progress) -> None:
    total, done = source.stat().st_size, 0
    with source.open("rb") as reading, open(place, "wb", opener=private_opener) as writing:
        while piece := reading.read(PIECE_BYTES):
            writing.write(piece)
            done += len(piece)
            progress("copying", done, total)
        writing.flush()
        os.fsync(writing.fileno())


def _raise_epoch(place: Path, epoch: int) -> None:
    with closing(sqlite3.connect(place, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
        connection.execute("UPDATE meta SET value = ? WHERE name = 'epoch'", (epoch,))
