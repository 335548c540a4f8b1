"""Shards on another node, as a gateway here sees them.

An `Asker` has a pair of links to their owner. A `RemoteShard` takes what callers ask of a shard
(`ShardPort`) and sends it; the answers come back as calls. When the links break, or the shard stops
there, all its sinks are told with what their clients hold, and publishes without an answer are
handed to whoever finds the next owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

import msgspec
import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.browsing.question import Question, answer_type
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.frames import decode_told, encode
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import Report
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import PublishTicket, Run, SettleTicket
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.shard.sink import (
    Attach,
    AttachAnswer,
    Attached,
    PublishAnswer,
    ResumeAnswer,
    SettleAnswer,
    Sink,
)
from pushlane_dispatcher.waiter import Waiter
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message, size_of
from pushlane_storage.queue import QueueRow

A = TypeVar("A")

MOVED = "the queue moves to another server: try again"
CUT = "the server of this queue can't be reached"
RETRY_MS = 100


class Way(Protocol):
    """Where frames leave: a link."""

    def send(self, frame: bytes) -> None: ...

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        ...

    async def room(self, below: int) -> None:
        """Wait until fewer bytes than this wait, or it is over."""
        ...


class Sent(msgspec.Struct, eq=False):
    """A publish without an answer."""

    messages: list[Message]
    lanes: Sequence[int] | None
    answer: PublishAnswer
    size: int
    unsent: bool = False
    """It certainly was not taken."""
    until: float = inf
    """In trio's time: how long it may be repeated."""


Lost = Callable[["RemoteShard", list[Sent]], None]
"""What to do with publishes of a shard that is gone, in their order."""

Got = Callable[[Any], None]
"""Takes the answer of a request: a frame, or the error that came instead."""


Said = frames.Deliver | frames.Lost | frames.Hungry | frames.Holds | frames.Ended
"""What a shard says to a subscription, in its order."""


class Opening:
    """Somebody waits for a shard."""

    def __init__(self, row: QueueRow, number: int) -> None:
        self.row = row
        self.number = number
        self.told: Waiter[frames.Opened | frames.Moved | frames.Refused] = Waiter()


