"""Making a backup of a store, served or not, and verifying one.

The folder's lock is not needed: a backup is one reader more (copying.py says how it keeps out of
the writer's way). When everything is copied, the copy is made durable, read from the first row to
the last, and compared with what the store had; then the manifest is written, durably. Until then
it is not a backup, and whatever stops it in between leaves none behind.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import file_digest
from importlib import metadata
from pathlib import Path

from pushlane_storage.errors import (
    BackupNewer,
    ChecksumMismatch,
    CopyFailed,
    CountsDiffer,
    NoSpace,
    TargetNotEmpty,
    TargetUnusable,
)
from pushlane_storage.files import make_folder, sync_folder
from pushlane_storage.segment import StoredSegment
from pushlane_storage.sqlite.columns import SELECT_SEGMENTS
from pushlane_storage.sqlite.copying import BUSY_S, Copy, attach, copy_error, read_source
from pushlane_storage.sqlite.folder import DATABASE
from pushlane_storage.sqlite.inspection import Inspection, Progress, inspect, is_whole
from pushlane_storage.sqlite.manifest import (
    BACKUP,
    MANIFEST,
    PART,
    Manifest,
    read_manifest,
    write_manifest,
)
from pushlane_storage.sqlite.schema import STEPS
from pushlane_storage.wall import wall_clock


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody wants to see."""


def backup(
    folder: Path,
    target: Path,
    *,
    progress: Progress = silent,
    now: int | None = None,
    known: int = len(STEPS),
) -> Manifest:
    """Back up the store in a folder into a target folder, which must be empty or not there.

    `now` is the wall clock. `known` is the newest version of the tables that may be read.
    `BackupError` says why there is no backup.
    """
    taken_at = wall_clock() if now is None else now
    database, copy = folder / DATABASE, target / BACKUP
    _check_room(database, target, known)
    with _target(target), _disk_errors(database, target):
        source, rows = Copy(database, copy, known, progress).run()
        sync_file(copy)
        sync_folder(target)
        progress("checking the file", 0, 0)
        digest = sha256_of(copy)
        found = inspect(copy, progress)
        _compare(database, copy, rows, found)
        manifest = Manifest(
            taken_at=taken_at,
            pushlane=metadata.version("pushlane-server"),
            version=source.version,
            epoch=source.epoch,
            bytes=copy.stat().st_size,
            sha256=digest,
            contents=found.contents,
        )
        write_manifest(target, manifest)
    return read_manifest(target)


def verify(folder: Path, *, progress: Progress = silent, known: int = len(STEPS)) -> Manifest:
    """The manifest of a backup in which everything is as it was written; `BackupError` if not."""
    manifest = read_manifest(folder)
    if manifest.version > known:
        raise BackupNewer(folder, manifest.version, known)
    verify_file(folder / BACKUP, manifest, progress)
    verify_contents(folder / BACKUP, manifest, progress)
    return manifest


def verify_file(path: Path, manifest: Manifest, progress: Progress = silent) -> None:
    """It has the bytes that the manifest describes."""
    progress("checking the file", 0, manifest.bytes)
    try:
        size = path.stat().st_size
        if size != manifest.bytes:
            raise ChecksumMismatch(path, f"{size} bytes, and not {manifest.bytes}")
        if sha256_of(path) != manifest.sha256:
            raise ChecksumMismatch(path, "its SHA-256 is another one")
    except OSError as error:
        raise ChecksumMismatch(path, error.strerror or str(error)) from error


def verify_contents(path: Path, manifest: Manifest, progress: Progress = silent) -> None:
    """It holds the rows that the manifest describes."""
    found, told = inspect(path, progress).contents, manifest.contents
    for expected, there in (
        (told.tables, found.tables),
        ({"message": told.messages}, {"message": found.messages}),
        (_damaged(told.damaged), _damaged(found.damaged)),
    ):
        if expected != there:
            raise CountsDiffer(path, expected, there)
    if found.digest != told.digest:
        raise ChecksumMismatch(path, "the digest of its rows is another one")


def _damaged(counts: dict[str, int]) -> dict[str, int]:
    return {f"damaged {table}": count for table, count in counts.items()}


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


# The target


@contextmanager
def _target(folder: Path) -> Iterator[None]:
    """A new or empty folder with a place for the copy; empty again, or gone, after an error."""
    new = not folder.exists()
    try:
        make_folder(folder.absolute())
        sync_folder(folder.absolute().parent)
        present = next(folder.iterdir(), None)
        if present is not None:
            raise TargetNotEmpty(folder, present.name)
        os.close(os.open(folder / BACKUP, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError as error:  # a file, or another backup was faster
        raise TargetNotEmpty(folder, Path(error.filename).name) from error
    except OSError as error:
        raise TargetUnusable(
            f"{folder} can't be used: {error.strerror}; choose another folder"
        ) from error
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for name in (MANIFEST, PART, BACKUP):
                (folder / name).unlink(missing_ok=True)
            if new:
                folder.rmdir()
        raise


@contextmanager
def _disk_errors(database: Path, target: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        failed = copy_error(error, database, target)
        if failed is None:
            raise NoSpace(target, database.stat().st_size, free_bytes(target)) from error
        raise failed from error
    except OSError as error:
        raise CopyFailed(f"{target} can't be written: {error.strerror}; check the disk") from error


def _check_room(database: Path, target: Path, known: int) -> None:
    """Refuse before anything is made: no store to copy, or no room for it."""
    with (
        closing(sqlite3.connect(":memory:", uri=True, isolation_level=None)) as connection,
        _disk_errors(database, target),
    ):
        attach(connection, database)
        needed = read_source(connection, database, known).bytes
    free = free_bytes(target)
    if free < needed:
        raise NoSpace(target, needed, free)


def free_bytes(path: Path) -> int:
    """Free on the disk that a path is on, or will be."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


# The copy


def _compare(database: Path, copy: Path, rows: dict[str, int], found: Inspection) -> None:
    """The copy has what the store had when it was read."""
    there = found.contents.tables
    if rows != {table: there.get(table, 0) for table in rows}:
        raise CountsDiffer(copy, rows, there)
    if not found.places:
        return
    with closing(sqlite3.connect(":memory:", uri=True, timeout=BUSY_S)) as connection:
        attach(connection, database)
        select = SELECT_SEGMENTS.replace(" FROM segment", " FROM source.segment")
        for place in found.places:
            columns = connection.execute(
                f"{select} WHERE segment.bucket = ? AND segment.first = ?", place
            ).fetchone()
            if columns is not None and is_whole(StoredSegment(*columns)):
                raise CopyFailed(
                    f"segment {place.first} is damaged in {copy} and not in the store: check the"
                    " disk, and make another backup"
                )
