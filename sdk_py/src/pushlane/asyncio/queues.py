"""`Client.queues`: making, changing and looking at queues, over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pushlane.core import queues
from pushlane.core.queues import Call


class Queues:
    """The queues of the server.

        await client.queues.create("orders", max_attempts=3)
        (await client.queues.stats("orders"))["ready"]

    Answers are the HTTP API's objects, errors the same typed ones as everywhere.
    """

    def __init__(self, request: Callable[[Call], Awaitable[Any]]) -> None:
        self._request = request

    async def create(self, name: str, **config: Any) -> dict[str, Any]:
        """Make a queue; what is not given gets its default.

        One that is there is never changed: it is answered when all that is given is the same, and
        raises Conflict with what differs otherwise.
        """
        return await self._object(queues.create(name, config))

    async def ensure(self, name: str, **config: Any) -> dict[str, Any]:
        """Make a queue if there is none; one that is there is left alone, whatever it is like."""
        return await self._object(queues.create(name, config, ensure=True))

    async def get(self, name: str) -> dict[str, Any]:
        """A queue's configuration; raises NotFound."""
        return await self._object(queues.get(name))

    async def update(self, name: str, **changes: Any) -> dict[str, Any]:
        """Change some of a queue's configuration; the rest stays. None restores a default."""
        return await self._object(queues.update(name, changes))

    async def replace(self, name: str, **config: Any) -> dict[str, Any]:
        """Replace a queue's whole configuration, or make it: what is not given gets its default.

        But for `paused`, which stays as it is.
        """
        return await self._object(queues.replace(name, config))

    async def delete(self, name: str) -> None:
        """Delete a queue with all its messages."""
        await self._request(queues.delete(name))

    async def list(
        self, *, limit: int | None = None, after: str | None = None, stats: bool = False
    ) -> dict[str, Any]:
        """A page of queues in order of name, those behind `after`; with `stats` how each is doing:
        `depth`, `in_flight`, `oldest_at`, `consumers`, as of `as_of`."""
        return await self._object(queues.list_all(limit, after, stats))

    async def stats(self, name: str) -> dict[str, Any]:
        """How many messages are ready, leased, delayed, …"""
        return await self._object(queues.stats(name))

    async def peek(
        self, name: str, *, limit: int | None = None, after: str | None = None
    ) -> dict[str, Any]:
        """Look at the next messages without taking them.

        The answer's `next`, if there is one, is the `after` of the next page.
        """
        return await self._object(queues.peek(name, limit, after))

    async def purge(self, name: str) -> dict[str, Any]:
        """Drop all messages."""
        return await self._object(queues.purge(name))

    async def pause(self, name: str) -> dict[str, Any]:
        """Deliver nothing until `resume`."""
        return await self._object(queues.pause(name))

    async def resume(self, name: str) -> dict[str, Any]:
        """Deliver again."""
        return await self._object(queues.resume(name))

    async def redrive(self, name: str, *, max: int | None = None, **options: Any) -> dict[str, Any]:
        """Send a dead-letter queue's messages back to where they came from.

        All that are there now, or at most `max`. `cause`, `queue`, `key`, `from_at` and `until_at`
        (when they died, in Unix milliseconds) choose some of them; `rate` limits how many are sent
        per second, `to` sends them to another queue, and with `dry_run=True` they are only counted.
        How many there were is `redriven` of the answer.
        """
        plan = queues.Redrive(name, max, options)
        while (call := plan.next()) is not None:
            plan.answered(await self._object(call))
        return {"redriven": plan.redriven}

    async def explain(self, name: str, id: str) -> dict[str, Any]:
        """What state a message is in, since when, and why."""
        return await self._object(queues.explain(name, id))

    async def _object(self, call: Call) -> dict[str, Any]:
        value = await self._request(call)
        return value if isinstance(value, dict) else {}
