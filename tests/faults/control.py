"""The numbers that the library of faults goes by: shared with it, also while the process runs."""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from pathlib import Path

import msgspec


class File(IntEnum):
    """The numbers stand in faults.c."""

    DATABASE = 0
    LOG = 1
    FOLDER = 2
    MAP = 3


class Operation(IntEnum):
    WRITE = 0
    SYNC = 1
    READ = 2


NUMBER = struct.Struct("=q")
QUOTA, SYNC_US, FAILED, SHORT, MOST = range(5)
POINTS = 5
CALLS, AT, TIMES = range(3)
SIZE = NUMBER.size * (POINTS + 3 * len(File) * len(Operation))

FOR_EVER = -1


class Point(msgspec.Struct, frozen=True, order=True):
    """The reads, writes or syncs of one file."""

    file: File
    operation: Operation

    def __str__(self) -> str:
        return f"{self.operation.name.lower()} of the {self.file.name.lower()}"


class Control:
    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(SIZE))
        descriptor = os.open(path, os.O_RDWR)
        self._map = mmap.mmap(descriptor, SIZE)
        os.close(descriptor)

    def close(self) -> None:
        self._map.close()

    def _get(self, index: int) -> int:
        number: int = NUMBER.unpack_from(self._map, index * NUMBER.size)[0]
        return number

    def _set(self, index: int, value: int) -> None:
        NUMBER.pack_into(self._map, index * NUMBER.size, value)

    def fail(self, point: Point, at: int, times: int) -> None:
        """From the `at`-th call on (the first is 1), so many calls fail with EIO."""
        index = _index(point)
        self._set(index + AT, at)
        self._set(index + TIMES, times)

    def calls(self, point: Point) -> int:
        """How often it was called."""
        return self._get(_index(point) + CALLS)

    def limit(self, quota: int) -> None:
        """The files can't grow beyond so many bytes; 0: as far as they like."""
        self._set(QUOTA, quota)

    def slow_down(self, sync_us: int) -> None:
        """How long a sync takes."""
        self._set(SYNC_US, sync_us)

    @property
    def failed(self) -> int:
        """Calls that failed with EIO."""
        return self._get(FAILED)

    @property
    def short(self) -> int:
        """Writes for which there was no room, or not enough."""
        return self._get(SHORT)

    @property
    def most(self) -> int:
        """What the files took at most, in bytes; only while there is a limit."""
        return self._get(MOST)


def _index(point: Point) -> int:
    return POINTS + 3 * (len(Operation) * point.file + point.operation)
