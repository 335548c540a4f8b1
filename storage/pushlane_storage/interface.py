"""The Store: the seam between the dispatcher and what keeps messages.

`Store` has what shards write and read, `Catalog` the rows of queues, `UsageStore` the counters. Who
may write is `Ownership`'s (ownership.py). A `Backend` is all of it.

A store answers in one of five ways. It returns: what was asked is durable. `StoreRefused`: it
certainly did nothing. `StoreUnknown`: it may or may not have. `Fenced`: somebody else owns the
slot now, and nothing of what was asked counts. `StoreDamaged`: it did nothing, because what it
needs for that can't be read. A writer that got `StoreUnknown` writes the same again until it is
decided: every write here is idempotent for the same key and content.

The dispatcher knows this interface only; every back end passes one conformance suite
(tests/storage/conformance.py). Reads return rows in order of their keys.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from pushlane_storage.bucket import Bucket, BucketKey, ShardKey
from pushlane_storage.member import Owner
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.ownership import Ownership
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.seal import Outline, Seal
from pushlane_storage.segment import Segment, SegmentHead
from pushlane_storage.settlement import Settlement
from pushlane_storage.usage import Usage, UsageKey

Outcome = Callable[[Exception | None], None]
"""Called once, in the trio loop: the write is durable, or what was answered instead. Never from
inside the call that began the write."""


class StoreError(Exception):
    """Whatever a store answers instead of success."""


class StoreRefused(StoreError):
    """Certainly nothing was changed."""


class StoreUnknown(StoreError):
    """It may or may not have been changed: write the same again, or read."""


class Fenced(StoreError):
    """The slot has another owner: step down."""


class StoreDamaged(StoreError):
    """A stored row is not what was written, and there is no going on without it.

    To a reader a disk that fails for a moment may look the same: it can try again, and must not
    take anything for lost.
    """


class SlotOwned(StoreRefused):
    """Another process owns the slot, and is alive."""

    def __init__(self, message: str, owner: Owner) -> None:
        super().__init__(message)
        self.owner = owner


class ProcessMissing(StoreRefused):
    """No such process shares the store any more: it has left, or it was fenced."""


class QueueExists(StoreRefused):
    """A queue of this name is there (perhaps being deleted)."""


class QueueMissing(StoreRefused):
    """No queue of this name is there."""


class VersionConflict(StoreRefused):
    """The queue's row has another version than the caller thought."""


class Due(NamedTuple):
    """A place in the schedule index: a message that must wait until `due`."""

    due: int
    lane: int
    bucket: BucketKey
    seq: int


class Store(Protocol):
    """What shards store. Writers are owners: they claimed the shard's slot."""

    def append_soon(
        self, shard: ShardKey, segment: Segment, opens: Bucket | None, outcome: Outcome
    ) -> None:
        """Store one segment; the row of the bucket that it opens is written before it.

        Messages whose `not_before` is set are entered into the schedule index with it.
        """
        ...

    def settle_soon(self, shard: ShardKey, rows: Sequence[Settlement], outcome: Outcome) -> None:
        """Append one flush to the settlement log: one row per bucket, durable together or not."""
        ...

    async def mark_bucket(self, shard: ShardKey, bucket: Bucket) -> None:
        """Set `closed` (with its counts) or `drained`; they never go back."""
        ...

    async def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        """Remove a drained bucket whole: segments, settlements, schedule, row. Safe to repeat.

        With `flushes`, (owner, n), only these rows of its settlement log: later ones cover them.
        """
        ...

    async def write_seal(self, shard: ShardKey, seal: Seal) -> None:
        """The newest decides: when it is durable, those before it go."""
        ...

    async def write_note(self, shard: ShardKey, note: Note) -> None:
        """Replace the shard's note, unless a newer one is there."""
        ...

    async def outline(self, shard: ShardKey) -> Outline:
        """Seals, buckets and note. An owner gets all that its predecessors were told is durable."""
        ...

    async def heads(self, shard: ShardKey, key: BucketKey) -> list[SegmentHead]:
        """The bucket's segments without bodies, by first seq."""
        ...

    async def segments(
        self, shard: ShardKey, key: BucketKey, start: int, limit: int, last: int | None = None
    ) -> list[Segment]:
        """Segments that hold seq >= start, in order, until `limit` messages are there.

        At least one segment comes back when there is one; whole segments only. One that is
        damaged is left out: the caller knows what is missing, and gives it up. A caller that is
        about to do so names the `last` seq that must be there: a store with several copies then
        looks at all of them before it says that something is not.
        """
        ...

    async def messages(
        self, shard: ShardKey, key: BucketKey, seqs: Sequence[int]
    ) -> dict[int, Message]:
        """Single messages by seq; what is not stored is missing from the answer."""
        ...

    async def settlements(self, shard: ShardKey, key: BucketKey) -> list[Settlement]:
        """The bucket's rows, by (owner, n). `CONTROL` is the shard's own partition."""
        ...

    async def due(self, shard: ShardKey, start: int, end: int, limit: int) -> list[Due]:
        """The schedule index: start <= due < end, the earliest first."""
        ...


class Catalog(Protocol):
    """The rows of queues, changed by compare-and-set only."""

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        """A new row with a fresh id and version 1, or `QueueExists`."""
        ...

    async def read(self, tenant: str, name: str) -> QueueRow | None: ...

    async def list(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        """Rows with names greater than `after`, by name."""
        ...

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        """Replace the configuration if id and version still are the row's.

        Also that of a queue that is being deleted: its shards go from the last to the first.
        """
        ...

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        """The first step of deletion; from here on the name takes no publish.

        Where others may own slots of the queue they find its shards among what is due. Safe to
        repeat.
        """
        ...

    async def remove(self, row: QueueRow) -> None:
        """The last step: the row and all that its shards stored. Safe to repeat."""
        ...


class UsageStore(Protocol):
    """Counters by tenant, queue and minute."""

    async def put(self, usage: Sequence[Usage]) -> None:
        """Replace the row of each key, unless the stored one has a higher version.

        One that fails may have replaced any of them. Rows but those of `TALLY_MINUTE` may be gone
        after `usage_kept_days`, a limit of each store.
        """
        ...

    async def find(self, key: UsageKey) -> Usage | None: ...

    async def read(
        self, tenant: str, first_minute: int, last_minute: int, queue: str | None = None
    ) -> list[Usage]:
        """The rows of these minutes, both included, by key; of one queue when it is named."""
        ...


class Backend(Store, Protocol):
    """An open store, with what is kept beside the rows of shards. `open_store` yields one."""

    @property
    def ownership(self) -> Ownership: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def usage(self) -> UsageStore: ...

    async def time(self) -> int | None:
        """What time it is where the data is, in Unix milliseconds; None: there is no other clock
        than this machine's."""
        ...

    def stats(self) -> msgspec.Struct:
        """What the back end counts, and how big it is."""
        ...
