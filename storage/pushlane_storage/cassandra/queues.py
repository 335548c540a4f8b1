"""Queues: their rows, what writers must know of them, and how all that they stored is removed.

Rows are written by lightweight transactions only. Each version of a row is made by one of them,
with a nonce in it: so one that timed out can be told from somebody else's.

What the store must know of a queue when it writes for one of its shards (`Traits`) it learns from
every row that passes through it: whoever opens a shard has read the row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from pushlane_storage.bucket import CONTROL, BucketKey, ShardKey
from pushlane_storage.cassandra import stamps
from pushlane_storage.cassandra.buckets import Buckets
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.places import Places
from pushlane_storage.cassandra.ring import (
    Bound,
    Change,
    Delete,
    Level,
    Range,
    Ring,
    Row,
    Table,
    Write,
    read_row,
)
from pushlane_storage.cassandra.tables import (
    BUCKETS,
    LANES,
    NOTES,
    QUEUES,
    SCHEDULED,
    SEALS,
    SEGMENTS,
    SETTLEMENTS,
    SKIPS,
    SLICES,
    keyed,
)
from pushlane_storage.interface import (
    QueueExists,
    QueueMissing,
    StoreDamaged,
    VersionConflict,
)
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.slot import slot_of
from pushlane_storage.work import gather

_LEVELS = {"quorum": Level.QUORUM, "all": Level.ALL, "one": Level.ONE}


class Traits(NamedTuple):
    level: Level
    """Of writes of segments and settlements."""
    ttl: int
    """Seconds that segments are kept at the most: twice the retention."""


class Known:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._default = self._of(QueueConfig())
        self._others: dict[str, Traits] = {}

    def learn(self, row: QueueRow) -> None:
        traits = self._of(row.config)
        if traits == self._default:
            self._others.pop(row.id, None)
            return
        if row.id not in self._others and len(self._others) >= self._limits.traits:
            del self._others[next(iter(self._others))]
        self._others[row.id] = traits

    def forget(self, row: QueueRow) -> None:
        self._others.pop(row.id, None)

    def of(self, shard: ShardKey) -> Traits:
        return self._others.get(shard.queue_id, self._default)

    def _of(self, config: QueueConfig) -> Traits:
        seconds = 2 * config.retention_ms // 1000
        ttl = min(max(seconds, self._limits.least_ttl), self._limits.most_ttl)
        return Traits(_LEVELS[config.durability], ttl)


ID_BYTES = 16
"""Random bytes in a queue's id: enough that no two queues ever made share one."""


