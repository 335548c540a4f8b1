"""What there is to copy: counted before anything is touched."""

from __future__ import annotations

from functools import partial
from hashlib import blake2b

import msgspec

from pushlane_storage.cassandra.crowd import gather
from pushlane_storage.copy.errors import SourceDamaged
from pushlane_storage.copy.patience import patiently
from pushlane_storage.copy.record import Counts, Place
from pushlane_storage.copy.rows import Rows
from pushlane_storage.copy.sides import Source
from pushlane_storage.copy.walk import Unit, Walk
from pushlane_storage.interface import StoreDamaged

COUNTED = 8
"""Open buckets that are counted at once: closed ones have their counts in their rows."""


class Plan(msgspec.Struct, frozen=True):
    counts: Counts
    fingerprint: str
    """Of the source: who it is, and all queues as they are."""


async def make_plan(source: Source) -> Plan:
    hashed = blake2b((await source.identity()).encode(), digest_size=16)
    counts = Counts()

    walk = Walk(source.rows)
    try:
        while group := await patiently(walk.group):
            for unit in group:
                if unit.shard is None:
                    hashed.update(msgspec.msgpack.encode(unit.queue))
            counts += await _count(source.rows, group)
    except StoreDamaged as error:
        raise SourceDamaged(
            f"{source.name}: {error}; without it that shard can't be served, here or there:"
            " restore a backup, or delete the queue"
        ) from error
    return Plan(counts, hashed.hexdigest())


async def _count(rows: Rows, group: list[Unit]) -> Counts:
    buckets = {unit.place: unit for unit in group if unit.bucket is not None}

    async def count(place: Place) -> int:
        unit = buckets[place]
        assert unit.shard is not None
        assert unit.bucket is not None
        if unit.bucket.closed:
            return unit.bucket.count
        return await patiently(partial(rows.count, unit.shard, unit.bucket.key))

    messages = await gather(count, buckets, COUNTED)
    queues = sum(unit.shard is None for unit in group)
    return Counts(
        queues=queues,
        shards=len(group) - queues - len(buckets),
        buckets=len(buckets),
        messages=sum(messages.values()),
    )
