"""Publishing: from a caller's message to its id, over as many connections as it takes.

Messages gather in the outbox of their queue. A flush puts them into frames: as many as the frame,
the server's window and the queue's span of sequence numbers allow. Answers resolve them one by one;
what is throttled or unavailable goes again with the same number, within a bounded time; when the
connection is lost everything unanswered goes again on the next, and the server tells the repeats
from the first by (producer, seq).

A sequence counts one queue's messages: so it has no gaps there, whatever else the client sends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from typing import Any

from pushlane.wire import frames
from pushlane.wire.errors import ConnectionLost, Internal, PushlaneError, Unavailable, error_for
from pushlane.wire.limits import DEFAULTS as DEFAULT_LIMITS
from pushlane.wire.limits import Limits

from .effects import AnyEffect, Reject, Resolve
from .link import backoff_ms
from .outbox import Outbox
from .publication import FRAME_OVERHEAD, Publication, Published, check_message
from .requests import PublishRequest, Requests
from .settings import Settings

RETRIED = frozenset({"throttled", "unavailable", "internal"})
"""Repeated without asking. Not so a full queue: how long to wait there is the caller's business."""
_ADMITTED = 64
"""Callers let in at once who have not brought their message yet: each may bring a big one."""
_EXPIRY_MS = 1_000


