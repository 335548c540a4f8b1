"""The two sides of a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.copy.record import Record
from pushlane_storage.copy.rows import Day, LogRow, Rows
from pushlane_storage.interface import Due
from pushlane_storage.queue import QueueRow
from pushlane_storage.stored_segment import StoredSegment
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