class Asker:
    """What the gateways of this node ask of shards of one other node, over a pair of links."""

    def __init__(
        self, process: str, data: Way, rest: Way, now: Callable[[], int], lost: Lost,
        settings: ClusterSettings,
    ) -> None:  # fmt: skip
        self.process = process
        self.data = data
        self.rest = rest
        self.now = now
        self.settings = settings
        self.up = True
        self._lost = lost
        self._next = 1
        self._opening: dict[int, Opening] = {}
        self._shards: dict[int, RemoteShard] = {}
        self._requests: dict[int, Got] = {}
        self._subs: dict[int, RemoteSub] = {}
        self._take: dict[type[Any], Callable[[Any], None]] = {
            frames.Opened: self._opened,
            frames.Moved: self._opened,
            frames.Refused: self._opened,
            frames.Gone: self._gone,
            frames.Failed: self._failed,
            **dict.fromkeys(
                (
                    frames.Published, frames.Attached, frames.Resumed, frames.Settled,
                    frames.Answer, frames.Credited, frames.Yielded,
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
        self.rest.send(encode(frames.Open(ref, row.tenant, row.name, row.id, number, hops, claims)))
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
            return
        if isinstance(told, frames.Opened):
            self._shards[told.ref] = RemoteShard(self, told.ref, opening.row, opening.number)
        opening.told(told)

    # Requests

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

        self.rest.send(encode(frame(self.request(got))))
        told: frames.Answer = await waiter.wait()
        return told

    async def yield_session(self, session: str, term: int) -> bytes | None:
        """Have that node's gateway leave a session to us. The record of what it had."""
        waiter: Waiter[bytes | None] = Waiter()

        def got(told: frames.Yielded | PushlaneError) -> None:
            waiter(None if isinstance(told, PushlaneError) else told.record)

        self.rest.send(encode(frames.Yield(self.request(got), session, term)))
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
            self._end(shard, told.code, told.message)

    def _end(self, shard: RemoteShard, code: str, message: str) -> None:
        sent = shard.stop(code, message)
        self._lost(shard, sent)

    def over(self) -> None:
        """The links are gone."""
        self.up = False
        shards, self._shards = self._shards, {}
        for shard in shards.values():
            self._end(shard, "unavailable", CUT)
        requests, self._requests = self._requests, {}
        for got in requests.values():
            got(Unavailable(CUT, retry_ms=RETRY_MS))
        opening, self._opening = self._opening, {}
        for one in opening.values():
            one.told.fail(Unsent(CUT, retry_ms=RETRY_MS))


class RemoteSub:
    """One subscription of a remote shard: what its client has of it."""

    __slots__ = (
        "_stash", "ack_none", "away", "credits", "generation", "number", "out", "prefix", "shard",
        "sink", "turn", "up",
    )  # fmt: skip

    def __init__(self, shard: RemoteShard, sink: Sink, ack_none: bool) -> None:
        self.shard = shard
        self.sink = sink
        self.ack_none = ack_none
        """Its client has no receipts."""
        self.number = 0
        self.prefix = ""
        self.up = False
        """It is attached."""
        self.generation = 0
        """What its settles carry, once it is."""
        self.away = False
        """Its client's connection is lost: what comes now comes again."""
        self.out: set[int] = set()
        """Receipt numbers that its client has."""
        self.turn = 0
        """How often its client came or went: only the last resume counts."""
        self.credits: set[int] = set()
        """Requests for another credit without an answer."""
        self._stash: list[Said] = []
        """What came before the answer that it is for, and all behind it: lanes overtake each
        other."""

    def hear(self, told: Said) -> None:
        early = isinstance(told, frames.Deliver | frames.Lost) and told.generation > self.generation
        if not self.up or self._stash or early:
            self._stash.append(told)
        elif not isinstance(told, frames.Deliver | frames.Lost):
            self._say(told)
        elif told.generation == self.generation and not self.away:
            self._tell(told)

    def agreed(self, generation: int, out: set[int]) -> None:
        """It was attached or resumed."""
        self.up, self.generation, self.away, self.out = True, generation, False, out

    def catch_up(self) -> None:
        stash, self._stash = self._stash, []
        for told in stash:
            self.hear(told)

    def _say(self, told: frames.Hungry | frames.Holds | frames.Ended) -> None:
        if isinstance(told, frames.Hungry):
            self.sink.hungry(told.hungry, told.held, told.waiting)
        elif isinstance(told, frames.Holds):
            self.sink.holds(told.held, told.waiting)
        else:
            self.shard.drop(self)
            self.sink.ended(told.code, told.message, told.held)

    def _tell(self, told: frames.Deliver | frames.Lost) -> None:
        if isinstance(told, frames.Lost):
            self.settled(told.receipts)
            self.sink.lost(told.receipts, told.held, told.waiting)
            return
        now = self.shard.asker.now()
        runs = [
            Run(
                run.lane, run.seq, run.n, run.started, run.attempt, run.deliveries, run.fence,
                now + run.left_ms, run.messages,
            )
            for run in told.runs
        ]  # fmt: skip
        if not self.ack_none:
            for run in told.runs:
                self.out.update(range(run.n, run.n + len(run.messages)))
        self.sink.deliver(runs, told.again, told.held, told.waiting)

    def settled(self, receipts: Sequence[ReceiptRun]) -> None:
        for prefix, low, high in receipts:
            if prefix == self.prefix:
                self.out.difference_update(range(low, high + 1))

    def held(self) -> list[ReceiptRun]:
        return runs_of_numbers(self.prefix, sorted(self.out))


def numbers_of(prefix: str, receipts: Sequence[ReceiptRun]) -> Iterator[int]:
    for own, low, high in receipts:
        if own == prefix:
            yield from range(low, high + 1)


class RemoteShard:
    """A shard that another node has open."""

    def __init__(self, asker: Asker, ref: int, row: QueueRow, number: int) -> None:
        self.asker = asker
        self.ref = ref
        self.row = row
        """Its queue's, as it was when the shard was opened."""
        self.key = ShardKey(row.id, number)
        self.running = True
        self._sent: dict[int, Sent] = {}
        self._size = 0
        """Bytes of what was published and is not answered."""
        self._room = trio.Event()
        self._subs: dict[Sink, RemoteSub] = {}
        self._prefixes: dict[str, RemoteSub] = {}

    # Publishing

    @property
    def congested(self) -> bool:
        return self._full or self.asker.data.waiting > self.asker.settings.hold_bytes

    @property
    def _full(self) -> bool:
        return self._size >= self.asker.settings.shard_bytes

    async def room(self, claims: Claims = ()) -> None:
        """Wait while too much waits for answers, or on the way there. Its owner deals with whose
        share that is."""
        while self.congested and self.running:
            if self._full:
                await self._room.wait()
            else:
                await self.asker.data.room(self.asker.settings.hold_bytes // 2)
                await trio.lowlevel.checkpoint()  # a link that closes answers at once
        if not self.running:
            raise Unsent(MOVED, retry_ms=RETRY_MS)

    def publish_soon(
        self, messages: list[Message], answer: PublishAnswer, lanes: Sequence[int] | None = None
    ) -> None:
        if not self.running:
            raise Unsent(MOVED, retry_ms=RETRY_MS)
        self._publish(Sent(messages, lanes, answer, sum(map(size_of, messages))))

    def repeat(self, sent: Sent) -> None:
        """Publish what another owner of the shard did not answer. `Unsent`: this one stopped."""
        if not self.running:
            raise Unsent(MOVED, retry_ms=RETRY_MS)
        sent.unsent = False
        self._publish(sent)

    def _publish(self, sent: Sent) -> None:
        asker, lanes = self.asker, None if sent.lanes is None else [*sent.lanes]
        id = asker.number()
        asker.expect(id, partial(self._published, id))
        self._sent[id] = sent
        self._size += sent.size
        asker.data.send(encode(frames.Publish(self.ref, id, sent.messages, lanes)))

    def _published(self, id: int, told: frames.Published | PushlaneError) -> None:
        sent = self._sent[id]
        if isinstance(told, Unsent):
            sent.unsent = True  # the shard has stopped: it says so next
            return
        del self._sent[id]
        self._size -= sent.size
        if not self._full:
            self._room.set()
            self._room = trio.Event()
        if isinstance(told, PushlaneError):
            sent.answer(PublishTicket([-1] * len(sent.messages), sent.lanes, None), told)
            return
        ticket = PublishTicket(
            frames.unpacked(told.seqs, len(sent.messages)),
            sent.lanes,
            None,
            told.duplicates,
            {index: fault.error() for index, fault in told.failed.items()},
        )
        sent.answer(ticket, None)

    # Consuming

    def attach(self, sink: Sink, wish: Attach, answer: AttachAnswer) -> None:
        if not self.running:
            answer(None, Unsent(MOVED, retry_ms=RETRY_MS))
            return
        sub = self._subs[sink] = RemoteSub(self, sink, wish.ack_none)
        sub.number = self.asker.subscribe(sub)
        id = self.asker.request(partial(self._attached, sub, wish, answer))
        self.asker.rest.send(
            encode(
                frames.Attach(
                    self.ref, sub.number, id, wish.session, wish.credit, wish.lease_ms,
                    wish.explicit, wish.ack_none, wish.shared, wish.client, wish.claims,
                    wish.prefix, wish.held, wish.term,
                )
            )
        )  # fmt: skip

    def _attached(
        self, sub: RemoteSub, wish: Attach, answer: AttachAnswer,
        told: frames.Attached | PushlaneError,
    ) -> None:  # fmt: skip
        if isinstance(told, PushlaneError):
            self.drop(sub)
            answer(None, told)
            return
        sub.prefix = told.prefix
        self._prefixes[told.prefix] = sub
        kept = set(numbers_of(told.prefix, wish.held))
        sub.agreed(told.generation, kept.difference(numbers_of(told.prefix, told.lost)))
        answer(Attached(told.prefix, told.generation, told.lease_ms, told.lost), None)
        sub.catch_up()

    def resume(
        self, prefix: str, held: Iterable[ReceiptRun], sink: Sink, answer: ResumeAnswer
    ) -> None:
        sub = self._subs.get(sink)
        if sub is None:
            answer(0, [], NotFound("nobody knows this subscription any more"))
            return
        listed = [*held]
        sub.away = True  # what is on its way now comes again
        sub.turn += 1
        id = self.asker.request(partial(self._resumed, sub, sub.turn, listed, answer))
        self.asker.rest.send(encode(frames.Resume(sub.number, id, listed)))

    def _resumed(
        self, sub: RemoteSub, turn: int, held: list[ReceiptRun], answer: ResumeAnswer,
        told: frames.Resumed | PushlaneError,
    ) -> None:  # fmt: skip
        if isinstance(told, PushlaneError):
            if isinstance(told, NotFound):
                self.drop(sub)
            answer(0, [], told)
            return
        if turn == sub.turn:
            out = set(numbers_of(sub.prefix, held)).difference(numbers_of(sub.prefix, told.lost))
            sub.agreed(told.generation, out)
        else:  # it went away again meanwhile
            sub.generation = told.generation
        answer(told.generation, told.lost, None)
        sub.catch_up()

    def detach(self, prefix: str, sink: Sink, resume_ms: int) -> None:
        sub = self._subs.get(sink)
        if sub is not None:
            sub.away = True
            sub.turn += 1
            self.asker.rest.send(encode(frames.Detach(sub.number, resume_ms)))

    def cut_off(self, prefix: str, sink: Sink, resume_ms: int) -> None:
        sub = self._subs.get(sink)
        if sub is not None:
            self.drop(sub)
            self.asker.forget(sub.number)
            self.asker.rest.send(encode(frames.CutOff(sub.number, resume_ms)))

    def unsubscribe(self, prefix: str, sink: Sink) -> None:
        sub = self._subs.get(sink)
        if sub is not None:
            self.asker.rest.send(encode(frames.Unsubscribe(sub.number)))

    def end(self, prefix: str, sink: Sink) -> None:
        sub = self._subs.get(sink)
        if sub is not None:
            self.drop(sub)
            self.asker.rest.send(encode(frames.End(sub.number)))

    def credit(
        self, prefix: str, sink: Sink, credit: int, answer: Callable[[], None] | None = None
    ) -> None:
        sub = self._subs.get(sink)
        if sub is None:
            return

        def credited(told: frames.Credited | PushlaneError) -> None:
            sub.credits.discard(id)
            if answer is not None and not isinstance(told, PushlaneError):
                answer()

        id = self.asker.request(credited)
        sub.credits.add(id)
        self.asker.rest.send(encode(frames.SetCredit(sub.number, id, credit)))

    def settle(
        self, prefix: str, generation: int, act: Act, receipts: Sequence[ReceiptRun],
        answer: SettleAnswer, *, silently: bool = False,
    ) -> None:  # fmt: skip
        if not self.running:
            answer(SettleTicket(), Unavailable(MOVED, retry_ms=RETRY_MS))
            return
        listed = [*receipts]
        id = self.asker.request(partial(self._settled, prefix, act, listed, answer))
        self.asker.rest.send(
            encode(
                frames.Settle(
                    self.ref, id, prefix, generation, listed, silently,
                    act.verb, act.lease_ms, act.delay_ms, act.error, act.dead,
                )
            )
        )  # fmt: skip

    def _settled(
        self, prefix: str, act: Act, receipts: list[ReceiptRun], answer: SettleAnswer,
        told: frames.Settled | PushlaneError,
    ) -> None:  # fmt: skip
        if isinstance(told, PushlaneError):
            answer(SettleTicket(), told)
            return
        sub = self._prefixes.get(prefix)
        if sub is not None:
            sub.settled(told.lost if act.verb in ("start", "extend") else receipts)
        answer(SettleTicket(None, False, told.lost, told.duplicate), None)

    # Asking

    async def ask(self, question: Question[A]) -> A:
        if not self.running:
            raise Unsent(MOVED, retry_ms=RETRY_MS)
        packed = msgspec.Raw(encode(question))
        return await self.asker.answer(question, lambda id: frames.Ask(self.ref, id, packed))

    # The end

    def drop(self, sub: RemoteSub) -> None:
        """It is over: what is still said to it is for nobody."""
        self.asker.forget(sub.number)
        for id in sub.credits:
            self.asker.waive(id)
        if self._subs.get(sub.sink) is sub:
            del self._subs[sub.sink]
        if self._prefixes.get(sub.prefix) is sub:
            del self._prefixes[sub.prefix]

    def stop(self, code: str, message: str) -> list[Sent]:
        """It is no more. What was published and has no answer, in its order."""
        self.running = False
        self._room.set()
        for id in self._sent:
            self.asker.waive(id)
        sent, self._sent = list(self._sent.values()), {}
        for sub in list(self._subs.values()):
            self.drop(sub)
            if sub.up:  # else its attach fails
                sub.sink.ended(code, message, sub.held())
        return sent
