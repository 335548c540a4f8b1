"""What the job asks of the server that owns a queue: to see to retention, and to drop buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from pushlane_spark.retaining.plan import Found, Queue
from pushlane_spark.server import Server

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
