"""A small server without I/O, as a model to test clients against.

It keeps the promises that a client relies on (producer sequences store once, receipts settle once,
sessions resume) and nothing else: no store, no timers, no rights. Frames go in per connection, and
answers gather in the connection's outbox until the test, or the fake server around it, sends them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pushlane.wire import DEFAULTS, JSON, Limits, frames
from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import compress, parse


@dataclass
class Stored:
    """A message in a queue."""

    id: str
    message: frames.PublishMessage
    producer: str | None
    attempts: int = 0
    grants: int = 0
    settled: str | None = None
    """How it ended: "ack" or "dead"."""


@dataclass
class Sub:
    number: int
    queue: str
    credit: int
    ack: str
    prefix: str
    next_number: int = 1
    held: dict[int, Stored] = field(default_factory=dict)
    started: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    is_closed: bool = False


@dataclass
class Session:
    name: str
    producer: str | None
    subs: dict[int, Sub] = field(default_factory=dict)
    connection: Connection | None = None


@dataclass(eq=False)
class Connection:
    session: Session | None = None
    outbox: deque[frames.ServerFrame] = field(default_factory=deque)
    hello: frames.Hello | None = None

    def data(self) -> list[bytes]:
        """All answers, encoded, and forgotten."""
        sent = [JSON.encode(frame) for frame in self.outbox]
        self.outbox.clear()
        return sent


class ModelServer:
    """Queues and sessions in memory."""

    def __init__(self, limits: Limits = DEFAULTS, heartbeat_ms: int = 25_000) -> None:
        self.limits = limits
        self.heartbeat_ms = heartbeat_ms
        self.lease_ms = 30_000
        self.queues: dict[str, list[Stored]] = {}
        self.ready: dict[str, deque[Stored]] = {}
        self.sequences: dict[tuple[str, str, int], str] = {}
        self.sessions: dict[str, Session] = {}
        self.received: list[frames.ClientFrame] = []
        self.nacks: list[frames.Nack] = []
        self.refuse: deque[PushlaneError] = deque()
        """Errors for the next publishes, whole frames."""
        self.refuse_settles: deque[PushlaneError] = deque()
        self.tokens: set[str | None] | None = None
        """Who may say hello; None: anybody."""
        self._names = 0

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    # Connections

    def receive(self, connection: Connection, data: bytes) -> None:
        """Take a frame of a client."""
        frame = JSON.decode_client(data)
        self.received.append(frame)
        if isinstance(frame, frames.Hello):
            self._hello(connection, frame)
            return
        session = connection.session
        if session is None or session.connection is not connection:
            return
        handle = getattr(self, "_" + type(frame).__name__.lower())
        handle(connection, session, frame)

    def forget(self, name: str) -> None:
        """A session's time to resume is over."""
        session = self.sessions.pop(name)
        session.connection = None
        for sub in session.subs.values():
            self.ready[sub.queue].extendleft(reversed(sub.held.values()))
            sub.held.clear()
        self.pump()

    def _hello(self, connection: Connection, frame: frames.Hello) -> None:
        connection.hello = frame
        if self.tokens is not None and frame.token not in self.tokens:
            connection.outbox.append(frames.ErrorFrame("unauthorized", "no such token"))
            return
        session = self.sessions.get(frame.resume.session) if frame.resume else None
        resumed = session is not None
        if session is None:
            session = Session(self._name("s-"), frame.producer)
            self.sessions[session.name] = session
        session.connection = connection
        connection.session = session
        welcome = frames.Welcome(
            session.name, "a", "model", resumed, 0, 30_000, self.heartbeat_ms, self.limits.wire()
        )
        connection.outbox.append(welcome)
        if resumed:
            assert frame.resume is not None
            self._resume(connection, session, frame.resume.held, welcome)
        self.pump()

    def _resume(
        self, connection: Connection, session: Session, held: frames.Held, welcome: frames.Welcome
    ) -> None:
        lost: dict[str, list[str]] = {}
        for sub in session.subs.values():
            listed = {
                number
                for receipt in held.get(str(sub.number), [])
                for number in range(parse(receipt)[1], parse(receipt)[2] + 1)
            }
            gone = sorted(listed - set(sub.held))
            if gone:
                lost[str(sub.number)] = compress(sub.prefix, gone)
            again = [number for number in sub.held if number not in listed]
            if again:
                messages = [self._message(sub, number) for number in again]
                connection.outbox.append(frames.Deliver(sub.number, messages))
        welcome.lost = lost

    # Requests

    def _publish(self, connection: Connection, session: Session, frame: frames.Publish) -> None:
        if self.refuse:
            error = self.refuse.popleft()
            connection.outbox.append(frames.error_frame(error, id=frame.id, request="publish"))
            return
        ids, duplicates = [], []
        for index, message in enumerate(frame.messages):
            id, is_new = self._store(session, frame.to, message)
            ids.append(id)
            if not is_new:
                duplicates.append(index)
        connection.outbox.append(frames.Published(frame.id, list(ids), duplicates))
        self.pump()

    def _store(
        self, session: Session, queue: str, message: frames.PublishMessage
    ) -> tuple[str, bool]:
        assert session.producer is not None
        assert message.seq is not None
        key = (queue, session.producer, message.seq)
        if key in self.sequences:
            return self.sequences[key], False
        stored = Stored(self._name("m-"), message, session.producer)
        self.sequences[key] = stored.id
        self.queues.setdefault(queue, []).append(stored)
        self.ready.setdefault(queue, deque()).append(stored)
        return stored.id, True

    def _subscribe(self, connection: Connection, session: Session, frame: frames.Subscribe) -> None:
        number = len(session.subs) + 1
        sub = Sub(number, frame.from_, frame.credit, frame.ack, self._name("P"))
        session.subs[number] = sub
        self.ready.setdefault(frame.from_, deque())
        connection.outbox.append(frames.Subscribed(frame.id, number))
        self.pump()

    def _unsubscribe(
        self, connection: Connection, session: Session, frame: frames.Unsubscribe
    ) -> None:
        session.subs[frame.sub].is_closed = True
        connection.outbox.append(frames.Done(frame.id))

    def _credit(self, connection: Connection, session: Session, frame: frames.Credit) -> None:
        session.subs[frame.sub].credit = frame.credit
        self.pump()

    def _start(self, connection: Connection, session: Session, frame: frames.Start) -> None:
        sub = session.subs[frame.sub]
        for number in self._numbers(sub, frame.receipts):
            if number in sub.held and number not in sub.started:
                sub.started.add(number)
                sub.held[number].attempts += 1

    def _ack(self, connection: Connection, session: Session, frame: frames.Ack) -> None:
        self._settle(connection, session, frame, "ack")

    def _nack(self, connection: Connection, session: Session, frame: frames.Nack) -> None:
        self.nacks.append(frame)
        self._settle(connection, session, frame, "dead" if frame.dead else None)

    def _extend(self, connection: Connection, session: Session, frame: frames.Extend) -> None:
        sub = session.subs[frame.sub]
        lost = [number for number in self._numbers(sub, frame.receipts) if number not in sub.held]
        if frame.id is not None:
            connection.outbox.append(frames.Done(frame.id, compress(sub.prefix, lost)))

    def _settle(
        self,
        connection: Connection,
        session: Session,
        frame: frames.Ack | frames.Nack,
        ending: str | None,
    ) -> None:
        if self.refuse_settles and frame.id is not None:
            error = self.refuse_settles.popleft()
            connection.outbox.append(frames.error_frame(error, id=frame.id))
            return
        sub = session.subs[frame.sub]
        lost: list[int] = []
        duplicate: list[int] = []
        for number in self._numbers(sub, frame.receipts):
            stored = sub.held.pop(number, None)
            if stored is None:
                (duplicate if number in sub.settled else lost).append(number)
                continue
            sub.settled.add(number)
            stored.settled = ending
            if ending is None:
                self.ready[sub.queue].append(stored)
        if frame.id is not None:
            runs = compress(sub.prefix, sorted(lost)), compress(sub.prefix, sorted(duplicate))
            connection.outbox.append(frames.Done(frame.id, *runs))
        self.pump()

    def _numbers(self, sub: Sub, receipts: list[str]) -> list[int]:
        numbers: list[int] = []
        for receipt in receipts:
            prefix, low, high = parse(receipt)
            assert prefix == sub.prefix, (prefix, sub)
            numbers += range(low, high + 1)
        return numbers

    # Deliveries

    def pump(self) -> None:
        """Deliver what is ready, as far as credit goes."""
        for session in self.sessions.values():
            if session.connection is None:
                continue
            for sub in session.subs.values():
                self._deliver(session.connection, sub)

    def _deliver(self, connection: Connection, sub: Sub) -> None:
        ready = self.ready[sub.queue]
        messages = []
        while ready and not sub.is_closed and len(sub.held) < sub.credit:
            stored = ready.popleft()
            stored.grants += 1
            number = sub.next_number
            sub.next_number += 1
            if sub.ack == "none":
                stored.settled = "ack"
                messages.append(
                    frames.DeliverMessage(
                        stored.id, 1, 0, body=stored.message.body, data=stored.message.data
                    )
                )
                continue
            sub.held[number] = stored
            messages.append(self._message(sub, number))
        if messages:
            connection.outbox.append(frames.Deliver(sub.number, messages))

    def _message(self, sub: Sub, number: int) -> frames.DeliverMessage:
        stored = sub.held[number]
        message = stored.message
        return frames.DeliverMessage(
            stored.id,
            stored.attempts + 1,
            0,
            body=message.body,
            data=message.data,
            receipt=f"{sub.prefix}.{number}",
            fence=stored.grants,
            lease_ms=self.lease_ms,
            key=message.key,
            headers=message.headers,
        )

    def lose(self, sub: Sub, numbers: list[int]) -> None:
        """Leases end under their holder."""
        session = next(s for s in self.sessions.values() if sub in s.subs.values())
        for number in numbers:
            self.ready[sub.queue].append(sub.held.pop(number))
        if session.connection is not None:
            receipts = compress(sub.prefix, sorted(numbers))
            session.connection.outbox.append(frames.LeaseLostFrame(sub.number, receipts))
        self.pump()
