"""Repeats: publishes that were under way to a shard when it went away.

They go to its next owner before anything newer does, in their order. What was certainly not taken
can always be repeated, and what has a producer's number too: if it was stored after all, the next
owner knows it. An id of the application is known for a while only, from
the message's first publish on. Of the rest the outcome is
unknown, and its producer is told so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane_dispatcher.cluster.remote import RemoteShard, Sent
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.queues.queues import Name
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message, dedup_id, is_transfer
from pushlane_storage.queue import QueueRow

UNKNOWN = "the server of this queue went away: the message may be stored or not"


class Waiting:
    """What waits for one queue, by shard."""

    def __init__(self, row: QueueRow) -> None:
        self.row = row
        self.lines: dict[ShardKey, list[tuple[Sent, float]]] = {}


class Repeats:
    def __init__(
        self,
        settings: ClusterSettings,
        open_queue: Callable[[str, str], Awaitable[object]],
        start_soon: Callable[..., None],
        wall: Callable[[], int],
    ) -> None:
        """`open_queue` opens a queue, and has it `flush` here before anybody else gets it. `wall`
        is the time by which publishes are stamped."""
        self._settings = settings
        self._open = open_queue
        self._start_soon = start_soon
        self._wall = wall
        self._queues: dict[Name, Waiting] = {}
        self._bytes = 0
        self.repeated = 0

    def add(self, shard: RemoteShard, sent: list[Sent]) -> None:
        row = shard.row
        place = row.tenant, row.name
        kept: list[tuple[Sent, float]] = []
        for one in sent:
            until = self._until(one, row)
            if until is None:
                _answer(one, Unavailable(UNKNOWN, retry_ms=100))
            else:
                kept.append((one, until))
        if not kept:
            return
        waiting = self._queues.get(place)
        if waiting is None:
            waiting = self._queues[place] = Waiting(row)
            self._start_soon(self._drive, place)
        waiting.lines.setdefault(shard.key, []).extend(kept)
        self._bytes += sum(one.size for one, _ in kept)

    def _until(self, sent: Sent, row: QueueRow) -> float | None:
        """How long it may be repeated, in trio's time; None: not at all."""
        if self._bytes + sent.size > self._settings.repeat_bytes:
            return None
        wait_ms, wall = self._settings.publish_ms, self._wall()
        if not sent.unsent:
            for message in sent.messages:
                if message.producer is None and not is_transfer(message):
                    if dedup_id(message) is None:
                        return None
                    age = wall - message.published_at
                    wait_ms = min(wait_ms, row.config.dedup_window_ms // 2 - age)
        if wait_ms <= 0:
            return None
        return trio.current_time() + wait_ms / 1000

    async def _drive(self, place: Name) -> None:
        """A task: until nothing waits for this queue any more."""
        while place in self._queues:
            error: PushlaneError = Unavailable(UNKNOWN, retry_ms=1_000)
            try:
                await self._open(*place)
            except NotFound as fault:
                self._end(place, fault)
                return
            except PushlaneError as fault:
                error = fault
            self._expire(place, error)
            await trio.sleep(self._settings.reroute_ms / 1000)

    def flush(self, queue: OpenQueue) -> None:
        """The queue is open: what waits for it goes first."""
        waiting = self._queues.pop((queue.row.tenant, queue.row.name), None)
        if waiting is None:
            return
        now = trio.current_time()
        for key, line in waiting.lines.items():
            for sent, until in line:
                self._bytes -= sent.size
                if until <= now:
                    _answer(sent, Unavailable(UNKNOWN, retry_ms=100))
                    continue
                if waiting.row.id != queue.row.id:
                    _answer(sent, NotFound(f"queue {queue.row.name} was deleted"))
                    continue
                self.repeated += len(sent.messages)
                try:
                    queue.shards[key.shard].publish_soon(sent.messages, sent.answer, sent.lanes)
                except PushlaneError as error:
                    _answer(sent, error)

    def _expire(self, place: Name, error: PushlaneError) -> None:
        waiting = self._queues.get(place)
        if waiting is None:
            return
        now = trio.current_time()
        for key, line in list(waiting.lines.items()):
            late = [sent for sent, until in line if until <= now]
            waiting.lines[key] = [item for item in line if item[1] > now]
            for sent in late:
                self._bytes -= sent.size
                _answer(sent, error)
        if not any(waiting.lines.values()):
            del self._queues[place]

    def _end(self, place: Name, error: NotFound) -> None:
        for line in self._queues.pop(place).lines.values():
            for sent, _ in line:
                self._bytes -= sent.size
                _answer(sent, error if sent.unsent else Unavailable(UNKNOWN, retry_ms=1_000))


def _answer(sent: Sent, error: PushlaneError) -> None:
    messages: list[Message] = sent.messages
    sent.answer(PublishTicket([-1] * len(messages), sent.lanes, None), error)
