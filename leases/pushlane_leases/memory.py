"""The in-memory lease cache: what a single process uses, and what tests use.

`LeaseTable` is the data and every operation on it, as plain calls; the simulator uses it directly.
`MemoryLeases` is the `LeaseCache` over it. A table outlives the cache that was opened on it, as
Redis outlives a node.

Everything is bounded. What goes beyond a limit pushes out what would be forgotten first anyway;
that is legal, for whoever asks must live with an empty answer.

Entries that are good until a time are not removed when it comes: reads look at the time. When their
number passes the limit, an eighth of it goes at once, the soonest to expire first, so that the
search for them is paid rarely.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Generic, TypeVar

import msgspec
import trio

from pushlane.wire.receipts import ReceiptRun
from pushlane_leases.interface import InstantCache, KeptSession, LeaseRun, StaleEpoch
from pushlane_leases.runs import Runs, last_of

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def spare_of(limit: int) -> int:
    """How far below a limit to go once it was passed."""
    return limit // 8


class Expiring(Generic[K, V]):
    __slots__ = ("_limit", "_until", "_values")

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self._limit = limit
        self._values: dict[K, V] = {}
        self._until: dict[K, int] = {}

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

    def swap(self, key: K, value: V) -> None:
        """Another value for a key that is there, until the same time."""
        assert key in self._values
        self._values[key] = value

    def drop(self, key: K) -> None:
        self._values.pop(key, None)
        self._until.pop(key, None)

    def _shrink(self) -> None:
        excess = len(self._values) - self._limit + spare_of(self._limit)
        for key in sorted(self._until, key=self._until.__getitem__)[:excess]:
            self.drop(key)


class LeaseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a cache keeps. Full, with one message a run, it takes about 100 MB."""

    shards: int = 10_000
    """Whose epoch is known: far more than a node serves; the one claimed longest ago goes."""
    runs: int = 100_000
    """Ten full credits of subscriptions that settle at random; less than 300 bytes each."""
    marks: int = 1_000
    """Lots of dedup marks, of a bucket each: up to a megabyte; storage knows the rest."""
    sessions: int = 100_000
    """Records of clients' sessions: a few hundred bytes each."""


class ShardLeases:
    """What is out from one shard, by receipt prefix."""

    __slots__ = ("epoch", "prefixes")

    def __init__(self) -> None:
        self.epoch = 0
        self.prefixes: dict[str, Runs] = {}

    def __iter__(self) -> Iterator[LeaseRun]:
        for runs in self.prefixes.values():
            yield from runs

    def count(self) -> int:
        return sum(map(len, self.prefixes.values()))

    def put(self, run: LeaseRun) -> int:
        """Remember a run, and say how many more there are now."""
        runs = self.prefixes.get(run.prefix)
        if runs is None:
            runs = self.prefixes[run.prefix] = Runs()
        return runs.put(run)

    def cut(self, prefix: str, low: int, high: int) -> int:
        """Forget receipts, and say how many more runs there are now (one, none, or fewer)."""
        runs = self.prefixes.get(prefix)
        if runs is None:
            return 0
        more = runs.cut(low, high)
        if more < 0 and not runs.all:
            del self.prefixes[prefix]
        return more

    def expire(self, now: int) -> None:
        for runs in self.prefixes.values():
            runs.expire(now)
        self.prefixes = {prefix: runs for prefix, runs in self.prefixes.items() if runs}


