"""Lanes: frames of one kind for one queue, as HTTP requests one after the other.

Requests have connections of their own and may overtake each other; a queue's publishes must not,
nor must a settle overtake another of the same message. So each has a lane, with one request under
way at a time. What gathers behind it leaves together in the next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pushlane.wire import frames
from pushlane.wire.errors import Internal
from pushlane.wire.frames import Ack, Extend, Nack, Publish
from pushlane.wire.limits import Limits
from pushlane.wire.receipts import parse

from .answer import Answer
from .publication import FRAME_OVERHEAD
from .queues import Call, queue_path

SettleFrame: TypeAlias = Ack | Nack | Extend
F = TypeVar("F", bound=Publish | Ack | Nack | Extend)


class _Published(Struct):
    ids: list[str | None]
    duplicates: list[int] = []
    failed: list[frames.Failed] = []


class _AllFailed(Struct):
    """An error's answer may say what became of each message."""

    failed: list[frames.Failed] = []


class _Settled(Struct):
    lease_lost: list[str] = []
    duplicate: list[str] = []


class Lane(ABC, Generic[F]):
    """Frames that wait, and those whose request is under way."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.waiting: deque[F] = deque()
        self.asked: list[F] = []

    @property
    def is_idle(self) -> bool:
        return not (self.waiting or self.asked)

    @abstractmethod
    def call(self, limits: Limits) -> Call:
        """The next request: it takes what goes together from `waiting` to `asked`."""

    @abstractmethod
    def _good(self, answer: Answer, asked: list[F]) -> Iterator[frames.ServerFrame]:
        """The answers to those frames that have an id; raises msgspec.MsgspecError."""

    def answers(self, answer: Answer) -> list[frames.ServerFrame]:
        """What the server says to each frame of the request."""
        asked, self.asked = self.asked, []
        error = answer.error
        try:
            if error is None or self._is_detailed(answer):
                return list(self._good(answer, asked))
        except msgspec.MsgspecError as fault:
            error = Internal(f"the answer makes no sense: {fault}")
        return [frames.error_frame(error, id=frame.id) for frame in asked if frame.id is not None]

    def _is_detailed(self, answer: Answer) -> bool:
        return False


class PublishLane(Lane[Publish]):
    """Publishes. The sequence numbers of frames become dedup ids, where the caller gave none."""

    def __init__(self, queue: str, producer: str) -> None:
        super().__init__(queue)
        self._producer = producer

    def call(self, limits: Limits) -> Call:
        parts: list[bytes] = []
        count = size = 0
        while self.waiting:
            frame = self.waiting[0]
            part = msgspec.json.encode([self._named(m) for m in frame.messages])[1:-1]
            count += len(frame.messages)
            size += len(part) + 1
            is_over = count > limits.batch or size > limits.frame_bytes - FRAME_OVERHEAD
            if is_over and parts:
                break
            parts.append(part)
            self.asked.append(self.waiting.popleft())
        body = b'{"messages":[' + b",".join(parts) + b"]}"
        return Call("POST", queue_path(self.queue, "messages"), body)

    def _named(self, message: frames.PublishMessage) -> frames.PublishMessage:
        dedup = message.dedup if message.seq is None else self._dedup(message, message.seq)
        return replace(message, seq=None, dedup=dedup)

    def _dedup(self, message: frames.PublishMessage, seq: int) -> str:
        return f"{self._producer}:{seq}" if message.dedup is None else message.dedup

    def _is_detailed(self, answer: Answer) -> bool:
        return isinstance(answer.value, dict) and bool(answer.value.get("failed"))

    def _good(self, answer: Answer, asked: list[Publish]) -> Iterator[frames.ServerFrame]:
        total = sum(len(frame.messages) for frame in asked)
        if answer.error is None:
            said = msgspec.json.decode(answer.body, type=_Published)
        else:
            failed = msgspec.json.decode(answer.body, type=_AllFailed).failed
            said = _Published([None] * total, [], failed)
        start = 0
        for frame in asked:
            end = start + len(frame.messages)
            yield frames.Published(
                frame.id, said.ids[start:end],
                [index - start for index in said.duplicates if start <= index < end],
                [replace(f, index=f.index - start) for f in said.failed if start <= f.index < end],
            )  # fmt: skip
            start = end


class SettleLane(Lane[SettleFrame]):
    """Acks, nacks and extensions: those of one kind go together."""

    def call(self, limits: Limits) -> Call:
        first = self.waiting[0]
        kind = _kind(first)
        receipts: list[str] = []
        count = 0
        while self.waiting and _kind(self.waiting[0]) == kind:
            frame = self.waiting[0]
            count += _count(frame.receipts)
            if receipts and count > limits.settle:
                break
            receipts += frame.receipts
            self.asked.append(self.waiting.popleft())
        body = msgspec.json.encode({"receipts": receipts, **_options(first)})
        return Call("POST", queue_path(self.queue, kind[0]), body)

    def _good(self, answer: Answer, asked: list[SettleFrame]) -> Iterator[frames.ServerFrame]:
        """Each gets all that is listed: what is not its own means nothing to it."""
        said = msgspec.json.decode(answer.body, type=_Settled) if answer.body else _Settled()
        for frame in asked:
            if frame.id is not None:
                yield frames.Done(frame.id, said.lease_lost, said.duplicate)


def _options(frame: SettleFrame) -> dict[str, object]:
    match frame:
        case Ack():
            return {}
        case Extend():
            return {"lease_ms": frame.lease_ms}
        case Nack():
            given = {"delay_ms": frame.delay_ms, "error": frame.error, "dead": frame.dead or None}
            return {name: value for name, value in given.items() if value is not None}


def _kind(frame: SettleFrame) -> tuple[str, dict[str, object]]:
    return str(frame.__struct_config__.tag), _options(frame)


def _count(receipts: Iterable[str]) -> int:
    return sum(high - low + 1 for _, low, high in map(parse, receipts))
