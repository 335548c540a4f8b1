"""What the gateways of this node ask of shards of one other node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from pushlane.wire.errors import PushlaneError, Unavailable
from pushlane_dispatcher.browsing.question import Question, answer_type
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.frames import decode_told, encode
from pushlane_dispatcher.cluster.remote.settles import Settles
from pushlane_dispatcher.cluster.remote.shard import CUT, MOVED, RETRY_MS, RemoteShard, Sent
from pushlane_dispatcher.cluster.remote.sub import RemoteSub, Said
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import Report
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.bucket import ShardKey
from pushlane_storage.queue import QueueRow

A = TypeVar("A")


class Way(Protocol):
    """Where frames leave: a link."""

    def send(self, frame: bytes) -> None: ...

    def soon(self, call: Callable[[], None]) -> None:
        """Call this before the next write: it may send what has gathered by then. Not called where
        the link is over."""
        ...

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        ...

    async def room(self, below: int) -> None:
        """Wait until fewer bytes than this wait, or it is over."""
        ...


Lost = Callable[["RemoteShard", list[Sent]], None]
"""What to do with publishes of a shard that is gone, in their order."""

Got = Callable[[Any], None]
"""Takes the answer of a request: a frame, or the error that came instead."""


class Opening:
    """Somebody waits for a shard."""

    def __init__(self, row: QueueRow, number: int) -> None:
        self.row = row
        self.number = number
        self.told: Waiter[frames.Opened | frames.Moved | frames.Refused] = Waiter()


class Asker:
    """What the gateways of this node ask of shards of one other node, over a pair of links."""

    def __init__(
        self, process: str, data: Way, rest: Way, now: Callable[[], int], wall: Callable[[], int],
        lost: Lost, settings: ClusterSettings,
    ) -> None:  # fmt: skip
        self.process = process
        self.data = data
        self._rest = rest
        self.now = now
        self.wall = wall
        self.settings = settings
        self.up = True
        self._lost = lost
        self._next = 1
        self._opening: dict[int, Opening] = {}
        self._shards: dict[int, RemoteShard] = {}
        self._requests: dict[int, Got] = {}
        self._subs: dict[int, RemoteSub] = {}
        self.settles = Settles(rest.soon, self.request, self._send)
        self._take: dict[type[Any], Callable[[Any], None]] = {
            frames.Opened: self._opened,
            frames.Moved: self._opened,
            frames.Refused: self._opened,
            frames.Gone: self._gone,
            frames.Failed: self._failed,
            **dict.fromkeys(
                (
                    frames.Published, frames.Attached, frames.Resumed, frames.Settled,
                    frames.Answer, frames.Credited, frames.Yielded, frames.Taken,
                ),
                self._answered,
            ),
            **dict.fromkeys(
                (frames.Deliver, frames.Lost, frames.Hungry, frames.Holds, frames.Ended),
                self._said,
            ),
        }  # fmt: skip

    # Opening

    async def open(
        self, row: QueueRow, number: int, hops: int, claims: Claims
    ) -> RemoteShard | frames.Moved:
        """A shard there, or where else to ask. `Unsent`: the links broke."""
        if not self.up:
            raise Unsent(CUT, retry_ms=RETRY_MS)
        ref = self.number()
        opening = self._opening[ref] = Opening(row, number)
        self.say(frames.Open(ref, row.tenant, row.name, row.id, number, hops, claims))
        try:
            told = await opening.told.wait()
        finally:
            self._opening.pop(ref, None)
        if isinstance(told, frames.Refused):
            raise told.fault.error()
        if isinstance(told, frames.Moved):
            return told
        shard = self._shards.get(ref)
        if shard is None:  # it has stopped again
            raise Unsent(MOVED, retry_ms=RETRY_MS)
        return shard

    def _opened(self, told: frames.Opened | frames.Moved | frames.Refused) -> None:
        opening = self._opening.pop(told.ref, None)
        if opening is None:  # nobody waits any more
            if isinstance(told, frames.Opened):
                self.say(frames.Leave(told.ref))
            return
        if isinstance(told, frames.Opened):
            self._shards[told.ref] = RemoteShard(self, told.ref, opening.row, opening.number)
        opening.told(told)

    def leave(self, shard: RemoteShard) -> None:
        """Nobody has used it, and nobody will."""
        if self._shards.pop(shard.ref, None) is not None:
            shard.running = False
            self.say(frames.Leave(shard.ref))

    # Requests

    def say(self, frame: frames.Frame) -> None:
        """On the lane "rest", behind all that was said before."""
        self.settles.flush()
        self._send(frame)

    def _send(self, frame: frames.Frame) -> None:
        self._rest.send(encode(frame))

    def number(self) -> int:
        self._next += 1
        return self._next

    def request(self, got: Got) -> int:
        id = self.number()
        self.expect(id, got)
        return id

    def expect(self, id: int, got: Got) -> None:
        """An answer with this id."""
        self._requests[id] = got

    def waive(self, id: int) -> None:
        """The answer, if one still comes, is for nobody."""
        self._requests.pop(id, None)

    def _answered(self, told: Any) -> None:
        got = self._requests.pop(told.id, None)
        if got is not None:
            got(told)

    def _failed(self, told: frames.Failed) -> None:
        got = self._requests.pop(told.id, None)
        if got is not None:
            got(told.fault.error())

    async def look(self, key: ShardKey, question: Question[A]) -> A:
        """Of a shard that nobody here has opened. `Unsent`: it is not open there."""
        if not self.up:
            raise Unsent(CUT, retry_ms=RETRY_MS)
        packed = msgspec.Raw(encode(question))
        return await self.answer(question, lambda id: frames.Look(id, *key, packed))

    async def answer(self, question: Question[A], frame: Callable[[int], frames.Frame]) -> A:
        told = await self._answer(frame)
        found: A = msgspec.msgpack.decode(told.value, type=answer_type(type(question)))
        return found

    async def report(self) -> Report:
        """How the other node does."""
        told = await self._answer(frames.Tell)
        return msgspec.msgpack.decode(told.value, type=Report)

    async def _answer(self, frame: Callable[[int], frames.Frame]) -> frames.Answer:
        waiter: Waiter[Any] = Waiter()

        def got(told: frames.Answer | PushlaneError) -> None:
            if isinstance(told, PushlaneError):
                waiter.fail(told)
            else:
                waiter(told)

        self.say(frame(self.request(got)))
        told: frames.Answer = await waiter.wait()
        return told

    async def yield_session(self, session: str, term: int) -> bytes | None:
        """Have that node's gateway leave a session to us. The record of what it had."""
        waiter: Waiter[bytes | None] = Waiter()

        def got(told: frames.Yielded | PushlaneError) -> None:
            waiter(None if isinstance(told, PushlaneError) else told.record)

        self.say(frames.Yield(self.request(got), session, term))
        return await waiter.wait()

    async def hand_over(self, key: ShardKey, epoch: int, pieces: Sequence[bytes]) -> bool:
        """Give that node the snapshot of a shard. Whether it has all of it."""
        waiter: Waiter[bool] = Waiter()

        def got(told: frames.Taken | PushlaneError) -> None:
            waiter(not isinstance(told, PushlaneError))

        for number, piece in enumerate(pieces, 1):
            last = number == len(pieces)
            id = self.request(got if last else _passed)
            self.say(frames.HandOver(id, *key, epoch, piece, last))
        return await waiter.wait()

    # Subscriptions

    def subscribe(self, sub: RemoteSub) -> int:
        number = self.number()
        self._subs[number] = sub
        return number

    def forget(self, number: int) -> None:
        self._subs.pop(number, None)

    def _said(self, told: Said) -> None:
        sub = self._subs.get(told.sub)
        if sub is not None:
            sub.hear(told)

    # What the links bring

    def take(self, frame: bytes | memoryview) -> None:
        """A frame of either lane."""
        told = decode_told(frame)
        self._take[type(told)](told)

    def _gone(self, told: frames.Gone) -> None:
        shard = self._shards.pop(told.ref, None)
        if shard is not None:
            self._end(shard, told.code, told.message, told.last)

    def _end(self, shard: RemoteShard, code: str, message: str, last: int = frames.ANY_ID) -> None:
        sent = shard.stop(code, message, last)
        self._lost(shard, sent)

    def over(self) -> None:
        """The links are gone."""
        self.up = False
        self.settles.flush()  # they fail like the others that have no answer
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            self._end(shard, "unavailable", CUT)
        requests, self._requests = self._requests, {}
        for got in requests.values():
            got(Unavailable(CUT, retry_ms=RETRY_MS))
        opening, self._opening = self._opening, {}
        for one in opening.values():
            one.told.fail(Unsent(CUT, retry_ms=RETRY_MS))


def _passed(_: object) -> None:
    """The answer to a piece that is not the last."""
