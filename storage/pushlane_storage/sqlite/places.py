"""Where things stand: the numbers of shards and buckets, and where a bucket's rows end.

The writer asks for a place with every append and settle, so it remembers them, up to a bound.
What a place says of its ends is true for what is stored and for what waits in this transaction;
after a rollback all of it is forgotten.
"""

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from pushlane_storage.bucket import BucketKey, ShardKey

K = TypeVar("K")
V = TypeVar("V")

NOTHING = (-1, -1)


class Place:
    """A bucket's number, and the ends of what it holds; None is not looked up yet."""

    __slots__ = ("id", "last", "settled")

    def __init__(self, id: int, last: int | None = None, settled: tuple[int, int] | None = None):
        self.id = id
        self.last = last
        """The greatest seq."""
        self.settled = settled
        """The greatest (owner, n) of its settlements."""


class Places:
    def __init__(
        self, connection: sqlite3.Connection, flush: Callable[[], None], bound: int
    ) -> None:
        """`flush` has what waits inserted, so that it can be looked up."""
        self._connection = connection
        self._flush = flush
        self._bound = bound
        self._shards: dict[ShardKey, int] = {}
        self._places: dict[tuple[ShardKey, BucketKey], Place] = {}
        # Numbers are not used twice while the store is open, whatever is dropped: a reader
        # that looked one up may still be at work.
        self._next_shard = self._after("SELECT max(id) FROM shard")
        self._next_place = self._after(
            "SELECT max(id) FROM bucket", "SELECT max(bucket) FROM garbage"
        )

    def _after(self, *queries: str) -> int:
        found = [self._connection.execute(query).fetchone()[0] for query in queries]
        return 1 + max(number or 0 for number in found)

    # Shards

    def find_shard(self, key: ShardKey) -> int | None:
        number = self._shards.get(key)
        if number is None:
            found = self._connection.execute(
                "SELECT id FROM shard WHERE queue_id = ? AND number = ?", key
            ).fetchone()
            if found is None:
                return None
            number = _remember(self._shards, key, found[0], self._bound)
        return number

    def shard(self, key: ShardKey) -> int:
        """A shard's number; it gets one if it has none."""
        number = self.find_shard(key)
        if number is None:
            number, self._next_shard = self._next_shard, self._next_shard + 1
            self._connection.execute("INSERT INTO shard VALUES (?, ?, ?)", (number, *key))
            _remember(self._shards, key, number, self._bound)
        return number

    # Buckets

    def find(self, shard: ShardKey, key: BucketKey) -> Place | None:
        place = self._places.get((shard, key))
        if place is None:
            number = self.find_shard(shard)
            if number is None:
                return None
            found = self._connection.execute(
                "SELECT id FROM bucket WHERE shard = ? AND lane = ? AND epoch = ? AND start = ?",
                (number, *key),
            ).fetchone()
            if found is None:
                return None
            place = _remember(self._places, (shard, key), Place(found[0]), self._bound)
        return place

    def bucket(self, shard: ShardKey, key: BucketKey) -> Place:
        """A bucket's place; it gets one if it has none."""
        place = self.find(shard, key)
        if place is None:
            place = Place(self._next_place, -1, NOTHING)
            self._next_place += 1
            self._connection.execute(
                "INSERT INTO bucket (id, shard, lane, epoch, start) VALUES (?, ?, ?, ?, ?)",
                (place.id, self.shard(shard), *key),
            )
            _remember(self._places, (shard, key), place, self._bound)
        return place

    def last(self, place: Place) -> int:
        if place.last is None:
            place.last = self._look(
                "SELECT first + count - 1 FROM segment WHERE bucket = ?"
                " ORDER BY first DESC LIMIT 1",
                place,
                (-1,),
            )[0]
        return place.last

    def settled(self, place: Place) -> tuple[int, int]:
        if place.settled is None:
            owner, n = self._look(
                "SELECT owner, n FROM settlement WHERE bucket = ?"
                " ORDER BY owner DESC, n DESC LIMIT 1",
                place,
                NOTHING,
            )
            place.settled = (owner, n)
        return place.settled

    def _look(self, query: str, place: Place, default: tuple[int, ...]) -> tuple[int, ...]:
        self._flush()
        found: tuple[int, ...] | None = self._connection.execute(query, (place.id,)).fetchone()
        return default if found is None else found

    # Forgetting

    def drop(self, shard: ShardKey, key: BucketKey) -> None:
        self._places.pop((shard, key), None)

    def forget(self) -> None:
        self._shards.clear()
        self._places.clear()


def _remember(known: dict[K, V], key: K, value: V, bound: int) -> V:
    """Add to a dict that forgets its oldest entries."""
    if len(known) >= bound:
        del known[next(iter(known))]
    known[key] = value
    return value
