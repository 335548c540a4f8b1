"""Why a store can't be opened, backed up or restored; `interface` has what a served one answers.

OpenError                   it can't be served, and nothing of what it holds was changed
├── BadStoreUrl             its URL can't be understood (url.py)
├── FolderLocked            another process serves the folder
├── FolderNewer             a newer version of Pushlane wrote it
├── FolderForeign           the file in it is not ours
├── FolderUnusable          no such thing can be made or read there
├── DriverMissing           the extra `cluster` is not installed
├── Unreachable             no node of Cassandra answers, or none lets us in
├── KeyspaceMissing         there is none, or an older one, and migrating is switched off
├── KeyspaceNewer           a newer version of Pushlane made it
└── KeyspaceUnusable        it can't be made, or doesn't do what it is told

Whatever goes wrong with a backup, nothing half-done can be used:

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


class OpenError(Exception):
    """The store can't be opened. The text ends with what to do next."""


class FolderLocked(OpenError):
    def __init__(self, folder: Path, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{folder} is in use by {who}: stop it first, or choose another folder")
        self.folder = folder
        self.pid = pid


class FolderNewer(OpenError):
    def __init__(self, folder: Path, found: int, known: int) -> None:
        super().__init__(
            f"{folder} was written by a newer version of Pushlane (format {found}, this version"
            f" knows up to {known}): run that version, or restore a backup made before"
        )
        self.found = found
        self.known = known


class FolderForeign(OpenError):
    """The database file holds something else."""


class FolderUnusable(OpenError):
    """The folder can't be made, read or written."""


class DriverMissing(OpenError):
    def __init__(self) -> None:
        super().__init__(
            "a store on Cassandra needs the Cassandra driver:"
            " pip install 'pushlane-server[cluster]' (in a checkout: make setup)"
        )


class Unreachable(OpenError):
    """No node answers, or none lets us in."""


class KeyspaceMissing(OpenError):
    """The tables are not there, or are of an older version, and we may not make them."""


class KeyspaceNewer(OpenError):
    def __init__(self, keyspace: str, found: int, known: int) -> None:
        super().__init__(
            f"keyspace {keyspace} was made by a newer version of Pushlane (schema {found}, this"
            f" version knows up to {known}): run that version"
        )
        self.found = found
        self.known = known


class KeyspaceUnusable(OpenError):
    """The keyspace or its tables can't be made."""


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
