"""A map whose entries are good until a time, with a limit on their number.

Nothing is removed when its time comes: reads look at the time, and the limit keeps memory bounded.
When it is passed, an eighth of the limit goes at once, the soonest to expire first, so that the
search for them is paid rarely.
"""

from collections.abc import Hashable, Sequence
from itertools import repeat
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def spare_of(limit: int) -> int:
    """How far below a limit to go once it was passed."""
    return limit // 8


class Expiring(Generic[K, V]):
    __slots__ = ("_limit", "_until", "_values", "forgotten")

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._values: dict[K, V] = {}
        self._until: dict[K, int] = {}
        self.forgotten = 0
        """Entries that had to go because of the limit, expired or not."""

    def __len__(self) -> int:
        return len(self._values)

    def put(self, keys: Sequence[K], values: Sequence[V], until: int) -> None:
        self._values.update(zip(keys, values, strict=True))
        self._until.update(zip(keys, repeat(until)))
        if len(self._values) > self._limit:
            self._shrink()

    def get(self, key: K, now: int) -> V | None:
        if self._until.get(key, now) <= now:
            return None
        return self._values[key]

    def drop(self, key: K) -> None:
        self._values.pop(key, None)
        self._until.pop(key, None)

    def _shrink(self) -> None:
        excess = len(self._values) - self._limit + spare_of(self._limit)
        for key in sorted(self._until, key=self._until.__getitem__)[:excess]:
            self.drop(key)
        self.forgotten += excess
