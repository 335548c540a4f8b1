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
from pushlane_dispatcher.cluster.remote.shard import RemoteShard, Sent
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.queues.queues import Name
from pushlane_dispatcher.shard.port import ShardPort
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message, dedup_id, is_transfer
from pushlane_storage.queue import QueueRow

UNKNOWN = "the server of this queue went away: the message may be stored or not"


NOWHERE = "no server of this queue can be reached"

Lines = dict[ShardKey, list[Sent]]
"""What waits for one queue, by shard."""


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
        self._queues: dict[Name, Lines] = {}
        self._driven: set[Name] = set()
        self._bytes = 0
        self.repeated = 0

    def add(self, shard: RemoteShard, sent: list[Sent]) -> None:
        row = shard.row
        place = row.tenant, row.name
        for one in sent:
            if not self._may_repeat(one, row):
                _answer(one, _error(one, NOWHERE))
                continue
            self._bytes += one.size
            self._queues.setdefault(place, {}).setdefault(shard.key, []).append(one)
        if place in self._queues and place not in self._driven:
            self._driven.add(place)
            self._start_soon(self._drive, place)

    def _may_repeat(self, sent: Sent, row: QueueRow) -> bool:
        """And until when: once that is past, nobody might know it again."""
        if self._bytes + sent.size > self._settings.repeat_bytes:
            return False
        wait_ms, wall = self._settings.publish_ms, self._wall()
        if not sent.unsent:
            for message in sent.messages:
                if message.producer is None and not is_transfer(message):
                    if dedup_id(message) is None:
                        return False
                    age = wall - message.published_at
                    wait_ms = min(wait_ms, row.config.dedup_window_ms // 2 - age)
        sent.until = min(sent.until, trio.current_time() + wait_ms / 1000)
        return wait_ms > 0

    async def _drive(self, place: Name) -> None:
        """A task: until nothing waits for this queue any more."""
        try:
            while place in self._queues:
                error = NOWHERE
                try:
                    with trio.move_on_at(self._first_end(place)):
                        await self._open(*place)
                except NotFound as fault:
                    self._end(place, fault)
                except PushlaneError as fault:
                    error = fault.message
                self._expire(place, error)
                await trio.sleep(self._settings.reroute_ms / 1000)
        finally:
            self._driven.discard(place)

    def _first_end(self, place: Name) -> float:
        return min(sent.until for line in self._queues[place].values() for sent in line)

    def flush(self, queue: OpenQueue) -> None:
        """The queue is open: what waits for it goes first."""
        place = queue.row.tenant, queue.row.name
        self._expire(place, NOWHERE)
        left: Lines = {}
        for key, line in self._queues.pop(place, {}).items():
            if key.queue_id != queue.row.id:
                for sent in line:
                    self._bytes -= sent.size
                    _answer(sent, NotFound(f"queue {queue.row.name} was deleted"))
                continue
            for number, sent in enumerate(line):
                try:
                    self._publish(queue.shards[key.shard], sent)
                except PushlaneError:  # it has stopped again
                    left[key] = line[number:]
                    break
                self._bytes -= sent.size
        if left:
            self._queues[place] = left

    def _publish(self, shard: ShardPort, sent: Sent) -> None:
        if isinstance(shard, RemoteShard):
            shard.repeat(sent)
        else:
            shard.publish_soon(sent.messages, sent.answer, sent.lanes)
        self.repeated += len(sent.messages)

    def _expire(self, place: Name, error: str) -> None:
        now = trio.current_time()
        lines = self._queues.get(place, {})
        for key, line in list(lines.items()):
            late = [sent for sent in line if sent.until <= now]
            lines[key] = [sent for sent in line if sent.until > now]
            if not lines[key]:
                del lines[key]
            for sent in late:
                self._bytes -= sent.size
                _answer(sent, _error(sent, error))
        if not lines:
            self._queues.pop(place, None)

    def _end(self, place: Name, error: NotFound) -> None:
        for line in self._queues.pop(place, {}).values():
            for sent in line:
                self._bytes -= sent.size
                _answer(sent, error if sent.unsent else _error(sent, UNKNOWN))


def _error(sent: Sent, why: str) -> Unavailable:
    """Why it is not repeated any more."""
    return Unsent(why, retry_ms=100) if sent.unsent else Unavailable(UNKNOWN, retry_ms=100)


def _answer(sent: Sent, error: PushlaneError) -> None:
    messages: list[Message] = sent.messages
    sent.answer(PublishTicket([-1] * len(messages), sent.lanes, None), error)
