"""A pipe: the frames of a session in HTTP requests, where no WebSocket can be had.

At most two requests are under way: one brings what gathered, the other waits for what comes. Either
may be repeated when its connection breaks: the server tells a send that it has by its number, and
keeps an answer until the next receive says that it came. When that doesn't help the link is lost,
and the core connects again and resumes, as with WebSockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from pushlane.wire.errors import ConnectionLost, PushlaneError, Unavailable
from pushlane.wire.limits import Limits

from .link import backoff_ms
from .queues import Answer, Call
from .settings import Settings

PATH = "/v1/pipe"
HEADER = "Pushlane-Pipe"
_MOST_BYTES = 1_000_000
"""Of the frames of one request, unless a single one is larger: many proxies refuse over 1 MiB."""
_OVERHEAD = 1_024
"""More than a request takes besides its frames."""
_PATIENCE_MS = 1_000
"""A receive that waited this long before it broke may have been too silent for a proxy."""
_TRIES = 3
"""Receives in a row that broke sooner before the link is lost."""
_SOON = 0.5
"""The part of its time that a receive without a frame must at least have waited: else somebody in
between cuts it short, and asking at once would be a busy loop."""


class Ask(NamedTuple):
    """A request to make."""

    call: Call
    timeout_ms: int
    is_receive: bool


class Close(Struct):
    """What the server closed with."""

    code: int
    reason: str = ""


class _Opened(Struct):
    pipe: str


class _Received(Struct):
    n: int
    frames: list[Raw]
    close: Close | None = None


class Pipe:
    """One pipe, for one link. Whoever takes `frames` clears them."""

    def __init__(
        self, settings: Settings, random: Callable[[], float], limits: Callable[[], Limits]
    ) -> None:
        self._settings = settings
        self._random = random
        self._limits = limits
        """The server's, which the core hears of in its welcome."""
        self.frames: list[bytes] = []
        self.close: Close | None = None
        self.fault: PushlaneError | None = None
        """Why the link is lost."""
        self.has_left = False
        """The server knows that we went."""
        self._name: str | None = None
        self._outbox: deque[bytes] = deque()
        self._code: int | None = None
        """What to close with."""
        self._is_leaving = False
        """The request under way says so."""
        self._sends = 0
        self._unanswered: bytes | None = None
        self._is_sending = False
        self._is_repeated = False
        self._after = 0
        self._is_receiving = False
        self._asked_at = 0.0
        self._wait_ms = 0
        self._failures = 0
        self._retry_at = 0.0

    @property
    def is_open(self) -> bool:
        return self._name is not None

    @property
    def is_over(self) -> bool:
        """No more requests will come."""
        return self.has_left or self.close is not None or self.fault is not None

    def send(self, data: bytes) -> None:
        """Send a frame; the first opens the pipe."""
        self._outbox.append(data)

    def leave(self, code: int) -> None:
        """Close with this code, after what is to be sent. Nothing that comes matters any more."""
        self._code = code

    # Requests

    def asks(self, now: float) -> list[Ask]:
        """The requests to make now."""
        if self.is_over:
            return []
        found = []
        if not self._is_sending:
            self._unanswered = self._unanswered or self._next()
            if self._unanswered is not None:
                self._is_sending = True
                found.append(self._ask(self._unanswered, self._settings.http_ms))
        is_wanted = self.is_open and self._code is None and not self._is_receiving
        if is_wanted and now >= self._retry_at:
            found.append(self._receive(now))
        return found

    def _next(self) -> bytes | None:
        """What opens, sends or closes, if anything is to be said."""
        if not self._outbox and (self._code is None or not self.is_open):
            return None
        body: dict[str, Any] = {}
        if self.is_open:
            body["pipe"] = self._name
        if self._outbox:
            if self.is_open:
                self._sends += 1
                body["n"] = self._sends
            body["frames"] = [Raw(frame) for frame in self._gather()]
        if self._code is not None and not self._outbox:
            body["close"] = self._code
            self._is_leaving = True
        return msgspec.json.encode(body)

    def _gather(self) -> list[bytes]:
        room = min(_MOST_BYTES, self._limits().frame_bytes - _OVERHEAD)
        batch = [self._outbox.popleft()]
        room -= len(batch[0])
        while self._outbox and len(self._outbox[0]) < room:
            batch.append(self._outbox.popleft())
            room -= len(batch[-1]) + 1
        return batch

    def _receive(self, now: float) -> Ask:
        self._is_receiving = True
        self._asked_at = now
        self._wait_ms = min(self._settings.poll_wait_ms, self._limits().wait_ms)
        body = {"pipe": self._name, "after": self._after, "wait_ms": self._wait_ms}
        timeout_ms = self._settings.http_ms + self._wait_ms
        return self._ask(msgspec.json.encode(body), timeout_ms, is_receive=True)

    def _ask(self, body: bytes, timeout_ms: int, *, is_receive: bool = False) -> Ask:
        # The server lets nobody send much before it knows which pipe it is for.
        headers = () if self._name is None else ((HEADER, self._name),)
        return Ask(Call("POST", PATH, body, headers), timeout_ms, is_receive)

    def wake_at(self, now: float) -> float | None:
        """When to ask again at the latest."""
        return self._retry_at if self._retry_at > now else None

    # Answers

    def answered(self, ask: Ask, answer: Answer, now: float) -> None:
        """A request got its answer."""
        error = answer.error
        if error is not None:
            # Whether we may come at all is decided when a pipe is opened.
            lost = ConnectionLost(f"the pipe is gone: {error.message}", error.retry_ms)
            self.fault = lost if self.is_open else error
            return
        try:
            self._received(answer, now) if ask.is_receive else self._sent(answer)
        except msgspec.MsgspecError:  # some networks answer all with a page to log in
            self.fault = Unavailable("this is not a Pushlane server")

    def _sent(self, answer: Answer) -> None:
        if not self.is_open:
            self._name = msgspec.json.decode(answer.body, type=_Opened).pipe
        self.has_left = self._is_leaving
        self._unanswered = None
        self._is_sending = self._is_repeated = False

    def _received(self, answer: Answer, now: float) -> None:
        said = msgspec.json.decode(answer.body, type=_Received)
        if said.n == self._after + 1:
            self.frames += [bytes(frame) for frame in said.frames]
        elif said.n != self._after:
            self.fault = ConnectionLost(f"answer {said.n} after {self._after}")
        self._after = said.n
        self.close = said.close
        self._is_receiving = False
        if said.frames or now - self._asked_at >= self._wait_ms * _SOON:
            self._failures = 0
        else:
            self._retry_later(now)

    def failed(self, ask: Ask, error: PushlaneError, now: float) -> None:
        """A request got no answer: its connection could not be had, or broke."""
        if not ask.is_receive:
            self._is_sending = False
            if self._is_repeated or not self.is_open:
                self.fault = error
            self._is_repeated = True
            return
        self._is_receiving = False
        if now - self._asked_at >= _PATIENCE_MS:
            self._failures = 0
        elif self._failures + 1 >= _TRIES:
            self.fault = error
        else:
            self._retry_later(now)

    def _retry_later(self, now: float) -> None:
        base, most = self._settings.retry_base_ms, self._settings.retry_max_ms
        self._retry_at = now + backoff_ms(base, most, self._failures, self._random())
        self._failures += 1
