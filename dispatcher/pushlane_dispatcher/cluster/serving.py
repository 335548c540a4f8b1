"""Serving another node: what its gateways ask of shards here, over one pair of links.

Requests are carried out in the order in which they came on their lane. Publishes for which a shard
has no room wait in a line of their own, which the asker bounds: it has so many bytes under way for
a shard and no more, and who exceeds that is cut off.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from pushlane.wire.errors import BadRequest, NotFound, PushlaneError, Throttled, Unavailable
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.browsing.question import AnyQuestion
from pushlane_dispatcher.cluster import frames
from pushlane_dispatcher.cluster.frames import Fault, decode_asked, encode, packed
from pushlane_dispatcher.cluster.remote.asker import Way
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import Report
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.effects import PublishTicket, Run, SettleTicket
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.sink import Attach, Attached
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import StoreError
from pushlane_storage.message import Message, size_of

decode_question = msgspec.msgpack.Decoder(AnyQuestion).decode

PIECE_BYTES = 1 << 20
"""Deliveries go in frames of about this, so that others get their turn on the link."""
CLOCKS_MS = 500
"""The clock of a node whose times are further from ours than this, with the time that a publish was
on its way, is another one: what it stamped is stamped anew, or its delays and ends came too early
or late."""


class Elsewhere(Exception):
    """Another node is to be asked for this shard."""

    def __init__(self, process: str, epoch: int) -> None:
        super().__init__(process)
        self.process = process
        self.epoch = epoch


class Host(Protocol):
    """What stands behind the links: the dispatcher of this node."""

    def start_soon(self, task: Callable[..., Any], *args: Any) -> None: ...

    def running(self, key: ShardKey) -> ShardRunner | None:
        """A shard that is open here."""
        ...

    def report(self) -> Report:
        """How this node does."""
        ...

    async def open_for_peer(
        self, tenant: str, queue: str, key: ShardKey, hops: int, claims: Claims
    ) -> ShardRunner:
        """The shard, opened here; `Elsewhere` when it is not ours to have."""
        ...

    def take_over(self, key: ShardKey, epoch: int, piece: bytes, last: bool) -> None:
        """A piece of the snapshot of a shard that is about to be ours."""
        ...

    def yield_session(self, session: str, term: int) -> bytes | None:
        """A client goes on with its session at another node. Its record, if it was here."""
        ...


class Served:
    """A shard that the other node uses."""

    __slots__ = ("claims", "last", "line", "ref", "runner", "waiting")

    def __init__(self, ref: int, runner: ShardRunner, claims: Claims) -> None:
        self.ref = ref
        self.runner = runner
        self.claims = claims
        self.last = 0
        """The number of the last publish that came."""
        self.line: deque[frames.Publish] = deque()
        """Publishes that wait for room."""
        self.waiting = 0
        """Their bytes."""

    def leave(self) -> None:
        """What waits for room is not to be stored any more."""
        self.line.clear()
        self.waiting = 0


class FarSink:
    """The end of a subscription here: what its shard says goes over the links."""

    __slots__ = ("_holds", "_serving", "credit", "generation", "number", "prefix", "served")

    def __init__(self, serving: Serving, number: int, served: Served, credit: int) -> None:
        self._serving = serving
        self.number = number
        self.served = served
        self.credit = credit
        """What its gateway grants, whether or not the shard holds back."""
        self.prefix = ""
        self.generation = 0
        self._holds: tuple[int, int] | None = None
        """What it holds, if that is not said yet: only the newest counts."""

    def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        self._holds = None
        self._serving.push(self, runs, again, held, waiting)

    def lost(self, receipts: list[ReceiptRun], held: int, waiting: int) -> None:
        self._say(frames.Lost(self.number, self.generation, receipts, held, waiting))

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        self._say(frames.Hungry(self.number, hungry, held, waiting))

    def holds(self, held: int, waiting: int) -> None:
        if self._holds is None:
            self._serving.holds_soon(self)
        self._holds = held, waiting

    def say_holds(self) -> None:
        """If that is not said yet."""
        if self._holds is not None:
            self._say(frames.Holds(self.number, *self._holds))

    def ended(self, code: str, message: str, held: list[ReceiptRun]) -> None:
        self._serving.forget(self)
        self._say(frames.Ended(self.number, code, message, held))

    def _say(self, frame: frames.Frame) -> None:
        self._holds = None  # the others say it as well
        self._serving.data.send(encode(frame))


class Serving:
    def __init__(
        self, host: Host, data: Way, rest: Way, now: Callable[[], int], wall: Callable[[], int],
        settings: ClusterSettings, resume_ms: int, cut: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`cut` ends the links."""
        self._host = host
        self.data = data
        self._rest = rest
        self._now = now
        self._wall = wall
        self._settings = settings
        self._asks = 0
        self._holding: dict[FarSink, None] = {}
        """Those that are to be told what they hold, before the next write."""
        self._held_back: dict[FarSink, None] = {}
        """Those that get nothing until there is room on the way."""
        self._resume_ms = resume_ms
        self._cut = cut
        self._up = True
        self._served: dict[int, Served] = {}
        self._subs: dict[int, FarSink] = {}
        self._take: dict[type[Any], Callable[[Any], None]] = {
            frames.Open: self._open,
            frames.Publish: self._publish,
            frames.Attach: self._attach,
            frames.Resume: self._resume,
            frames.Detach: self._detach,
            frames.Unsubscribe: self._unsubscribe,
            frames.End: self._end,
            frames.SetCredit: self._credit,
            frames.Settle: self._settle,
            frames.Ask: self._ask,
            frames.Look: self._look,
            frames.Tell: self._tell,
            frames.CutOff: self._cut_off,
            frames.Yield: self._yield,
            frames.HandOver: self._take_over,
            frames.Leave: self._leave,
        }

    def take(self, frame: bytes | memoryview) -> None:
        """A frame of either lane."""
        asked = decode_asked(frame)
        self._take[type(asked)](asked)

    def _answer(self, frame: frames.Frame) -> None:
        if self._up:
            self._rest.send(encode(frame))

    def _fail(self, id: int, error: PushlaneError) -> None:
        self._answer(frames.Failed(id, Fault.of(error)))

    # Opening

    def _begin(self, task: Callable[..., Awaitable[None]], *args: Any) -> bool:
        """A task of the other node's, if it may have one more."""
        if self._asks >= self._settings.asks:
            return False
        self._asks += 1
        self._host.start_soon(self._run, task, *args)
        return True

    async def _run(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        try:
            await task(*args)
        finally:
            self._asks -= 1

    def _too_much(self) -> Throttled:
        return Throttled("this node asks for too much at once", retry_ms=1_000, limit="asks")

    def _open(self, asked: frames.Open) -> None:
        if not self._begin(self._open_later, asked):
            self._answer(frames.Refused(asked.ref, Fault.of(self._too_much())))

    async def _open_later(self, asked: frames.Open) -> None:
        key = ShardKey(asked.queue_id, asked.shard)
        try:
            runner = await self._host.open_for_peer(
                asked.tenant, asked.queue, key, asked.hops, asked.claims
            )
        except Elsewhere as found:
            self._answer(frames.Moved(asked.ref, found.process, found.epoch))
        except PushlaneError as error:
            self._answer(frames.Refused(asked.ref, Fault.of(error)))
        else:
            if self._up:
                self._served[asked.ref] = Served(asked.ref, runner, asked.claims)
                self._answer(frames.Opened(asked.ref))
                if not runner.running:
                    self._put_down(self._served[asked.ref])

    def stopped(self, runner: ShardRunner) -> None:
        """A shard has stopped: whoever uses it there is told."""
        for served in [one for one in self._served.values() if one.runner is runner]:
            self._put_down(served)

    def _put_down(self, served: Served) -> None:
        del self._served[served.ref]
        line = list(served.line)
        served.leave()
        for asked in line:
            self._fail(asked.id, _unsent(served.runner))
        reason = served.runner.stopped_by
        code = "unavailable" if reason is None else reason.code
        message = "it has stopped" if reason is None else reason.value
        self._answer(frames.Gone(served.ref, code, message, served.last))

    def _leave(self, asked: frames.Leave) -> None:
        self._served.pop(asked.ref, None)

    def _runner(self, ref: int) -> ShardRunner | None:
        served = self._served.get(ref)
        return None if served is None else served.runner

    # Publishing

    def _publish(self, asked: frames.Publish) -> None:
        shift = self._wall() - asked.wall
        if asked.wall and abs(shift) > CLOCKS_MS:
            asked.messages = [_stamped_anew(message, shift) for message in asked.messages]
        served = self._served.get(asked.ref)
        if served is None:
            self._fail(asked.id, Unsent("the shard has stopped", retry_ms=0))
            return
        served.last = asked.id
        if served.line or served.runner.congested:
            self._line_up(served, asked)
        else:
            self._publish_now(served, asked)

    def _publish_now(self, served: Served, asked: frames.Publish) -> None:
        answer = partial(self._published, served.runner, asked.id)
        try:
            served.runner.publish_soon(asked.messages, answer, asked.lanes)
        except PushlaneError:
            self._fail(asked.id, _unsent(served.runner))

    def _published(
        self, runner: ShardRunner, id: int, ticket: PublishTicket, error: PushlaneError | None
    ) -> None:
        if error is None:
            failed = {index: Fault.of(fault) for index, fault in ticket.failed.items()}
            self._answer(frames.Published(id, packed(ticket), ticket.duplicates, failed))
        elif runner.stopped_by is None:  # else it hears that the shard is gone: nobody knows more
            self._fail(id, error)

    def _line_up(self, served: Served, asked: frames.Publish) -> None:
        served.waiting += sum(map(size_of, asked.messages))
        served.line.append(asked)
        if served.waiting > 2 * self._settings.shard_bytes:
            self._cut("it publishes more than it may")
        elif len(served.line) == 1:
            self._host.start_soon(self._publish_later, served)

    async def _publish_later(self, served: Served) -> None:
        """A task: while there is a line, one after the other."""
        line = served.line
        while line:
            asked, error = line[0], None
            try:
                await served.runner.room(served.claims)
            except PushlaneError as fault:
                error = fault if served.runner.running else _unsent(served.runner)
            if not line or line[0] is not asked:  # the shard has stopped, or the links broke
                return
            line.popleft()
            served.waiting -= sum(map(size_of, asked.messages))
            if error is None:
                self._publish_now(served, asked)
            else:
                self._fail(asked.id, error)

    # Consuming

    def _attach(self, asked: frames.Attach) -> None:
        served = self._served.get(asked.ref)
        if served is None:
            self._fail(asked.id, Unsent("the shard has stopped", retry_ms=0))
            return
        wish = Attach(
            asked.session, asked.credit, asked.lease_ms, asked.explicit, asked.ack_none,
            asked.shared, asked.client, asked.claims, asked.prefix, asked.held, asked.term,
        )  # fmt: skip
        sink = self._subs[asked.sub] = FarSink(self, asked.sub, served, asked.credit)

        def answer(attached: Attached | None, error: PushlaneError | None) -> None:
            if attached is None:
                assert error is not None
                self.forget(sink)
                self._fail(asked.id, error)
                return
            sink.prefix, sink.generation = attached.prefix, attached.generation
            self._answer(
                frames.Attached(
                    asked.id, attached.prefix, attached.generation, attached.lease_ms, attached.lost
                )
            )

        served.runner.attach(sink, wish, answer)

    def _resume(self, asked: frames.Resume) -> None:
        sink = self._subs.get(asked.sub)
        if sink is None:
            self._fail(asked.id, Unavailable("the shard has stopped", retry_ms=0))
            return

        def answer(generation: int, lost: list[ReceiptRun], error: PushlaneError | None) -> None:
            if error is not None:
                if isinstance(error, NotFound):
                    self.forget(sink)
                self._fail(asked.id, error)
                return
            sink.generation = generation
            self._answer(frames.Resumed(asked.id, generation, lost))

        sink.served.runner.resume(sink.prefix, asked.held, sink, answer)

    def _detach(self, asked: frames.Detach) -> None:
        sink = self._subs.get(asked.sub)
        if sink is not None:
            sink.served.runner.detach(sink.prefix, sink, asked.resume_ms)

    def _cut_off(self, asked: frames.CutOff) -> None:
        sink = self._subs.pop(asked.sub, None)
        if sink is not None:
            sink.served.runner.cut_off(sink.prefix, sink, asked.resume_ms)

    def _unsubscribe(self, asked: frames.Unsubscribe) -> None:
        sink = self._subs.get(asked.sub)
        if sink is not None:
            sink.served.runner.unsubscribe(sink.prefix, sink)

    def _end(self, asked: frames.End) -> None:
        sink = self._subs.pop(asked.sub, None)
        if sink is not None:
            sink.served.runner.end(sink.prefix, sink)

    def _credit(self, asked: frames.SetCredit) -> None:
        sink = self._subs.get(asked.sub)
        if sink is None:
            return

        def answer() -> None:
            if self._up:
                sink.say_holds()
                self.data.send(encode(frames.Credited(asked.id)))

        sink.credit = asked.credit
        credit = 0 if sink in self._held_back else asked.credit
        sink.served.runner.credit(sink.prefix, sink, credit, answer)

    def _settle(self, asked: frames.Settle) -> None:
        runner = self._runner(asked.ref)
        if runner is None:
            self._fail(asked.id, Unavailable("the shard has stopped", retry_ms=100))
            return

        def answer(ticket: SettleTicket, error: PushlaneError | None) -> None:
            if error is not None:
                self._fail(asked.id, error)
            else:
                self._answer(frames.Settled(asked.id, ticket.lost, ticket.duplicate))

        act = Act(asked.verb, asked.lease_ms, asked.delay_ms, asked.error, asked.dead)
        runner.settle(
            asked.prefix, asked.generation, act, asked.receipts, answer, silently=asked.silently
        )

    def forget(self, sink: FarSink) -> None:
        if self._subs.get(sink.number) is sink:
            del self._subs[sink.number]

    def push(self, sink: FarSink, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        now, send = self._now(), self.data.send
        pushed = [_pushed(run, now) for run in runs]
        if sum([size_of(message) for run in runs for message in run.messages]) <= PIECE_BYTES:
            send(encode(frames.Deliver(sink.number, sink.generation, again, held, waiting, pushed)))
        else:
            for run in _pieces(pushed):
                piece = frames.Deliver(sink.number, sink.generation, again, held, waiting, [run])
                send(encode(piece))
        if self.data.waiting > self._settings.hold_bytes:
            self._hold_back(sink)

    def holds_soon(self, sink: FarSink) -> None:
        """A subscription holds another number: settles of one round change it many times."""
        if not self._holding:
            self.data.soon(self._say_holds)
        self._holding[sink] = None

    def _say_holds(self) -> None:
        holding, self._holding = self._holding, {}
        for sink in holding:
            sink.say_holds()

    # Holding back

    def _hold_back(self, sink: FarSink) -> None:
        """Too much waits on the way: this one gets no more for now."""
        if sink in self._held_back:
            return
        self._held_back[sink] = None
        if len(self._held_back) == 1:
            self._host.start_soon(self._let_go)
        sink.served.runner.credit(sink.prefix, sink, 0)

    async def _let_go(self) -> None:
        """When there is room again: those that waited the longest go first."""
        await self.data.room(self._settings.hold_bytes // 2)
        held_back, self._held_back = self._held_back, {}
        for sink in held_back:
            if self._subs.get(sink.number) is sink:
                sink.served.runner.credit(sink.prefix, sink, sink.credit)

    # Asking

    def _ask(self, asked: frames.Ask) -> None:
        if not self._begin(self._ask_later, asked.id, self._runner(asked.ref), asked.question):
            self._fail(asked.id, self._too_much())

    def _look(self, asked: frames.Look) -> None:
        runner = self._host.running(ShardKey(asked.queue_id, asked.shard))
        if not self._begin(self._ask_later, asked.id, runner, asked.question):
            self._fail(asked.id, self._too_much())

    def _tell(self, asked: frames.Tell) -> None:
        self._answer(frames.Answer(asked.id, msgspec.Raw(encode(self._host.report()))))

    async def _ask_later(self, id: int, runner: ShardRunner | None, packed: msgspec.Raw) -> None:
        try:
            if runner is None:
                raise Unsent("the shard is not open here", retry_ms=100)
            question: Any = decode_question(packed)
            value = await runner.ask(question)
        except PushlaneError as error:
            self._fail(id, error)
        except StoreError:
            self._fail(id, Unavailable("the store could not answer", retry_ms=1_000))
        except msgspec.DecodeError as error:
            self._fail(id, BadRequest(f"a question that this node does not understand: {error}"))
        else:
            self._answer(frames.Answer(id, msgspec.Raw(encode(value))))

    def _yield(self, asked: frames.Yield) -> None:
        record = self._host.yield_session(asked.session, asked.term)
        self._answer(frames.Yielded(asked.id, record))

    def _take_over(self, asked: frames.HandOver) -> None:
        key = ShardKey(asked.queue_id, asked.shard)
        self._host.take_over(key, asked.epoch, asked.piece, asked.last)
        self._answer(frames.Taken(asked.id))

    # The end

    def over(self) -> None:
        """The links are gone: nobody knows whether for a moment or for good.

        It is no fault of what was reserved. Whoever comes back goes on with it.
        """
        self._up = False
        for served in self._served.values():
            served.leave()  # whoever sent it sends it again
        self._served.clear()
        subs, self._subs = self._subs, {}
        for sink in subs.values():
            sink.served.runner.cut_off(sink.prefix, sink, self._resume_ms)


def _stamped_anew(message: Message, shift: int) -> Message:
    return msgspec.structs.replace(
        message,
        published_at=message.published_at + shift,
        not_before=message.not_before and message.not_before + shift,
        expires_at=message.expires_at and message.expires_at + shift,
    )


def _unsent(runner: ShardRunner) -> Unsent:
    reason = runner.stopped_by
    return Unsent("it is closing" if reason is None else reason.value, retry_ms=100)


def _pushed(run: Run, now: int) -> frames.Pushed:
    return frames.Pushed(
        run.lane, run.seq, run.n, run.started, run.attempt, run.deliveries, run.fence,
        run.deadline - now, run.messages,
    )  # fmt: skip


def _pieces(runs: list[frames.Pushed]) -> list[frames.Pushed]:
    """Runs of about `PIECE_BYTES` each."""
    found: list[frames.Pushed] = []
    for run in runs:
        first = size = 0
        for index, message in enumerate(run.messages):
            if size and size + size_of(message) > PIECE_BYTES:
                found.append(_cut_run(run, first, index))
                first, size = index, 0
            size += size_of(message)
        found.append(_cut_run(run, first, len(run.messages)))
    return found


def _cut_run(run: frames.Pushed, first: int, end: int) -> frames.Pushed:
    messages: list[Message] = run.messages[first:end]
    return frames.Pushed(
        run.lane, run.seq + first, run.n + first, run.started, run.attempt, run.deliveries,
        run.fence, run.left_ms, messages,
    )  # fmt: skip
