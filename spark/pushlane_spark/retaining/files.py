"""An archive's files, wherever they are: through Hadoop's file systems, as Spark has them.

Paths are relative to the archive. What must be there or not is written under another name first
and then renamed. On this machine's own disks it is synced, too: what it says is dropped elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pushlane_spark.errors import ArchiveUnfit

HALF = "_half"
"""What a file is called while it is written: nobody reads such a name."""


class File(NamedTuple):
    path: str
    """Relative to the archive."""
    size: int


class Files:
    def __init__(self, spark: SparkSession, root: str, *, make: bool = True) -> None:
        jvm: Any = spark._jvm
        context: Any = spark._jsc
        self._path = jvm.org.apache.hadoop.fs.Path
        self._io = jvm.org.apache.commons.io.IOUtils
        self.root = root
        try:
            base = self._path(root)
            self._fs = base.getFileSystem(context.hadoopConfiguration())
            self._base = self._fs.makeQualified(base)
            if make:
                self._fs.mkdirs(self._base)
        except Py4JJavaError as error:
            raise ArchiveUnfit(f"{root} can't be written: {error.java_exception}") from error
        self._is_local = self._fs.getScheme() == "file"

    def full(self, path: str) -> str:
        """As Spark takes it."""
        return str(self._of(path).toString())

    def exists(self, path: str) -> bool:
        return bool(self._fs.exists(self._of(path)))

    def size(self, path: str) -> int | None:
        """None: it is not there."""
        found = self._of(path)
        return int(self._fs.getFileStatus(found).getLen()) if self._fs.exists(found) else None

    def names(self, folder: str) -> list[str]:
        """What is in a folder, by name; nothing when there is none."""
        if not self.exists(folder):
            return []
        return sorted(
            str(found.getPath().getName()) for found in self._fs.listStatus(self._of(folder))
        )

    def below(self, folder: str, suffix: str) -> Iterator[File]:
        """All files below a folder whose names end so."""
        if not self.exists(folder):
            return
        start = len(self._base.toUri().getPath().rstrip("/")) + 1
        found = self._fs.listFiles(self._of(folder), True)
        while found.hasNext():
            status = found.next()
            path = str(status.getPath().toUri().getPath())[start:]
            if path.endswith(suffix):
                yield File(path, int(status.getLen()))

    def read(self, path: str) -> bytes:
        stream = self._fs.open(self._of(path))
        try:
            return bytes(self._io.toByteArray(stream))
        finally:
            stream.close()

    def write(self, path: str, content: bytes) -> None:
        """Whole or not at all, in place of what was there."""
        half = path + HALF
        stream = self._fs.create(self._of(half), True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()
        self._sync(half)
        self.delete(path)
        self.rename(half, path)

    def rename(self, source: str, target: str) -> None:
        """`ArchiveUnfit` when it did not succeed."""
        try:
            self._fs.mkdirs(self._of(target).getParent())
            renamed = self._fs.rename(self._of(source), self._of(target))
        except Py4JJavaError as error:  # file systems differ in how they say no
            message = f"{self.full(source)} could not be renamed to {target}"
            raise ArchiveUnfit(f"{message}: {error.java_exception}") from error
        if not renamed:
            raise ArchiveUnfit(f"{self.full(source)} could not be renamed to {target}")
        self._sync_folder(os.path.dirname(target))

    def delete(self, path: str) -> None:
        self._fs.delete(self._of(path), True)

    def sync(self, path: str) -> None:
        """Make a file durable, where that is not the file system's own promise."""
        self._sync(path)

    def _sync(self, path: str) -> None:
        if self._is_local:
            _fsync(self._local(path))

    def _sync_folder(self, path: str) -> None:
        """The entry of a file, and those of the folders above it."""
        if not self._is_local:
            return
        while True:
            _fsync(self._local(path))
            if not path:
                return
            path = os.path.dirname(path)

    def _local(self, path: str) -> str:
        return str(self._of(path).toUri().getPath())

    def _of(self, path: str) -> Any:
        return self._path(self._base, path) if path else self._base


def _fsync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
