"""Dropping buckets: by the store's own classes, or by the server that has the folder.

Each bucket's row is read again, and judged again, just before it is dropped: what a plan says may
be old, and only `droppable` decides.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import trio

from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.retaining.owner import Owner
from pushlane_spark.retaining.plan import Found, Queue
from pushlane_storage.cassandra.errors import OpenError as CassandraError
from pushlane_storage.dropping import droppable
from pushlane_storage.interface import Store, StoreError
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.sqlite.errors import FolderLocked, OpenError
from pushlane_storage.url import open_store, shown

LOCKED = "a server has the store open: give the job its url"
NOT_DROPPABLE = "it is not drained, or its dedup window is not over"


class Drops(msgspec.Struct):
    dropped: list[Found] = []
    kept: dict[str, int] = {}
    """How many were not dropped, by why."""


class Dropper:
    def __init__(self, url: str, server: Owner | None) -> None:
        self._url = url
        self._server = server
        self._embedded = url.startswith("sqlite:")

    def drop(self, queue: Queue, found: Sequence[Found], now: int) -> Drops:
        """Buckets of one queue, as far as nobody needs them."""
        try:
            return trio.run(self._drop, queue, found, now)
        except FolderLocked:
            if self._server is None:
                return Drops([], {LOCKED: len(found)})
        except (OpenError, CassandraError, StoreError) as error:
            raise StoreUnreadable(f"{shown(self._url)} can't be changed: {error}") from error
        return Drops(*self._server.drop(queue, found))

    async def _drop(self, queue: Queue, found: Sequence[Found], now: int) -> Drops:
        drops = Drops()
        store = await open_store(self._url)
        try:
            for shard in dict.fromkeys(one.shard for one in found):
                there = {bucket.key: bucket for bucket in await store.buckets(shard)}
                for one in found:
                    if one.shard != shard:
                        continue
                    bucket = there.get(one.bucket.key)
                    if bucket is None or droppable(bucket, queue.config, now):
                        await store.drop_bucket(shard, one.bucket.key)
                        drops.dropped.append(one)
                    else:
                        drops.kept[NOT_DROPPABLE] = drops.kept.get(NOT_DROPPABLE, 0) + 1
        finally:
            await store.close()
        return drops

    def remove(self, queue_ids: Sequence[str]) -> bool:
        """Everything that queues which are not there stored. False: it can't be done now."""
        try:
            trio.run(self._remove, queue_ids)
        except FolderLocked:
            return False
        except (OpenError, CassandraError, StoreError) as error:
            raise StoreUnreadable(f"{shown(self._url)} can't be changed: {error}") from error
        return True

    async def _remove(self, queue_ids: Sequence[str]) -> None:
        store: Store = await open_store(self._url)
        try:
            for queue_id in queue_ids:
                # No queue has an id for its name: of this row only the id counts.
                row = QueueRow("default", queue_id, queue_id, QueueConfig(), 1, deleting=True)
                await store.remove_queue(row)
        finally:
            await store.close()
