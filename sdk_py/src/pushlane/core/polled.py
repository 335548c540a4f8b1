"""A polled subscription: receives one after the other, for as long as somebody wants messages.

The first receive waits for nothing: its answer says whether the queue may be consumed at all. Later
ones wait on the server. One that fails for now is asked again with backoff; one that is refused
ends the subscription.

With ack "none" messages are settled before they are handed on: each receive is followed by an ack,
and only what that confirms is delivered.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from pushlane.wire import frames
from pushlane.wire.errors import Internal, PushlaneError
from pushlane.wire.limits import Limits

from .answer import Answer
from .backoff import backoff_ms
from .producer import RETRIED
from .queues import Call, queue_path
from .settings import Settings
from .settle import expand

_SOON = 0.5
"""The part of its time that a receive without a message must at least have waited: else somebody
in between cuts it short, and asking at once would be a busy loop."""

_PATIENCE_MS = 1_000
"""No proxy finds a request silent for too long before."""


class _Received(Struct):
    messages: list[frames.DeliverMessage]


class _Settled(Struct):
    lease_lost: list[str] = []


class Polled:
    """One subscription and its request, if one is under way."""

    def __init__(
        self, frame: frames.Subscribe, number: int, settings: Settings, random: Callable[[], float]
    ) -> None:
        self.number = number
        self.queue = frame.from_
        self.id = frame.id
        """Of the subscribe, which the first answer answers."""
        self.has_begun = False
        self.is_over = False
        self.request: int | None = None
        self.retry_at = 0.0
        self._ack = frame.ack
        self._lease_ms = frame.lease_ms
        self._settings = settings
        self._random = random
        self._failures = 0
        self._asked_at = 0.0
        self._wait_ms = 0
        self._unconfirmed: list[frames.DeliverMessage] = []
        """With ack "none": received, and not known to be settled yet."""

    @property
    def is_settling(self) -> bool:
        """Whether the next request, or the one under way, is an ack."""
        return bool(self._unconfirmed)

    @property
    def timeout_ms(self) -> int:
        return self._settings.http_ms + self._wait_ms

    def call(self, room: int, limits: Limits, now: float) -> Call:
        """The next request."""
        self._asked_at = now
        self._wait_ms = self._settings.poll_wait_ms if self.has_begun else 0
        body: dict[str, object]
        if self._unconfirmed:
            self._wait_ms = 0
            body = {"receipts": [message.receipt for message in self._unconfirmed]}
            return Call("POST", queue_path(self.queue, "ack"), body)
        body = {"max": max(1, min(room, limits.batch)), "wait_ms": self._wait_ms}
        if self._lease_ms is not None:
            body["lease_ms"] = self._lease_ms
        return Call("POST", queue_path(self.queue, "receive"), body)

    def answered(self, answer: Answer, now: float) -> list[frames.ServerFrame]:
        """What the client is told of it."""
        self.request = None
        error = answer.error
        try:
            if error is None:
                return self._good(answer, now)
        except msgspec.MsgspecError as fault:
            error = Internal(f"the answer makes no sense: {fault}")
        return self.refused(error, now)

    def _good(self, answer: Answer, now: float) -> list[frames.ServerFrame]:
        if self._unconfirmed:
            lost = msgspec.json.decode(answer.body, type=_Settled).lease_lost
            self._failures = 0
            return self._confirmed(set(expand(lost)))
        messages = msgspec.json.decode(answer.body, type=_Received).messages
        found: list[frames.ServerFrame] = []
        if not self.has_begun:
            self.has_begun = True
            found.append(frames.Subscribed(self.id, self.number))
        if not messages and now - self._asked_at < self._wait_ms * _SOON:
            self._wait(None, now)
            return found
        self._failures = 0
        if self._ack == "none":
            self._unconfirmed = messages
        elif messages:
            found.append(frames.Deliver(self.number, messages))
        return found

    def _confirmed(self, lost: set[str]) -> list[frames.ServerFrame]:
        messages = [message for message in self._unconfirmed if message.receipt not in lost]
        self._unconfirmed = []
        for message in messages:
            message.receipt = message.fence = message.lease_ms = None
        return [frames.Deliver(self.number, messages)] if messages else []

    def refused(self, error: PushlaneError, now: float) -> list[frames.ServerFrame]:
        """Ask again if that makes sense, else it is over."""
        self.request = None
        if self.has_begun and (error.info.retry or error.info.code in RETRIED):
            self._wait(error.retry_ms, now)
            return []
        self.is_over = True
        if self.has_begun:
            return [frames.Ended(self.number, error.code, error.message)]
        return [frames.error_frame(error, id=self.id)]

    def was_cut(self, now: float) -> bool:
        """Whether a lost connection may be a proxy's that found it silent for too long."""
        return self.has_begun and not self._unconfirmed and now - self._asked_at >= _PATIENCE_MS

    def _wait(self, retry_ms: int | None, now: float) -> None:
        settings = self._settings
        wait: float | None = retry_ms
        if wait is None:
            base, most = settings.retry_base_ms, settings.retry_max_ms
            wait = backoff_ms(base, most, self._failures, self._random())
        self._failures += 1
        self.retry_at = now + wait
