"""A session over HTTP: the core's frames in, requests out; answers in, frames for the core out.

The core speaks frames as over a WebSocket. What a session is on the server's side there is here:

    hello          GET /v1/limits: whether the server is there and takes the token; welcome
    publish        POST …/messages; the numbers of the frames become dedup ids       (lane.py)
    ack nack extend  POST …/ack and so on, gathered                                  (lane.py)
    subscribe      POST …/receive, again and again while messages are wanted         (polled.py)
    unsubscribe    cancels the receive that waits: the server takes its messages back

Receipts of HTTP belong to nobody's session and outlive connections, so every reconnect is a
resumption; what was lost meanwhile shows when leases are extended. A request whose connection
breaks breaks the link, and the core comes back with its backoff and repeats what has no answer.

A shell calls `flush`, carries out `asks` and `drops` and hands `frames` to the core, each of which
it clears; when there is a `fault` the link is lost. It reports `answered` and `failed`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from pushlane.wire.codec import Codec
from pushlane.wire.errors import ConnectionLost, PushlaneError, Unavailable
from pushlane.wire.frames import (
    Ack,
    ClientFrame,
    Credit,
    Done,
    Extend,
    Hello,
    Nack,
    Publish,
    ServerFrame,
    Start,
    Subscribe,
    Unsubscribe,
    Welcome,
    error_frame,
)
from pushlane.wire.limits import DEFAULTS as DEFAULT_LIMITS
from pushlane.wire.limits import Limits, limits_from_wire

from .answer import Answer
from .lane import PublishLane, SettleLane
from .polled import Polled
from .queues import LIMITS, Call
from .settings import Settings

_SESSION = "poll"
_UNAUTHORIZED = 401


class _Greeting(Struct):
    limits: dict[str, int]


class Ask(Struct, frozen=True):
    """A request to make."""

    number: int
    call: Call
    token: str | None
    timeout_ms: int


_Lane: TypeAlias = PublishLane | SettleLane
L = TypeVar("L", PublishLane, SettleLane)
_Asker: TypeAlias = _Lane | Polled | Hello


class Poll:
    """The session of one client, over all its links."""

    def __init__(
        self,
        codec: Codec,
        settings: Settings,
        random: Callable[[], float],
        room: Callable[[int], int | None],
    ) -> None:
        self._codec = codec
        self._settings = settings
        self._random = random
        self._room = room
        """How many messages of a sub may come now; None when the client has forgotten it."""
        self.asks: list[Ask] = []
        self.drops: list[int] = []
        """Requests that are no longer wanted: cut their connections."""
        self.frames: list[bytes] = []
        self.fault: PushlaneError | None = None
        self._token: str | None = None
        self._producer = ""
        self._limits: Limits = DEFAULT_LIMITS
        self._asked: dict[int, _Asker] = {}
        self._busy = 0
        """How many of those are no receives."""
        self._last_number = 0
        self._last_sub = 0
        self._subs: dict[int, Polled] = {}
        self._publishes: dict[str, PublishLane] = {}
        self._settles: dict[str, SettleLane] = {}
        self.is_open = False
        """Whether the server is there and accepts us."""
        self._is_resumed = False
        self.is_leaving = False
        """The client ended it."""

    # From the core

    def send(self, data: bytes) -> None:
        """A frame of the client."""
        frame: ClientFrame = self._codec.decode_client(data)
        match frame:
            case Hello():
                self._hello(frame)
            case Publish():
                lane = self._publishes.setdefault(frame.to, PublishLane(frame.to, self._producer))
                lane.waiting.append(frame)
            case Ack() | Nack() | Extend():
                self._settle(frame)
            case Subscribe():
                self._last_sub += 1
                sub = Polled(frame, self._last_sub, self._settings, self._random)
                self._subs[sub.number] = sub
            case Unsubscribe():
                self._unsubscribe(frame)
            case Start() | Credit():
                pass  # leases run from the delivery on, and `room` knows the credit

    def _hello(self, frame: Hello) -> None:
        self.reset()
        self._is_resumed = frame.resume is not None and frame.resume.session == _SESSION
        if not self._is_resumed:
            self._subs.clear()
        self._token = frame.token
        self._producer = frame.producer or ""
        self._ask(frame, LIMITS, self._settings.http_ms)

    def _settle(self, frame: Ack | Nack | Extend) -> None:
        sub = self._subs.get(frame.sub)
        if sub is not None:
            lane = self._settles.setdefault(sub.queue, SettleLane(sub.queue))
            lane.waiting.append(frame)
        elif frame.id is not None:
            self._say(Done(frame.id, lease_lost=frame.receipts))

    def _unsubscribe(self, frame: Unsubscribe) -> None:
        sub = self._subs.get(frame.sub)
        if sub is not None:
            sub.is_over = True
            self._drop(sub)
        self._say(Done(frame.id))

    def leave(self) -> None:
        """The client ends: what it said last is still to be sent, but nothing more to come."""
        self.is_leaving = True
        for sub in self._subs.values():
            self._drop(sub)

    # To the server

    def flush(self, now: float) -> None:
        """Make requests of what gathered, as far as it may go out now."""
        if not self.is_open or self.fault is not None:
            return
        self._flush_lanes(self._settles)
        self._flush_lanes(self._publishes)
        if not self.is_leaving:
            for sub in list(self._subs.values()):
                self._flush_sub(sub, now)

    def _flush_lanes(self, lanes: dict[str, L]) -> None:
        for queue, lane in list(lanes.items()):
            if self._busy >= self._settings.poll_requests:
                return
            self._flush_lane(lane)
            if lane.is_idle:
                del lanes[queue]
            elif lane.asked:  # the others first, next time
                lanes[queue] = lanes.pop(queue)

    def _flush_lane(self, lane: _Lane) -> None:
        if lane.asked or not lane.waiting:
            return
        try:
            call = lane.call(self._limits)
        except PushlaneError as error:  # a topic, say: it has no path
            refused, lane.waiting = [*lane.asked, *lane.waiting], deque()
            lane.asked = []
            self._say(*[error_frame(error, id=frame.id) for frame in refused if frame.id])
            return
        self._ask(lane, call, self._settings.http_ms)

    def _flush_sub(self, sub: Polled, now: float) -> None:
        room = self._room(sub.number) if sub.has_begun else 1
        if sub.is_over:
            if room is None or not sub.has_begun:
                del self._subs[sub.number]
        elif room is None or room < 0:
            return  # the client is about to hear of it, or to go
        elif room <= 0 and not sub.is_settling:
            self._drop(sub)
        elif sub.request is None and sub.retry_at <= now:
            try:
                call = sub.call(room, self._limits, now)
            except PushlaneError as error:
                self._say(*sub.refused(error, now))
                return
            sub.request = self._ask(sub, call, sub.timeout_ms)

    def _ask(self, asker: _Asker, call: Call, timeout_ms: int) -> int:
        self._last_number += 1
        self._asked[self._last_number] = asker
        self._busy += not isinstance(asker, Polled)
        self.asks.append(Ask(self._last_number, call, self._token, timeout_ms))
        return self._last_number

    def _drop(self, sub: Polled) -> None:
        if sub.request is not None:
            del self._asked[sub.request]
            self.drops.append(sub.request)
            sub.request = None

    def wake_at(self, now: float) -> float | None:
        """When to flush again at the latest."""
        times = (sub.retry_at for sub in self._subs.values() if not sub.is_over)
        return min((at for at in times if at > now), default=None)

    # From the server

    def answered(self, number: int, answer: Answer, now: float) -> None:
        """A request got its answer."""
        asker = self._forget(number)
        if asker is None or self.fault is not None:
            return
        if isinstance(asker, Hello):
            self._greeted(answer)
        elif answer.status == _UNAUTHORIZED:  # a new link has a new token, or fails for good
            self.fault = ConnectionLost("the token is no longer accepted")
        elif isinstance(asker, Polled):
            self._say(*asker.answered(answer, now))
        else:
            self._say(*asker.answers(answer))

    def _greeted(self, answer: Answer) -> None:
        error = answer.error
        limits: dict[str, int] = {}
        if error is None:
            try:
                limits = msgspec.convert(answer.value, _Greeting).limits
            except msgspec.ValidationError:  # some networks answer all with a page to log in
                error = Unavailable("there is something else than a Pushlane server")
        if error is not None:
            self._say(error_frame(error))
            return
        self.is_open = True
        self._limits = limits_from_wire(limits)
        self._say(
            Welcome(
                _SESSION, node="", server="", resumed=self._is_resumed, now=0, resume_ms=0,
                heartbeat_ms=0, limits=limits,
            )
        )  # fmt: skip

    def failed(self, number: int, error: PushlaneError, now: float) -> None:
        """A request got no answer: its connection could not be had, or broke."""
        asker = self._forget(number)
        if isinstance(asker, Polled) and asker.was_cut(now):
            asker.refused(error, now)
        elif asker is not None:
            self.fault = self.fault or error

    def _forget(self, number: int) -> _Asker | None:
        asker = self._asked.pop(number, None)
        self._busy -= asker is not None and not isinstance(asker, Polled)
        return asker

    def _say(self, *frames: ServerFrame) -> None:
        self.frames += [self._codec.encode(frame) for frame in frames]

    # Links

    @property
    def is_idle(self) -> bool:
        """Nothing is under way, and nothing waits to be."""
        return not (self._asked or self._publishes or self._settles)

    def reset(self) -> None:
        """The link is gone: what has no answer is the core's to repeat."""
        self._asked.clear()
        self._busy = 0
        self._publishes.clear()
        self._settles.clear()
        self.asks.clear()
        self.drops.clear()
        self.frames.clear()
        self.fault = None
        self.is_open = False
        for sub in list(self._subs.values()):
            sub.request = None
            if not sub.has_begun:
                del self._subs[sub.number]
