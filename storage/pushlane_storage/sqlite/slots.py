"""Slots: who may write.

One process owns them all, so a claim only ever fences an earlier claim of its own. The first
claim of a slot after opening answers the epoch of the opening, each one more than the one
before; the next opening's epoch is above all of them. A shard that opens again takes one more
epoch too, and fences nobody but itself.
"""

import sqlite3

from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Fenced
from pushlane_storage.slot import SLOTS, slot_of


class Slots:
    def __init__(self, connection: sqlite3.Connection, epoch: int) -> None:
        self._connection = connection
        self._opened = epoch
        self._epochs: list[int] = []
        self._lowest = [epoch] * SLOTS
        """The epoch with which each slot was claimed."""
        self._shards: dict[ShardKey, int] = {}
        """The lowest of shards that opened again since."""
        self.load()

    def load(self) -> None:
        """Take what is stored: after opening, and after a rollback."""
        self._epochs = [0] * SLOTS
        for slot, epoch in self._connection.execute("SELECT slot, epoch FROM slot"):
            self._epochs[slot] = epoch
        for slot, epoch in enumerate(self._epochs):
            self._lowest[slot] = min(self._lowest[slot], max(self._opened, epoch))

    def claim(self, slot: int, owner: str) -> int:
        assert 0 <= slot < SLOTS
        epoch = max(self._opened, self._epochs[slot] + 1)
        self._connection.execute("REPLACE INTO slot VALUES (?, ?, ?)", (slot, epoch, owner))
        self._epochs[slot] = self._lowest[slot] = epoch
        return epoch

    def next_epoch(self, shard: ShardKey) -> int:
        slot = slot_of(shard)
        epoch = self._epochs[slot] + 1
        assert epoch > self._opened, f"slot {slot} was not claimed"
        self._connection.execute("UPDATE slot SET epoch = ? WHERE slot = ?", (epoch, slot))
        self._epochs[slot] = self._shards[shard] = epoch
        return epoch

    def check(self, shard: ShardKey, epoch: int) -> None:
        """`Fenced` unless this epoch may write."""
        slot = slot_of(shard)
        lowest = max(self._lowest[slot], self._shards.get(shard, 0))
        if epoch < lowest:
            raise Fenced(f"slot {slot} has epoch {lowest}, this write is of epoch {epoch}")

    def forget(self, queue_id: str) -> None:
        """A queue is removed."""
        for shard in [shard for shard in self._shards if shard.queue_id == queue_id]:
            del self._shards[shard]
