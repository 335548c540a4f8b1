"""Which buckets are archived, which are dropped, and which have to wait, and for what.

A plan is made from rows of the store and a time, and changes nothing. An open bucket is in none of
its lists: nothing here speaks of a bucket that is not drained.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pushlane_storage.bucket import Bucket, BucketKey, MarkSummary, ShardKey
from pushlane_storage.dropping import droppable
from pushlane_storage.queue import DAY_MS, QueueConfig

GROUP_MESSAGES = 500_000
"""Messages that are archived together: one write, one verification, one commit."""
ORPHAN_MS = DAY_MS
"""How old what belongs to no queue has to be. A queue is made before it stores anything, but one
look at the queues and one at the buckets are not the same moment."""


class Queue(NamedTuple):
    tenant: str
    name: str
    id: str
    config: QueueConfig


class Found(NamedTuple):
    """A bucket, and whose it is."""

    shard: ShardKey
    bucket: Bucket

    @property
    def place(self) -> tuple[str, int, int, int, int]:
        return (*self.shard, *self.bucket.key)


class Plan(msgspec.Struct):
    archive: list[Found] = []
    """Drained, and of queues whose messages are archived. By queue and time."""
    drop: list[Found] = []
    """Drained, nobody needs their marks, and there is nothing to archive."""
    waiting: dict[str, list[Found]] = {}
    """By what they wait for: drained, but dedup marks are needed; or past their retention."""
    orphans: dict[str, list[Found]] = {}
    """By queue id: of queues that are not there."""


MARKS = "its dedup window is not over"
OWNER = "it is past its retention, and nobody has opened its queue since"
NO_ARCHIVE = "its queue asks for an archive, and none was given"


def make_plan(
    queues: Mapping[str, Queue], found: Iterable[Found], now: int, *, can_archive: bool
) -> Plan:
    """What is to be done at `now`, in Unix milliseconds."""
    plan = Plan()
    for one in sorted(found, key=_age):
        queue = queues.get(one.shard.queue_id)
        if queue is None:
            if one.bucket.key.start + ORPHAN_MS < now:
                plan.orphans.setdefault(one.shard.queue_id, []).append(one)
        elif not one.bucket.drained:
            if past_retention(one.bucket, queue.config, now):
                plan.waiting.setdefault(OWNER, []).append(one)
        elif queue.config.archive == "none":
            _drop(plan, one, queue.config, now)
        elif can_archive:
            plan.archive.append(one)
        else:
            plan.waiting.setdefault(NO_ARCHIVE, []).append(one)
    return plan


def _drop(plan: Plan, one: Found, config: QueueConfig, now: int) -> None:
    if droppable(one.bucket, config, now):
        plan.drop.append(one)
    else:
        plan.waiting.setdefault(MARKS, []).append(one)


def past_retention(bucket: Bucket, config: QueueConfig, now: int) -> bool:
    """Of one that is not closed only the beginning is known: its owner knows better."""
    newest = bucket.last_at if bucket.closed else bucket.key.start
    return newest + config.retention_ms < now


def groups(found: Sequence[Found], most: int = GROUP_MESSAGES) -> Iterator[list[Found]]:
    """Neighbours, so many messages together; one bucket at least."""
    group: list[Found] = []
    count = 0
    for one in found:
        if group and count + one.bucket.count > most:
            yield group
            group, count = [], 0
        group.append(one)
        count += one.bucket.count
    if group:
        yield group


def found_of(row: Mapping[str, Any]) -> Found:
    """A bucket of the frame `BUCKETS`. Of its producers it is only known whether there are any."""
    marks = MarkSummary(row["ids"], row["transfers"], None if row["numbered"] else {})
    key = BucketKey(row["lane"], row["epoch"], row["start"])
    names = ("first", "closed", "drained", "count", "size", "last_at")
    bucket = Bucket(key, marks=marks, **{name: row[name] for name in names})
    return Found(ShardKey(row["queue_id"], row["shard"]), bucket)


def _age(one: Found) -> tuple[str, int, int]:
    return one.shard.queue_id, one.bucket.key.start, one.shard.shard
