"""All tables, as the writer works on them inside one transaction."""

import sqlite3
from collections.abc import Callable, Sequence

from pushlane_storage.bucket import BucketKey, ShardKey
from pushlane_storage.damage import Damage
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.segment import StoredSegment
from pushlane_storage.sqlite import quarantine, queue_rows, usage_rows
from pushlane_storage.sqlite.limits import Limits
from pushlane_storage.sqlite.shard_rows import ShardRows
from pushlane_storage.sqlite.slots import Slots
from pushlane_storage.sqlite.space import Garbage
from pushlane_storage.usage import Usage

QUEUE_ID_BYTES = 16
"""Random bytes in a queue's id: enough that no two queues ever made share one."""


class Tables:
    """The writes of `Store` as plain calls."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        epoch: int,
        limits: Limits,
        randbytes: Callable[[int], bytes],
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._randbytes = randbytes
        self._changes = 0
        self._slots = Slots(connection, epoch)
        self._shards = ShardRows(connection, self._slots, limits.places)
        self.garbage = Garbage(connection, limits)
        self.claim = self._slots.claim
        self.next_epoch = self._slots.next_epoch
        self.append = self._shards.append
        self.settle = self._shards.settle
        self.mark_bucket = self._shards.mark_bucket
        self.write_seal = self._shards.write_seal
        self.write_note = self._shards.write_note

    # Transactions

    @property
    def bytes(self) -> int:
        """What was added in this transaction, roughly."""
        return self._shards.bytes

    @property
    def changed(self) -> bool:
        """Whether this transaction has written anything."""
        return self._connection.total_changes > self._changes

    def begin(self) -> None:
        self._shards.bytes = 0
        self._changes = self._connection.total_changes
        self._connection.execute("BEGIN IMMEDIATE")

    def savepoint(self) -> None:
        self._connection.execute("SAVEPOINT call")

    def release(self) -> None:
        self._shards.flush()
        self._connection.execute("RELEASE call")

    def back_to_savepoint(self) -> None:
        self._connection.execute("ROLLBACK TO call")
        self._connection.execute("RELEASE call")
        self._forget()

    def commit(self) -> None:
        self._shards.flush()
        self._connection.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        self._forget()

    def _forget(self) -> None:
        self._shards.forget()
        self._slots.load()
        self.garbage.there = True

    # Queues

    def create_queue(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        id = self._randbytes(QUEUE_ID_BYTES).hex()
        return queue_rows.create(self._connection, tenant, name, id, config)

    def update_queue(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        return queue_rows.update(self._connection, row, config)

    def mark_deleting(self, row: QueueRow) -> QueueRow:
        return queue_rows.mark_deleting(self._connection, row)

    def remove_queue(self, row: QueueRow) -> None:
        queue_rows.remove(self._connection, row)
        self._shards.remove_shards(row.id)
        self._slots.forget(row.id)
        self.garbage.there = True

    # The rest

    def drop(
        self, shard: ShardKey, key: BucketKey, flushes: Sequence[tuple[int, int]] | None = None
    ) -> None:
        if flushes is None:
            self._shards.drop_bucket(shard, key)
            self.garbage.there = True
        else:
            self._shards.drop_settlements(shard, key, flushes)

    def put_usage(self, usage: Sequence[Usage]) -> None:
        usage_rows.put(self._connection, usage)
        usage_rows.forget(self._connection, usage, self._limits.usage_kept_days)

    def note_damage(self, damage: Damage, stored: StoredSegment) -> None:
        quarantine.note(self._connection, damage, stored, self._limits.quarantine_rows)
