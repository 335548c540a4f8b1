"""Dropping buckets: by the store's own classes, or by the server that has the folder.

What a plan says may be old: `drop_buckets` reads each row again just before, and decides. The
server that owns a queue is also asked to see to retention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
import trio

from pushlane_spark.errors import StoreUnreadable
from pushlane_spark.retaining.plan import Found, Queue
from pushlane_spark.server import Server
from pushlane_storage.dropping import drop_buckets
from pushlane_storage.errors import FolderLocked, OpenError
from pushlane_storage.interface import StoreError
from pushlane_storage.queue import QueueConfig, QueueRow
from pushlane_storage.url import open_store, shown

MOST = 1_000
"""Buckets that one request names."""


class Owner:
    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` as clients take it; `ServerRefused` when it is none."""
        self._server = Server(url, token)

    def wake(self, queue: Queue) -> None:
        """Have what is past its retention end."""
        self._ask(queue, [])

    def drop(self, queue: Queue, found: Sequence[Found]) -> tuple[list[Found], dict[str, int]]:
        """What was dropped, and how many buckets were kept, by why."""
        dropped: list[Found] = []
        kept: dict[str, int] = {}
        for part in _parts(found):
            by_name = {_name(one): one for one in part}
            answer = self._ask(queue, [dict(name) for name in by_name])
            dropped += [by_name[tuple(name.items())] for name in answer["dropped"]]
            for one in answer["kept"]:
                kept[one["reason"]] = kept.get(one["reason"], 0) + 1
        return dropped, kept

    def _ask(self, queue: Queue, names: list[dict[str, int]]) -> Any:
        path = f"/v1/queues/{quote(queue.name, safe='')}/retention"
        return self._server.ask("POST", path, {"queue_id": queue.id, "drop": names})


def _name(one: Found) -> tuple[tuple[str, int], ...]:
    return (("shard", one.shard.shard), *one.bucket.key._asdict().items())


def _parts(found: Sequence[Found]) -> Iterator[Sequence[Found]]:
    for start in range(0, len(found), MOST):
        yield found[start : start + MOST]


LOCKED = "a server has the store open: give the job its url"


class Drops(msgspec.Struct):
    dropped: list[Found] = []
    kept: dict[str, int] = {}
    """How many were not dropped, by why."""


class Dropper:
    def __init__(self, url: str, server: Owner | None) -> None:
        self._url = url
        self._server = server

    def drop(self, queue: Queue, found: Sequence[Found], now: int) -> Drops:
        """Buckets of one queue, as far as nobody needs them."""
        try:
            return trio.run(self._drop, queue, found, now)
        except FolderLocked:
            if self._server is None:
                return Drops([], {LOCKED: len(found)})
        except (OpenError, StoreError) as error:
            raise StoreUnreadable(f"{shown(self._url)} can't be changed: {error}") from error
        return Drops(*self._server.drop(queue, found))

    async def _drop(self, queue: Queue, found: Sequence[Found], now: int) -> Drops:
        drops = Drops()
        async with open_store(self._url) as store:
            for shard in dict.fromkeys(one.shard for one in found):
                wanted = [one for one in found if one.shard == shard]
                keys = [one.bucket.key for one in wanted]
                kept = await drop_buckets(store, shard, keys, queue.config, now)
                for reason in kept.values():
                    drops.kept[reason] = drops.kept.get(reason, 0) + 1
                drops.dropped += [one for one in wanted if one.bucket.key not in kept]
        return drops

    def remove(self, queue_ids: Sequence[str]) -> bool:
        """Everything that queues which are not there stored. False: it can't be done now."""
        try:
            trio.run(self._remove, queue_ids)
        except FolderLocked:
            return False
        except (OpenError, StoreError) as error:
            raise StoreUnreadable(f"{shown(self._url)} can't be changed: {error}") from error
        return True

    async def _remove(self, queue_ids: Sequence[str]) -> None:
        async with open_store(self._url) as store:
            for queue_id in queue_ids:
                # No queue has an id for its name: of this row only the id counts.
                row = QueueRow("default", queue_id, queue_id, QueueConfig(), 1, deleting=True)
                await store.catalog.remove(row)
