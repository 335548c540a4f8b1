"""A backup's manifest: what is in it, and how to tell that it still is.

A backup is a folder with two files: `backup.db`, a SQLite database, and `manifest.json`. The
manifest is written last, when everything that it describes is durable: a folder without one is
not a backup. The database has another name than in a store's folder, so that nobody serves a
backup by accident.
"""

import os
from hashlib import sha256
from pathlib import Path

import msgspec

from pushlane_storage.errors import BackupNewer, BackupUnfinished, ManifestDamaged
from pushlane_storage.files import private_opener, sync_folder

BACKUP = "backup.db"
MANIFEST = "manifest.json"
PART = MANIFEST + ".part"
FORMAT = 1


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a database holds."""

    tables: dict[str, int]
    """Rows by table."""
    messages: int
    """In the rows of `segment`: settled or not, until their bucket is swept."""
    damaged: dict[str, int]
    """Rows by table whose checksum is wrong. They were copied as they were found."""
    digest: str
    """SHA-256 over every row of every table but `meta`, which a restore changes."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    taken_at: int
    """When it was begun: Unix time in milliseconds."""
    pushlane: str
    """The version that made it."""
    version: int
    """Of the tables: SQLite's `user_version`."""
    epoch: int
    """The greatest one that was given out before."""
    bytes: int
    """Size of the database file."""
    sha256: str
    """Of the database file."""
    contents: Contents
    checksum: str = ""
    """SHA-256 of the manifest itself, with this field empty."""


class _Format(msgspec.Struct, frozen=True):
    format: int


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Finish a backup: everything else in it is durable."""
    text = msgspec.json.format(msgspec.json.encode(_signed(manifest)), indent=2) + b"\n"
    with open(folder / PART, "wb", opener=private_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    (folder / PART).rename(folder / MANIFEST)
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BackupUnfinished(folder) from None
    except OSError as error:
        raise ManifestDamaged(path, error.strerror or str(error)) from error
    try:
        found = msgspec.json.decode(text, type=_Format).format
        if found > FORMAT:
            raise BackupNewer(path, found, FORMAT)
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ManifestDamaged(path, str(error)) from error
    if _signed(manifest) != manifest:
        raise ManifestDamaged(path, "checksum mismatch")
    return manifest


def _signed(manifest: Manifest) -> Manifest:
    plain = msgspec.json.encode(msgspec.structs.replace(manifest, checksum=""))
    return msgspec.structs.replace(manifest, checksum=sha256(plain).hexdigest())