class Queues:
    def __init__(self, ring: Ring, decisions: Decisions, randbytes: Callable[[int], bytes]) -> None:
        self._ring = ring
        self._decisions = decisions
        self._randbytes = randbytes

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        new = QueueRow(tenant, name, self._nonce(), config, version=1)
        change = Change(QUEUES, (tenant, name), None, self._columns(new))

        def verdict(row: Row | None) -> bool | None:
            return None if row is None else row["id"] == new.id

        if (await self._decisions.decide(change, verdict)).applied:
            return new
        raise QueueExists(name)

    async def put(self, row: QueueRow) -> None:
        """A row as it stood in another store; `QueueExists` when there is another one."""
        change = Change(QUEUES, (row.tenant, row.name), None, self._columns(row))

        def verdict(found: Row | None) -> bool:
            return found is not None and _unpack(found) == row

        decided = await self._decisions.decide(change, verdict)
        if not decided.applied and not verdict(decided.row):
            raise QueueExists(row.name)

    async def read(self, tenant: str, name: str) -> QueueRow | None:
        found = await read_row(self._ring, QUEUES, (tenant, name))
        return None if found is None else _unpack(found)

    async def list_after(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        # Names are ordered by their bytes, as they are in Cassandra.
        low = Bound((after,), included=False)
        rows = await self._ring.read(Range(QUEUES, (tenant,), limit, low=low))
        return [_unpack(row) for row in rows]

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        stored = await self._stored(row)
        if stored.version != row.version:
            raise VersionConflict(row.name)
        return await self._replace(msgspec.structs.replace(stored, config=config))

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        stored = await self._stored(row)
        if stored.deleting:
            return stored
        if stored.version != row.version:
            raise VersionConflict(row.name)
        return await self._replace(msgspec.structs.replace(stored, deleting=True))

    async def check_removable(self, row: QueueRow) -> None:
        stored = await self._serial(row)
        if stored is not None and stored.id == row.id:
            assert stored.deleting, f"{row.name} is removed before it was marked"

    async def remove(self, row: QueueRow) -> None:
        """Remove the row, if it still is that of this queue."""
        change = Change(QUEUES, (row.tenant, row.name), {"id": row.id}, None)
        await self._decisions.decide(change, lambda _: True)  # whoever did it

    async def _serial(self, row: QueueRow) -> QueueRow | None:
        found = await self._decisions.read(QUEUES, (row.tenant, row.name))
        return None if found is None else _unpack(found)

    async def _stored(self, row: QueueRow) -> QueueRow:
        stored = await self._serial(row)
        if stored is None:
            raise QueueMissing(row.name)
        if stored.id != row.id:
            raise VersionConflict(row.name)
        return stored

    async def _replace(self, row: QueueRow) -> QueueRow:
        new = msgspec.structs.replace(row, version=row.version + 1)
        columns = self._columns(new)
        expect = {"id": row.id, "version": row.version}
        change = Change(QUEUES, (row.tenant, row.name), expect, columns)

        def verdict(found: Row | None) -> bool | None:
            if found is None or found["id"] != row.id or found["version"] > new.version:
                return None
            return bool(found["nonce"] == columns["nonce"])

        decided = await self._decisions.decide(change, verdict)
        if decided.applied:
            return new
        if decided.row is None:
            raise QueueMissing(row.name)
        raise VersionConflict(row.name)

    def _columns(self, row: QueueRow) -> Row:
        return {
            "id": row.id,
            "version": row.version,
            "deleting": row.deleting,
            "config": msgspec.json.encode(row.config).decode(),
            "nonce": self._nonce(),
        }

    def _nonce(self) -> str:
        return self._randbytes(ID_BYTES).hex()


def _unpack(row: Row) -> QueueRow:
    try:
        config = msgspec.json.decode(row["config"], type=QueueConfig)
    except (msgspec.MsgspecError, TypeError) as error:
        name = row["name"]
        raise StoreDamaged(f"the configuration of queue {name} is damaged: {error}") from error
    return QueueRow(
        row["tenant"], row["name"], row["id"], config, row["version"], row["deleting"] is True
    )


_EVERY_SLICE = (-(1 << 62), 1 << 62)
CALL_TTL = 24 * 60 * 60
"""Seconds. Whoever calls so late that the queue is gone has not called for ever."""


class Removal:
    def __init__(self, ring: Ring, places: Places, buckets: Buckets, limits: Limits) -> None:
        self._ring = ring
        self._places = places
        self._buckets = buckets
        self._limits = limits

    async def call(self, row: QueueRow) -> None:
        """Have the owners of all its slots see that the queue is being deleted.

        An owner reads the rows of queues that it has open. The others it would never look at, and
        nobody else can say that it has them not: so each is due at once, for all that it knows.
        """

        async def call(number: int) -> None:
            shard = ShardKey(row.id, number)
            due = keyed(NOTES, (slot_of(shard), *shard), due=0, tenant=row.tenant, queue=row.name)
            await self._ring.write(Write(NOTES, [due], stamps.FOREVER, CALL_TTL))

        await gather(call, range(row.config.shards), self._limits.reads)

    async def answered(self, row: QueueRow, left: int) -> None:
        """They have seen to it, but for the first shards."""

        async def forget(number: int) -> None:
            shard = ShardKey(row.id, number)
            await self._delete(NOTES, slot_of(shard), *shard)

        await gather(forget, range(left, row.config.shards), self._limits.reads)

    async def run(self, queue_id: str) -> None:
        """Safe to repeat: the list of lanes goes last."""
        for number, lanes in (await self._places.all(queue_id)).items():
            shard = ShardKey(queue_id, number)
            for lane in lanes:
                await self._remove_lane(shard, lane)
            for slice in await self._places.slices(shard, *_EVERY_SLICE):
                await self._delete(SCHEDULED, *shard, slice)
            for table in (SLICES, SKIPS, SEALS):
                await self._delete(table, *shard)
            await self._ring.write(Delete(SETTLEMENTS, (*shard, *CONTROL)))
            await self._delete(NOTES, slot_of(shard), *shard)
        await self._delete(LANES, queue_id)

    async def _remove_lane(self, shard: ShardKey, lane: int) -> None:
        async def remove(key: BucketKey) -> None:
            for table in (SEGMENTS, SETTLEMENTS):
                await self._ring.write(Delete(table, (*shard, *key), stamps.dropped(key)))

        await gather(remove, await self._buckets.keys(shard, lane), self._limits.reads)
        await self._delete(BUCKETS, *shard, lane)

    async def _delete(self, table: Table, *partition: object) -> None:
        await self._ring.write(Delete(table, partition, stamps.FOREVER))


class CassandraCatalog:
    """The store's seam. Every row that passes through is learned: whoever writes for a queue must
    know how (`Known`)."""

    def __init__(self, queues: Queues, known: Known, removal: Removal) -> None:
        self._queues = queues
        self._known = known
        self._removal = removal

    async def create(self, tenant: str, name: str, config: QueueConfig) -> QueueRow:
        return self._learn(await self._queues.create(tenant, name, config))

    async def read(self, tenant: str, name: str) -> QueueRow | None:
        row = await self._queues.read(tenant, name)
        return None if row is None else self._learn(row)

    async def list(self, tenant: str, after: str, limit: int) -> list[QueueRow]:
        return [self._learn(row) for row in await self._queues.list_after(tenant, after, limit)]

    async def update(self, row: QueueRow, config: QueueConfig) -> QueueRow:
        new = self._learn(await self._queues.update(row, config))
        if row.deleting:
            await self._removal.answered(row, config.shards)
        return new

    async def mark_deleting(self, row: QueueRow) -> QueueRow:
        row = self._learn(await self._queues.mark_deleting(row))
        await self._removal.call(row)
        return row

    async def remove(self, row: QueueRow) -> None:
        await self._queues.check_removable(row)
        await self._removal.run(row.id)
        await self._removal.answered(row, 0)
        await self._queues.remove(row)
        self._known.forget(row)

    def _learn(self, row: QueueRow) -> QueueRow:
        self._known.learn(row)
        return row
