"""The two sides of a copy, and how they are opened by their URLs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.copy.errors import NotCopyable
from pushlane_storage.copy.record import Record
from pushlane_storage.copy.rows import Day, LogRow, Rows
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.segment import StoredSegment
from pushlane_storage.url import BadStoreUrl, parse_cassandra, shown
from pushlane_storage.usage import Usage


class Source(Protocol):
    """A store that is read. Open, it is known not to be served."""

    name: str
    """Its URL, without the password."""
    rows: Rows

    async def identity(self) -> str:
        """What tells it from every other store, together with its queues."""
        ...

    async def hold(self, copy: str) -> None:
        """Keep servers out for as long as this is open."""
        ...

    async def is_untouched(self, copy: str) -> bool:
        """Whether no server has used it since it was held for this copy."""
        ...

    async def confirm(self) -> None:
        """`CopyTaken` when it is not held any more."""
        ...

    async def epoch(self) -> int:
        """The greatest that was given out."""
        ...


class Target(Protocol):
    """A store that is written. Servers refuse it until it is finished."""

    name: str

    async def read_record(self) -> Record | None:
        """Of the copy that it holds, if any. Changes nothing."""
        ...

    async def check_empty(self) -> None:
        """`TargetNotEmpty`, or nothing. Changes nothing."""
        ...

    async def begin(self, record: Record) -> Rows:
        """Make what is needed, or go on with it; what is stored can be read from here on."""
        ...

    async def note(self, record: Record) -> None:
        """Progress: durable, together with everything that was put before."""
        ...

    async def finish(self, record: Record) -> None:
        """Open a verified copy to servers, which begin above `record.epoch`. Safe to repeat."""
        ...

    # Rows as they are. To put one again changes nothing.

    async def put_queue(self, row: QueueRow) -> None: ...

    async def put_shard(
        self, queue: QueueRow, shard: ShardKey, seals: Sequence[LogRow], note: LogRow | None
    ) -> None:
        """That there is such a shard, its seals and its note."""
        ...

    async def put_bucket(self, shard: ShardKey, bucket: Bucket) -> None: ...

    async def put_log(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[LogRow]
    ) -> None: ...

    async def put_segments(
        self, queue: QueueRow, shard: ShardKey, key: BucketKey, rows: Sequence[StoredSegment]
    ) -> None: ...

    async def put_due(self, queue: QueueRow, shard: ShardKey, rows: Sequence[Due]) -> None: ...

    async def put_usage(self, day: Day, usage: Sequence[Usage]) -> None: ...


def place_of(url: str) -> Path | Address:
    """A folder, or a keyspace. A path without a scheme is a folder."""
    scheme, colon, rest = url.partition(":")
    if not colon or not re.fullmatch("[a-z][a-z0-9+.-]*", scheme):
        scheme, rest = "sqlite", url
    if scheme == "memory":
        raise NotCopyable(
            "a store in memory ends with its server, and can't be copied: give sqlite:DIR or"
            " cassandra://HOST/KEYSPACE"
        )
    if scheme == "sqlite":
        if not rest or "\0" in rest:
            raise NotCopyable(f"{url!r} names no folder: give one, such as sqlite:./pushlane-data")
        return Path(rest)
    if scheme != "cassandra":
        raise NotCopyable(
            f"{shown(url)} is not a store: give sqlite:DIR or cassandra://HOST/KEYSPACE"
        )
    try:
        return parse_cassandra(url)
    except BadStoreUrl as error:
        raise NotCopyable(str(error)) from error


def check_different(source: str, target: str) -> None:
    """Two places, as far as their names tell."""
    one, other = place_of(source), place_of(target)
    if isinstance(one, Path) and isinstance(other, Path):
        same = one.resolve() == other.resolve()
    else:
        same = one == other
    if same:
        raise NotCopyable(f"source and target are the same: {shown(source)}")


@asynccontextmanager
async def open_source(url: str, limits: Limits) -> AsyncIterator[Source]:
    place = place_of(url)
    if isinstance(place, Path):
        from pushlane_storage.copy import sqlite_source

        async with sqlite_source.open_source(f"sqlite:{place}", place) as sqlite:
            yield sqlite
    else:
        from pushlane_storage.copy import cassandra_source

        async with cassandra_source.open_source(shown(url), place, limits) as cassandra:
            yield cassandra


@asynccontextmanager
async def open_target(url: str, limits: Limits) -> AsyncIterator[Target]:
    place = place_of(url)
    if isinstance(place, Path):
        from pushlane_storage.copy import sqlite_target

        async with sqlite_target.open_target(f"sqlite:{place}", place) as sqlite:
            yield sqlite
    else:
        from pushlane_storage.copy import cassandra_target

        async with cassandra_target.open_target(shown(url), place, limits) as cassandra:
            yield cassandra
