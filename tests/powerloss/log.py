"""The recorder's log: what was done to the files of a folder, and the marks between.

A mark is one of the things that the recorded process said: an event of its history; that a queue
was created (confirmed), is about to be deleted, is deleted (confirmed); that a backup is about to
be made, is made (confirmed).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from pushlane_history.event import AnyEvent, Event

HEADER = struct.Struct("=IIQQq")


class Kind(IntEnum):
    """The numbers stand in recorder.c."""

    BEGIN = 1
    CREATE = 2
    MKDIR = 3
    WRITE = 4
    TRUNCATE = 5
    ALLOCATE = 6
    UNLINK = 7
    RENAME = 8
    LINK = 9
    SYNC_BEGIN = 10
    SYNC_END = 11
    MARK = 12
    TROUBLE = 13


class Record(NamedTuple):
    kind: Kind
    inode: int
    a: int
    """Offset of a write, size of a truncate, number of a sync."""
    path: str
    """Relative to the watched folder, which is the empty string."""
    data: bytes


class DamagedLog(Exception):
    """The recorder could not follow what the process did, or we can't follow the recorder."""


def read_log(path: Path) -> list[Record]:
    """All of a log: a process under the recorder never ends within a record."""
    return list(_records(path.read_bytes()))


def _records(log: bytes) -> Iterator[Record]:
    at, root = 0, ""
    while at < len(log):
        if at + HEADER.size > len(log):
            raise DamagedLog("the log ends within a record")
        number, path_bytes, data_bytes, inode, a = HEADER.unpack_from(log, at)
        at += HEADER.size
        end = at + path_bytes + data_bytes
        if end > len(log):
            raise DamagedLog("the log ends within a record")
        path = log[at : at + path_bytes].decode()
        data = log[at + path_bytes : end]
        at = end
        kind = Kind(number)
        if kind is Kind.BEGIN:
            root = path
        if kind is Kind.TROUBLE:
            raise DamagedLog(f"the recorder can't follow {data.decode()}")
        if kind in (Kind.RENAME, Kind.LINK):
            data = _relative(root, data.decode()).encode()
        yield Record(kind, inode, a, _relative(root, path) if path else "", data)


def _relative(root: str, path: str) -> str:
    if path == root:
        return ""
    assert path.startswith(root + "/"), f"{path} is not below {root}"
    return path.removeprefix(root + "/").removesuffix(" (deleted)")


# Marks


class Created(msgspec.Struct, frozen=True, tag=True):
    queue: str


class Deleting(msgspec.Struct, frozen=True, tag=True):
    queue: str


class Deleted(msgspec.Struct, frozen=True, tag=True):
    queue: str


class BackupBegun(msgspec.Struct, frozen=True, tag=True):
    backup: str


class BackupMade(msgspec.Struct, frozen=True, tag=True):
    backup: str


Note = Created | Deleting | Deleted
BackupNote = BackupBegun | BackupMade
Mark = Event | Note | BackupNote

_encode = msgspec.json.Encoder().encode
_event: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_note: msgspec.json.Decoder[Note | BackupNote] = msgspec.json.Decoder(Note | BackupNote)


class Marker:
    """Puts marks into the log, from inside the recorded process."""

    def __init__(self) -> None:
        try:
            self._mark = ctypes.CDLL(None).record_mark
        except AttributeError:
            raise DamagedLog("this process runs without the recorder (LD_PRELOAD)") from None
        self._mark.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self._mark.restype = None

    def __call__(self, mark: Mark) -> None:
        text = (b"E" if isinstance(mark, Event) else b"N") + _encode(mark)
        self._mark(text, len(text))


def parse_mark(data: bytes) -> Mark:
    return (_event if data[:1] == b"E" else _note).decode(data[1:])


def marks(records: list[Record]) -> Iterator[tuple[int, Mark]]:
    """Every mark with its place in the log."""
    for index, record in enumerate(records):
        if record.kind is Kind.MARK:
            yield index, parse_mark(record.data)
