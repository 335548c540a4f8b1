"""Files and folders that a crash leaves where they are, and that are for their owner alone.

A folder that a crash makes vanish takes everything in it along, so whatever is created here is
followed by an fsync of the folder that it stands in.
"""

import os
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600
PRIVATE_FOLDER = 0o700


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_size(path: Path) -> int:
    """In bytes; 0 when there is no such file."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def make_folder(path: Path, mode: int = PRIVATE_FOLDER) -> None:
    """Make a folder, and those above it, durably."""
    if path.is_dir():
        return
    make_folder(path.parent, 0o777)
    path.mkdir(mode, exist_ok=True)
    sync_folder(path.parent)


def make_file(path: Path) -> None:
    """Make an empty file that is for us alone, unless it is there. SQLite's own follow its mode."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def private_opener(path: str, flags: int) -> int:
    """For `open`: what it makes is for us alone."""
    return os.open(path, flags, PRIVATE)
