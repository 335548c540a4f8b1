"""The manager: every other operation of the API, at random."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import trio

from tests.stress.http_client import Gone, Http
from tests.stress.judge import Judge, Message
from tests.stress.load import CONFIGS, JUNK, KEYS, SMALL, SMALL_LIMIT, WORK

STATES = {
    "ready", "reserved", "leased", "delayed", "retrying", "blocked", "leaving", "acked", "dead",
    "expired", "dropped", "purged", "unknown",
}  # fmt: skip
FINE = {200, 201, 404, 409, 429, 503, 507}
FILL, FILLS = 10, 25
"""Messages of one publish, and publishes in a row."""
EARLIEST = 0.9
"""A queue refuses at this share of its limit at the earliest."""


class Manager:
    def __init__(
        self, name: str, port: int, seed: int, judge: Judge, delayed: list[Message]
    ) -> None:
        """`delayed`: messages that may be cancelled."""
        self._name = name
        self._http = Http(port)
        self._rng = Random(f"{seed} manager")
        self._judge = judge
        self._delayed = delayed
        self._filled = 0
        self._paused: set[str] = set()

    async def run(self) -> None:
        acts: list[Callable[[], Awaitable[None]]] = [
            self._look, self._look, self._look, self._pause, self._change, self._redrive,
            self._cancel, self._purge, self._delete, self._fill, self._declare, self._retain,
        ]  # fmt: skip
        async with self._http:
            while True:
                await trio.sleep(self._rng.expovariate(4))
                with suppress(Gone):
                    await self._rng.choice(acts)()

    async def calm(self) -> None:
        """Nothing is paused any more, and limits are wide."""
        async with self._http:
            for name in CONFIGS:
                await self._until_done("POST", f"/v1/queues/{name}/resume", {})

    async def _until_done(self, method: str, path: str, body: Any) -> None:
        while True:
            try:
                if (await self._ask(method, path, body))[0] in (200, 201, 404):
                    return
            except Gone:
                pass
            await trio.sleep(0.2)

    async def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        status, answer = await self._http.ask(method, path, body, headers)
        self._judge.counts["operations"] += 1
        if status not in FINE:
            self._judge.broken("server_error", f"{method} {path}: {status} {answer}")
        return status, answer

    async def _look(self) -> None:
        name = self._rng.choice((WORK, KEYS, JUNK, f"{WORK}.dead"))
        path = self._rng.choice(
            (
                "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/v1/limits",
                "/v1/queues?limit=3", "/v1/queues?stats=true",
                "/v1/usage?by=minute", f"/v1/queues/{name}", f"/v1/queues/{name}/stats",
                f"/v1/queues/{name}/consumers", f"/v1/queues/{name}/peek?limit=5",
                f"/v1/queues/{name}/peek?limit=50",
            )
        )  # fmt: skip
        status, answer = await self._ask("GET", path)
        if status == 200 and "peek" in path and answer["messages"]:
            await self._explain(name, self._rng.choice(answer["messages"])["id"])

    async def _explain(self, name: str, id: str) -> None:
        status, answer = await self._ask("GET", f"/v1/queues/{name}/messages/{id}/explain")
        if status == 200 and answer["state"] not in STATES:
            self._judge.broken("server_error", f"explain of {id}: {answer}")
        await self._ask("GET", f"/v1/queues/{name}/messages/{id}")

    async def _pause(self) -> None:
        name = self._rng.choice((WORK, KEYS, JUNK))
        await self._ask("POST", f"/v1/queues/{name}/pause", {})
        await trio.sleep(self._rng.uniform(0, 0.5))
        await self._until_done("POST", f"/v1/queues/{name}/resume", {})

    async def _change(self) -> None:
        limits = {
            "max_messages": self._rng.choice((20, 300, 2_000)),
            "overflow": self._rng.choice(("reject", "drop_oldest", "dead_letter")),
        }
        await self._ask("PATCH", f"/v1/queues/{JUNK}", limits)
        backoff = self._rng.choice((20, 50))
        await self._ask("PATCH", f"/v1/queues/{WORK}", {"backoff_base_ms": backoff})

    async def _redrive(self) -> None:
        body: dict[str, Any] = {"max": self._rng.choice((1, 10, 1_000))}
        if self._rng.random() < 0.2:
            body["dry_run"] = True
        if self._rng.random() < 0.3:
            body["cause"] = self._rng.choice(("max_attempts", "rejected", "expired"))
        if self._rng.random() < 0.3:
            body |= {"to": WORK, "queue": WORK}
        if self._rng.random() < 0.2:
            body |= {"max": 10, "rate": 50}
        await self._ask("POST", f"/v1/queues/{WORK}.dead/redrive", body)
        await self._ask("POST", f"/v1/queues/{JUNK}.dead/redrive", {"max": 50})

    async def _cancel(self) -> None:
        while self._delayed:
            message = self._delayed.pop()
            if message.id is not None:
                message.cancelled = True  # perhaps it was, even when nobody answers
                await self._ask("DELETE", f"/v1/queues/{WORK}/messages/{message.id}")
                return

    async def _purge(self) -> None:
        await self._ask("POST", f"/v1/queues/{JUNK}/purge", {})
        if self._rng.random() < 0.5:
            await self._ask("POST", f"/v1/queues/{JUNK}.dead/purge", {})

    async def _delete(self) -> None:
        await self._ask("DELETE", f"/v1/queues/{JUNK}?confirm={JUNK}")
        if self._rng.random() < 0.7:  # else a publish makes it
            headers = {"If-None-Match": "*"}
            await self._ask("PUT", f"/v1/queues/{JUNK}", CONFIGS[JUNK], headers)

    async def _declare(self) -> None:
        """Again what is there, or a little different."""
        await self._ask("POST", "/v1/queues", {"name": WORK, **CONFIGS[WORK]})
        status, there = await self._ask("GET", f"/v1/queues/{JUNK}")
        if status == 200:
            config = {**CONFIGS[JUNK], "shards": there["shards"]}  # a publish may have made it
            config["max_messages"] = self._rng.choice((300, 2_000))
            await self._ask("POST", "/v1/queues", {"name": JUNK, **config})
            await self._ask("PUT", f"/v1/queues/{JUNK}", config)

    async def _retain(self) -> None:
        """As the job does that drops what was archived; nothing was."""
        name = self._rng.choice((WORK, KEYS, JUNK))
        status, answer = await self._ask("GET", f"/v1/queues/{name}/peek?limit=1")
        if status == 200 and answer["messages"]:
            queue_id = answer["messages"][0]["id"].partition("-")[0]
            await self._ask("POST", f"/v1/queues/{name}/retention", {"queue_id": queue_id})

    async def _fill(self) -> None:
        """Publish to a queue that nobody reads until it is full, and look when that is."""
        for _ in range(FILLS):
            messages = [self._fresh() for _ in range(FILL)]
            body = {"messages": [{"body": one.uid, "dedup": one.uid} for one in messages]}
            try:
                status, answer = await self._ask("POST", f"/v1/queues/{SMALL}/messages", body)
            except Gone:
                status, answer = 503, {}
            if status not in (200, 507):
                for message in messages:
                    self._judge.unanswered(message)
                return
            failed = {one["index"]: one["code"] for one in answer.get("failed", ())}
            for index, message in enumerate(messages):
                if index in failed:
                    self._judge.refused(message, failed[index])
                else:
                    self._judge.confirmed(message, answer["ids"][index], False)
            if "queue_full" in failed.values():
                await self._check_full()
                return

    def _fresh(self) -> Message:
        self._filled += 1
        message = Message(f"{self._name}-{self._filled}", SMALL)
        self._judge.asked(message)
        return message

    async def _check_full(self) -> None:
        status, stats = await self._ask("GET", f"/v1/queues/{SMALL}/stats")
        if status == 200 and not EARLIEST * SMALL_LIMIT <= stats["stored"] <= SMALL_LIMIT:
            text = f"{SMALL} is full with {stats['stored']} of {SMALL_LIMIT} messages"
            self._judge.broken("limit", text)
