"""What can go wrong with a backup or a restore. Whatever it is, nothing half-done can be used.

BackupError
├── NotAStore            there is no store to back up
├── BackupNewer          a newer version of Pushlane wrote it
├── TargetNotEmpty       something is there, and would have to be overwritten
├── TargetUnusable       the target can't be made, written or locked
├── NoSpace              the target's disk is too small
├── CopyFailed           reading or writing failed half-way
├── BackupUnfinished     there is no manifest: not a backup, or one that was interrupted
├── ManifestDamaged      the manifest is not what was written
├── ChecksumMismatch     what it describes is not what was written
├── CountsDiffer         something is missing, or too much
└── EpochsExhausted      there is no epoch left to give to a restored store
"""

from collections.abc import Mapping
from pathlib import Path


class BackupError(Exception):
    """No backup was made, or nothing was restored. The text ends with what to do next."""


class NotAStore(BackupError):
    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"{folder} is not a store: {reason}; give the folder that the server has as --data"
        )
        self.folder = folder


class BackupNewer(BackupError):
    def __init__(self, path: Path, found: int, known: int) -> None:
        super().__init__(
            f"{path} was written by a newer version of Pushlane (format {found}, this version"
            f" knows up to {known}): use that version"
        )
        self.found = found
        self.known = known


class TargetNotEmpty(BackupError):
    def __init__(self, folder: Path, found: str) -> None:
        super().__init__(
            f"{folder} is not empty ({found} is in it), and nothing is ever overwritten:"
            " choose a folder that is not there yet"
        )
        self.folder = folder


class TargetUnusable(BackupError):
    """The operating system, or another process, doesn't let us."""


class NoSpace(BackupError):
    def __init__(self, folder: Path, needed: int, free: int) -> None:
        super().__init__(
            f"{folder} has no room: {needed} bytes are needed and {free} are free;"
            " make room, or choose another disk"
        )
        self.needed = needed
        self.free = free


class CopyFailed(BackupError):
    """The disk is at fault, or the database file is damaged as a whole."""


class BackupUnfinished(BackupError):
    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} has no manifest: it is not a backup, or one that was interrupted;"
            " use another one, and remove this one if it was to be a backup"
        )
        self.folder = folder


class ManifestDamaged(BackupError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} is damaged ({reason}): use another backup")
        self.path = path


class ChecksumMismatch(BackupError):
    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} is damaged ({what}): use another backup")
        self.path = path


class CountsDiffer(BackupError):
    def __init__(self, path: Path, expected: Mapping[str, int], found: Mapping[str, int]) -> None:
        names = sorted({*expected, *found})
        self.differences = {
            name: (expected.get(name, 0), found.get(name, 0))
            for name in names
            if expected.get(name, 0) != found.get(name, 0)
        }
        told = ", ".join(f"{name} {a} and not {b}" for name, (a, b) in self.differences.items())
        super().__init__(f"{path} has not what it should have ({told}): use another backup")
        self.path = path


class EpochsExhausted(BackupError):
    def __init__(self, epoch: int, last: int) -> None:
        super().__init__(
            f"the restored store would begin with epoch {epoch}, and {last} is the last one that"
            " leaves room: choose a younger backup"
        )
        self.epoch = epoch
