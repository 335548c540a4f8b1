"""What the job asks of a server: to see to retention, and to drop what was archived."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from pushlane_spark.errors import ServerRefused
from pushlane_spark.retaining.plan import Found, Queue

ANSWER_S = 60.0
"""How long a server may take to answer."""
MOST = 1_000
"""Buckets that one request names."""
_SCHEMES = {"ws": "http", "wss": "https", "http": "http", "https": "https"}


class Server:
    def __init__(self, url: str, token: str | None = None) -> None:
        """`url` as clients take it; `ServerRefused` when it is none."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in _SCHEMES or not parts.netloc:
            raise ServerRefused(f"{url!r} is no server's URL: http://HOST:PORT is")
        self._base = f"{_SCHEMES[parts.scheme]}://{parts.netloc}"
        self._token = token

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
        body = json.dumps({"queue_id": queue.id, "drop": names}).encode()
        headers = {"content-type": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        path = f"{self._base}/v1/queues/{quote(queue.name, safe='')}/retention"
        try:
            with urlopen(Request(path, body, headers), timeout=ANSWER_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                raise ServerRefused(f"{queue.name}: {_told(error)}") from error
        except (URLError, OSError, ValueError) as error:
            raise ServerRefused(f"{self._base} does not answer: {error}") from error


def _told(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"the server answered {error.code}"


def _name(one: Found) -> tuple[tuple[str, int], ...]:
    return (("shard", one.shard.shard), *one.bucket.key._asdict().items())


def _parts(found: Sequence[Found]) -> Iterator[Sequence[Found]]:
    for start in range(0, len(found), MOST):
        yield found[start : start + MOST]