class LeaseTable:
    """The data, with the methods of `LeaseCache` as plain synchronous calls."""

    def __init__(self, limits: LeaseLimits | None = None) -> None:
        self.limits = LeaseLimits() if limits is None else limits
        self._shards: dict[str, ShardLeases] = {}  # claimed longest ago first
        self._runs = 0
        self._marks: Expiring[tuple[str, str], bytes] = Expiring(self.limits.marks)
        self._sessions: Expiring[str, KeptSession] = Expiring(self.limits.sessions)

    def claim(self, shard: str, epoch: int, now: int) -> list[LeaseRun]:
        leases = self._owned(shard, epoch)
        self._shards[shard] = self._shards.pop(shard)  # to the end of the line
        self._runs -= leases.count()
        leases.expire(now)
        self._runs += leases.count()
        return list(leases)

    def overwrite(self, shard: str, epoch: int, newest: int) -> None:
        leases = self._shards.get(shard)
        if leases is not None and leases.epoch == newest:
            self._runs -= self._shards.pop(shard).count()
        self._owned(shard, epoch)

    def grant(self, shard: str, epoch: int, runs: Sequence[LeaseRun]) -> None:
        leases = self._owned(shard, epoch)
        self._runs += sum(map(leases.put, runs))
        if self._runs > self.limits.runs:
            self._shrink()

    def release(self, shard: str, epoch: int, receipts: Sequence[ReceiptRun]) -> None:
        leases = self._owned(shard, epoch)
        self._runs += sum([leases.cut(*receipt) for receipt in receipts])
        if self._runs > self.limits.runs:
            self._shrink()

    def remember(
        self, shard: str, epoch: int, marks: Sequence[tuple[str, bytes]], ttl_ms: int, now: int
    ) -> None:
        self._owned(shard, epoch)
        keys = list(zip(repeat(shard), map(itemgetter(0), marks)))
        self._marks.put(keys, [lot for _, lot in marks], now + ttl_ms)

    def recall(self, shard: str, names: Sequence[str], now: int) -> dict[str, bytes]:
        found = ((name, self._marks.get((shard, name), now)) for name in names)
        return {name: lot for name, lot in found if lot is not None}

    def put_session(self, id: str, term: int, record: bytes, ttl_ms: int, now: int) -> bool:
        found = self._sessions.get(id, now)
        if found is not None and found.term > term:
            return False
        self._sessions.put([id], [KeptSession(term, record)], now + ttl_ms)
        return True

    def get_session(self, id: str, now: int) -> KeptSession | None:
        return self._sessions.get(id, now)

    def take_session(self, id: str, term: int, now: int) -> bool:
        found = self._sessions.get(id, now)
        if found is None or found.term != term:
            return False
        self._sessions.swap(id, KeptSession(term + 1, found.record))
        return True

    def drop_session(self, id: str, term: int) -> None:
        found = self._sessions.get(id, 0)
        if found is not None and found.term <= term:
            self._sessions.drop(id)

    def _owned(self, shard: str, epoch: int) -> ShardLeases:
        """The shard's leases, for an owner with this epoch."""
        leases = self._shards.get(shard)
        if leases is None:
            leases = self._shards[shard] = ShardLeases()
            self._forget_shard()
        if epoch < leases.epoch:
            raise StaleEpoch(shard, epoch, leases.epoch)
        leases.epoch = epoch
        return leases

    def _forget_shard(self) -> None:
        if len(self._shards) > self.limits.shards:
            oldest = next(iter(self._shards))
            self._runs -= self._shards.pop(oldest).count()

    def _shrink(self) -> None:
        """Past the limit of runs, those with the earliest deadlines go, wherever they stand."""
        limit = self.limits.runs
        everything = [(run, leases) for leases in self._shards.values() for run in leases]
        everything.sort(key=lambda item: item[0].deadline)
        excess = self._runs - limit + spare_of(limit)
        for run, leases in everything[:excess]:
            self._runs += leases.cut(run.prefix, run.n, last_of(run))


class MemoryLeases:
    """The `LeaseCache` over a `LeaseTable`. Every call is one checkpoint, then the plain call."""

    def __init__(self, table: LeaseTable | None = None) -> None:
        self.table = LeaseTable() if table is None else table
        self.instant: InstantCache | None = None
        self._closed = False

    async def _reach(self) -> LeaseTable:
        await trio.lowlevel.checkpoint()
        assert not self._closed, "the lease cache is closed"
        return self.table

    async def claim(self, shard: str, epoch: int, now: int) -> list[LeaseRun]:
        return (await self._reach()).claim(shard, epoch, now)

    async def overwrite(self, shard: str, epoch: int, newest: int) -> None:
        (await self._reach()).overwrite(shard, epoch, newest)

    async def grant(self, shard: str, epoch: int, runs: Sequence[LeaseRun]) -> None:
        (await self._reach()).grant(shard, epoch, runs)

    async def release(self, shard: str, epoch: int, receipts: Sequence[ReceiptRun]) -> None:
        (await self._reach()).release(shard, epoch, receipts)

    async def remember(
        self, shard: str, epoch: int, marks: Sequence[tuple[str, bytes]], ttl_ms: int, now: int
    ) -> None:
        (await self._reach()).remember(shard, epoch, marks, ttl_ms, now)

    async def recall(self, shard: str, names: Sequence[str], now: int) -> dict[str, bytes]:
        return (await self._reach()).recall(shard, names, now)

    async def put_session(self, id: str, term: int, record: bytes, ttl_ms: int, now: int) -> bool:
        return (await self._reach()).put_session(id, term, record, ttl_ms, now)

    async def get_session(self, id: str, now: int) -> KeptSession | None:
        return (await self._reach()).get_session(id, now)

    async def take_session(self, id: str, term: int, now: int) -> bool:
        return (await self._reach()).take_session(id, term, now)

    async def drop_session(self, id: str, term: int) -> None:
        (await self._reach()).drop_session(id, term)

    async def close(self) -> None:
        self._closed = True
        await trio.lowlevel.checkpoint()


class InstantLeases(MemoryLeases):
    """Leases in memory that answer at once (`InstantCache`): what a server uses by itself."""

    def __init__(self, table: LeaseTable | None = None) -> None:
        super().__init__(table)
        self.instant = self
        self.grant_now = self.table.grant
        self.release_now = self.table.release