class Producer:
    """All outboxes of a client."""

    def __init__(
        self, settings: Settings, effects: list[AnyEffect], random: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._effects = effects
        self._random = random
        self.limits: Limits = DEFAULT_LIMITS
        self.outboxes: dict[str, Outbox] = {}
        self._active: dict[str, Outbox] = {}
        """Those with something to send, the one that waited longest first."""
        self._first_seq = 1
        self.waiting = 0
        self.waiting_bytes = 0
        self.inflight_bytes = 0
        self._entrants: deque[Any] = deque()
        self._admitted: set[Any] = set()
        """Tickets of those who may publish, and have not yet."""
        self._expire_at: float | None = None

    # Coming in

    def has_room(self) -> bool:
        """Whether a message may come in at once; else wait with `enter`."""
        return not self._entrants and self._is_open()

    def _is_open(self) -> bool:
        settings = self._settings
        return (
            self.waiting + len(self._admitted) < settings.waiting_messages
            and self.waiting_bytes < settings.waiting_bytes
        )

    def enter(self, ticket: Any) -> None:
        """Queue up for room: the ticket resolves when it is this caller's turn to publish."""
        self._entrants.append(ticket)
        self.admit()

    def entered(self, ticket: Any) -> None:
        """One who was admitted publishes now."""
        self._admitted.discard(ticket)

    def leave(self, ticket: Any) -> None:
        """One who queued up is gone, admitted or not."""
        self._admitted.discard(ticket)
        with suppress(ValueError):
            self._entrants.remove(ticket)
        self.admit()

    def admit(self) -> None:
        """Let in whoever there is room for."""
        while self._entrants and len(self._admitted) < _ADMITTED and self._is_open():
            ticket = self._entrants.popleft()
            self._admitted.add(ticket)
            self._effects.append(Resolve(ticket))

    def publish(self, queue: str, message: frames.PublishMessage, ticket: Any, now: float) -> None:
        """Take a message in; raises BadRequest or TooLarge and takes nothing then."""
        cost = check_message(queue, message, self.limits)
        outbox = self.outboxes.get(queue)
        if outbox is None:
            outbox = self._open(queue)
        outbox.waiting.append(Publication(message, cost, ticket, now))
        self.waiting += 1
        self.waiting_bytes += cost
        self._active[queue] = outbox
        if self._expire_at is None:
            self._expire_at = now + _EXPIRY_MS

    def withdraw(self, queue: str, ticket: Any) -> bool:
        """The caller no longer waits: a message that was never sent is forgotten."""
        outbox = self.outboxes.get(queue)
        if outbox is None:  # the client closed meanwhile
            return False
        for publication in outbox.waiting:
            if publication.ticket is ticket:
                outbox.waiting.remove(publication)
                self._unwait(publication)
                self.admit()
                return True
        return False

    def withdraw_all(self, queue: str, tickets: Set[Any]) -> None:
        """Callers no longer wait: those of their messages that were never sent are forgotten."""
        outbox = self.outboxes.get(queue)
        if outbox is None:
            return
        waiting = outbox.waiting
        outbox.waiting = deque(one for one in waiting if one.ticket not in tickets)
        for publication in waiting:
            if publication.ticket in tickets:
                self._unwait(publication)
        self.admit()

    def _open(self, queue: str) -> Outbox:
        if len(self.outboxes) >= self._settings.producer_queues:
            for name, outbox in list(self.outboxes.items()):
                if outbox.is_idle:
                    del self.outboxes[name]
                    self._active.pop(name, None)
                    self._first_seq = max(self._first_seq, outbox.next_seq)
        outbox = self.outboxes[queue] = Outbox(queue, self._first_seq)
        return outbox

    def _unwait(self, publication: Publication) -> None:
        self.waiting -= 1
        self.waiting_bytes -= publication.cost

    # Going out

    def outgoing(self, requests: Requests, now: float) -> Iterator[frames.Publish]:
        """Frames for everything that may be sent now."""
        most = max(1, self.limits.unanswered - self._settings.settle_reserve)
        for queue, outbox in list(self._active.items()):
            while outbox.blocked_until <= now and len(requests) < most:
                frame = self._frame(outbox, requests)
                if frame is None:
                    break
                yield frame
            del self._active[queue]
            if outbox.has_more:
                self._active[queue] = outbox
        self.admit()

    def _frame(self, outbox: Outbox, requests: Requests) -> frames.Publish | None:
        limits = self.limits
        room = limits.frame_bytes - FRAME_OVERHEAD
        if self.inflight_bytes:
            room = min(room, limits.inflight_bytes - self.inflight_bytes)
        batch, cost, fresh = outbox.take(limits.batch, room, self._settings.producer_window)
        if not batch:
            return None
        if fresh:
            self.waiting -= fresh
            self.waiting_bytes -= sum(publication.cost for publication in batch[-fresh:])
        self.inflight_bytes += cost
        id = requests.add(PublishRequest(outbox, batch, cost))
        return frames.Publish(id, outbox.queue, [publication.message for publication in batch])

    # Answers

    def answered(self, request: PublishRequest, answer: frames.Published, now: float) -> None:
        """A frame of ours was stored, all or in part."""
        self.inflight_bytes -= request.cost
        publications = request.publications
        if len(answer.ids) != len(publications):
            fault = Internal(f"{len(answer.ids)} ids for {len(publications)} messages")
            self._refused(request.outbox, publications, fault, now)
            return
        duplicates = set(answer.duplicates)
        failed = {failure.index: failure for failure in answer.failed}
        finish, effects = request.outbox.finish, self._effects
        for index, (publication, id) in enumerate(zip(publications, answer.ids, strict=True)):
            if publication.is_over:
                continue
            if id is None and index not in duplicates:
                failure = failed.get(index)
                error = (
                    error_for(failure.code, failure.message, failure.retry_ms)
                    if failure is not None
                    else Internal("neither an id nor an error")
                )
                self._refused(request.outbox, [publication], error, now)
                continue
            finish(publication)
            is_duplicate = id is None or (
                index in duplicates
                and publication.message.dedup is not None
                and not publication.repeated
            )
            effects.append(Resolve(publication.ticket, Published(id, is_duplicate)))

    def refused(self, request: PublishRequest, error: PushlaneError, now: float) -> None:
        """A whole frame of ours was refused."""
        self.inflight_bytes -= request.cost
        self._refused(request.outbox, request.publications, error, now)

    def _refused(
        self, outbox: Outbox, publications: list[Publication], error: PushlaneError, now: float
    ) -> None:
        again = []
        for publication in publications:
            if publication.is_over:
                continue
            at = self._retry_at(publication, error, now)
            if at is None:
                outbox.finish(publication)
                self._effects.append(Reject(publication.ticket, error))
            else:
                again.append(publication)
                outbox.blocked_until = max(outbox.blocked_until, at)
        if again:
            outbox.repeat(again)
            self._active[outbox.queue] = outbox

    def _retry_at(self, publication: Publication, error: PushlaneError, now: float) -> float | None:
        """When to send it again; None when its time is up or it makes no sense."""
        settings = self._settings
        if error.info.code not in RETRIED:
            return None
        if publication.failing_since is None:
            publication.failing_since = now
        wait: float | None = error.retry_ms
        if wait is None:
            wait = backoff_ms(
                settings.retry_base_ms, settings.retry_max_ms, publication.failures, self._random()
            )
        publication.failures += 1
        at = now + wait
        return at if at <= publication.failing_since + settings.retry_ms else None

    # Connections

    def disconnected(self) -> None:
        """Everything unanswered goes again, before everything else."""
        self.inflight_bytes = 0
        for queue, outbox in self.outboxes.items():
            outbox.blocked_until = 0.0
            if outbox.unanswered:
                outbox.repeat_all()
                self._active[queue] = outbox

    def set_limits(self, limits: Limits) -> None:
        """Another server may have others: what waits must not spoil its neighbours' frames."""
        if limits == self.limits:
            return
        self.limits = limits
        for outbox in self.outboxes.values():
            for publication in list(outbox.waiting):
                try:
                    check_message(outbox.queue, publication.message, limits)
                except PushlaneError as error:
                    outbox.waiting.remove(publication)
                    self._unwait(publication)
                    self._effects.append(Reject(publication.ticket, error))

    # Time

    def wake_at(self) -> float | None:
        """When a block ends or a message may be over its time."""
        blocks = [box.blocked_until for box in self._active.values() if box.blocked_until]
        if self._expire_at is not None:
            blocks.append(self._expire_at)
        return min(blocks, default=None)

    def tick(self, now: float) -> None:
        """End blocks, and fail what waited too long."""
        for outbox in self._active.values():
            if outbox.blocked_until <= now:
                outbox.blocked_until = 0.0
        if self._expire_at is None or now < self._expire_at:
            return
        self._expire_at = None
        for outbox in self.outboxes.values():
            self._expire(outbox, now - self._settings.publish_ms)
            if not outbox.is_idle:
                self._expire_at = now + _EXPIRY_MS
        self.admit()

    def _expire(self, outbox: Outbox, called_before: float) -> None:
        within = f"within {self._settings.publish_ms} ms"
        for publication in list(outbox.unanswered.values()):
            if publication.called_at > called_before:
                break
            outbox.finish(publication)
            self._effects.append(Reject(publication.ticket, ConnectionLost(f"no answer {within}")))
        while outbox.waiting and outbox.waiting[0].called_at <= called_before:
            publication = outbox.waiting.popleft()
            self._unwait(publication)
            self._effects.append(Reject(publication.ticket, Unavailable(f"not sent {within}")))

    # The end

    @property
    def is_idle(self) -> bool:
        """Nothing of anybody is under way."""
        return not self._entrants and all(outbox.is_idle for outbox in self.outboxes.values())

    def fail_all(self, error: PushlaneError) -> None:
        """No connection will come any more."""
        for outbox in self.outboxes.values():
            for publication in (*outbox.unanswered.values(), *outbox.waiting):
                publication.is_over = True
                self._effects.append(Reject(publication.ticket, error))
        self._effects.extend(Reject(ticket, error) for ticket in self._entrants)
        self._entrants.clear()
        self._admitted.clear()
        self.outboxes.clear()
        self._active.clear()
        self.waiting = self.waiting_bytes = self.inflight_bytes = 0
        self._expire_at = None
