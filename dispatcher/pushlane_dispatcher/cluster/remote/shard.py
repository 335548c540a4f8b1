"""A shard on another node.

It takes what callers ask of a shard (`ShardPort`) and sends it; the answers come back as calls.
When the links break, or the shard stops there, all its sinks are told with what their clients hold,
and publishes without an answer are handed to whoever finds the next owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar

import msgspec
import trio

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.browsing.question import Question
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.frames import encode
from pushlane_dispatcher.cluster.remote.sub import RemoteSub, numbers_of
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import PublishTicket, SettleTicket
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.shard.sink import (
    Attach,
    AttachAnswer,
    Attached,
    PublishAnswer,
    ResumeAnswer,
    SettleAnswer,
    Sink,
)
from pushlane_storage.bucket import ShardKey
from pushlane_storage.message import Message, size_of
from pushlane_storage.queue import QueueRow

if TYPE_CHECKING:
    from pushlane_dispatcher.cluster.remote.asker import Asker
A = TypeVar("A")

MOVED = "the queue moves to another server: try again"
CUT = "the server of this queue can't be reached"
RETRY_MS = 100


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
        asker.data.send(encode(frames.Publish(self.ref, id, sent.messages, lanes, asker.wall())))

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
        self.asker.say(
            frames.Attach(
                self.ref, sub.number, id, wish.session, wish.credit, wish.lease_ms,
                wish.explicit, wish.ack_none, wish.shared, wish.client, wish.claims,
                wish.prefix, wish.held, wish.term,
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
        self.asker.say(frames.Resume(sub.number, id, listed))

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
            self.asker.say(frames.Detach(sub.number, resume_ms))

    def cut_off(self, prefix: str, sink: Sink, resume_ms: int) -> None:
        sub = self._subs.get(sink)
        if sub is not None:
            self.drop(sub)
            self.asker.forget(sub.number)
            self.asker.say(frames.CutOff(sub.number, resume_ms))

    def unsubscribe(self, prefix: str, sink: Sink) -> None:
        sub = self._subs.get(sink)
        if sub is not None:
            self.asker.say(frames.Unsubscribe(sub.number))

    def end(self, prefix: str, sink: Sink) -> None:
        sub = self._subs.get(sink)
        if sub is not None:
            self.drop(sub)
            self.asker.say(frames.End(sub.number))

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
        self.asker.say(frames.SetCredit(sub.number, id, credit))

    def settle(
        self, prefix: str, generation: int, act: Act, receipts: Sequence[ReceiptRun],
        answer: SettleAnswer, *, silently: bool = False,
    ) -> None:  # fmt: skip
        if not self.running:
            answer(SettleTicket(), Unavailable(MOVED, retry_ms=RETRY_MS))
            return
        self.asker.settles.add(self, prefix, generation, act, receipts, answer, silently)

    def settled(self, prefix: str, generation: int, receipts: Sequence[ReceiptRun]) -> None:
        """A client has these no longer."""
        sub = self._prefixes.get(prefix)
        if sub is not None and sub.generation == generation:  # else somebody else was refused
            sub.settled(receipts)

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

    def stop(self, code: str, message: str, last: int) -> list[Sent]:
        """It is no more. What was published and has no answer, in its order; what has a higher
        number than `last` did not get there in time."""
        self.running = False
        self._room.set()
        for id, one in self._sent.items():
            self.asker.waive(id)
            one.unsent |= id > last
        sent, self._sent = list(self._sent.values()), {}
        for sub in list(self._subs.values()):
            self.drop(sub)
            if sub.up:  # else its attach fails
                sub.sink.ended(code, message, sub.held())
        return sent
