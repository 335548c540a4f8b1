"""Connections, and producers: they repeat what they are unsure of, and what is long stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pushlane.wire.limits import DEFAULT_LANE
from pushlane_dispatcher.core.effects import PublishTicket
from pushlane_dispatcher.queues.route import shard_of
from pushlane_history import event as history
from pushlane_storage.message import Message

if TYPE_CHECKING:
    from tests.simulation.serving import Home, Node, Runner

RESUME_MS = 800
LONG_TTL_MS = 600_000
"""It never ends during a run, unless by a clock that is wrong."""
KEYS = ("a", "b", "c")
HOT_KEY = "hot"
OLDEST = 300
"""Publications that a producer may repeat: far more than a shard remembers numbers of."""
UNSURE_NUMBERS = 8
"""A producer repeats what was not acknowledged while it is among so many of its newest numbers:
fewer than a shard remembers."""
LONG_BODY = "-" + 30 * "x"


class Connection:
    """A socket to one node: ordered both ways, until it is lost."""

    def __init__(self, cluster: Home, node: Node) -> None:
        self.node = node
        self.alive = True
        self._world = cluster.world
        self._up = 0
        self._down = 0

    def send(self, action: Any, *args: Any) -> None:
        """Client to node, for as long as there is a connection."""
        self.request(self._unless_lost, action, args)

    def request(self, action: Any, *args: Any) -> None:
        """The same, but what has reached the node is done, also when the connection is lost."""
        self._up = max(self._up, self._world.now + self._world.latency())
        self._world.after(self._up - self._world.now, self._arrive, action, args)

    def _arrive(self, action: Any, args: tuple[Any, ...]) -> None:
        if self.alive and self.node.alive:
            self.node.guarded(action)(*args)

    def _unless_lost(self, action: Any, args: tuple[Any, ...]) -> None:
        if self.alive:
            action(*args)

    def answer(self, action: Any, *args: Any) -> None:
        """Node to client."""
        self._down = max(self._down, self._world.now + self._world.latency())
        self._world.after(self._down - self._world.now, self._receive, action, args)

    def _receive(self, action: Any, args: tuple[Any, ...]) -> None:
        if self.alive:
            action(*args)


class Client:
    """Somebody with a connection, who connects again when it is lost."""

    def __init__(self, cluster: Home, name: str, queue: str) -> None:
        self.cluster = cluster
        self.queue = queue
        self.world = cluster.world
        self.rng = cluster.world.rng
        self.name = name
        self.conn: Connection | None = None

    def connect(self) -> None:
        if self.conn is not None:
            return
        node = self.cluster.find(self.queue)
        if node is None:
            self.world.after(50, self.connect)
            return
        self.conn = Connection(self.cluster, node)
        self.connected(self.conn)

    def connected(self, conn: Connection) -> None:
        raise NotImplementedError

    def disconnected(self, conn: Connection, broken: bool) -> None:
        raise NotImplementedError

    def deleted(self, label: str) -> None:
        """A queue was deleted: what was asked of it is not answered any more."""
        raise NotImplementedError

    def lose_connection(self, broken: bool = True) -> None:
        """`broken`: by the fault of the client, or of the way to it, not of those who serve it."""
        conn = self.conn
        if conn is None:
            return
        conn.alive = False
        self.conn = None
        self.disconnected(conn, broken)
        self.world.after(self.rng.randrange(1, 2 * RESUME_MS), self.connect)

    def maybe_disconnect(self) -> None:
        if self.world.happens(self.world.chances.disconnect):
            self.world.fault("connection.lost")
            self.lose_connection()


class Publication:
    """One message as its producer sees it, however often it sends it."""

    def __init__(self, uid: str, message: Message, lane: int, patience_ms: int) -> None:
        self.patience_ms = patience_ms
        self.uid = uid
        self.message = message
        self.lane = lane
        self.label = ""
        """What the history calls the queue that it was first sent to."""
        self.stored = False
        """It was acknowledged."""
        self.given_up = False
        """Nobody knows whether it is stored, and its number is so old that a repeat, which counts
        as a duplicate in any case, would not tell."""

    def repeatable(self, wall: int) -> bool:
        """It has an id, and is not so old that it could be forgotten. Numbers never are."""
        if self.message.dedup is None:
            return self.message.producer is not None and not self.given_up
        return abs(wall - self.message.published_at) < self.patience_ms


def stamped(message: Message, wall: int) -> Message:
    """As its server stamps it, by a time of its own."""
    shift = wall - message.published_at
    return msgspec.structs.replace(
        message,
        published_at=wall,
        not_before=message.not_before and message.not_before + shift,
        expires_at=message.expires_at and message.expires_at + shift,
    )


class PublishRequest:
    """One publish: its messages go to their shards, and it is answered when all have answered."""

    def __init__(
        self, producer: Producer, queue: str, items: list[tuple[int, Publication]]
    ) -> None:
        self.producer = producer
        self.queue = queue
        self.items = items
        self.label = ""
        """What the history calls its queue: known when it arrives. Before that nothing of it can
        be stored."""
        self.parts = 0
        """Shards that have not answered yet."""
        self.answers: dict[int, history.Published | str] = {}
        """By op: how it was stored, or why not."""


class PublishPart:
    """What one shard gets of a publish."""

    def __init__(self, request: PublishRequest, items: Sequence[tuple[int, Publication]]) -> None:
        self.request = request
        self.producer = request.producer
        self.items = items

    def messages(self, wall: int) -> list[Message]:
        """Its messages, stamped by the server's time."""
        return [stamped(publication.message, wall) for _, publication in self.items]

    @property
    def lanes(self) -> list[int] | None:
        lanes = [publication.lane for _, publication in self.items]
        return None if set(lanes) == {DEFAULT_LANE} else lanes

    def answered(self, runner: Runner, ticket: PublishTicket) -> None:
        self.producer.answered(self, runner, ticket)


class Producer(Client):
    def __init__(self, cluster: Home, name: str, queue: str = "q") -> None:
        super().__init__(cluster, name, queue)
        self.patience_ms = 1_500 if cluster.short_window else 10**9
        self.seq = 0
        self.count = 0
        self.unanswered: dict[PublishRequest, None] = {}
        self.repeat: list[Publication] = []
        self.past: list[Publication] = []

    def connected(self, conn: Connection) -> None:
        """Some begin with what they sent long ago: they don't know what became of it."""
        if self.past and self.rng.random() < 0.3 and not self.world.calm:
            self.world.fault("producer.old_numbers")
            start = self.rng.randrange(len(self.past))
            self.repeat += [old for old in self.past[start : start + 3] if old.stored]
        self._repeat()

    def disconnected(self, conn: Connection, broken: bool) -> None:
        unanswered, self.unanswered = self.unanswered, {}
        for request in unanswered:
            for op, publication in request.items:
                if request.label:
                    self._failed(op, publication, "connection_lost")
                else:
                    self._again(publication)

    def deleted(self, label: str) -> None:
        for request in [request for request in self.unanswered if request.label == label]:
            del self.unanswered[request]
            for op, publication in request.items:
                self._failed(op, publication, "unavailable")

    def act(self) -> None:
        """Publish a few messages; sometimes one that was published before."""
        self.maybe_disconnect()
        if self.conn is None or len(self.unanswered) > 8:
            return
        if self.world.profile.unsure and self.rng.random() < 0.25:
            self._ask_again()
            return
        compose = self._number if self.rng.random() < 0.25 else self._compose
        batch = [compose() for _ in range(self.rng.choice((1, 1, 2, 3, 8)))]
        if self.past and self.rng.random() < 0.15:
            old = self.rng.choice(self.past[-20:])
            if old.repeatable(self.world.time) and not self._behind(old):
                batch.append(old)
            if self.rng.random() < 0.3:
                batch.append(batch[0])
        wall = self.world.time
        self._send([p for i, p in enumerate(batch) if i == batch.index(p) or p.repeatable(wall)])

    def _ask_again(self) -> None:
        """Whether something was stored, which it was: nothing is left to be written for it."""
        stored = [old for old in self.past[-20:] if old.stored and old.repeatable(self.world.time)]
        if stored:
            self.world.fault("producer.asks_again")
            self._send([self.rng.choice(stored)])

    def _number(self) -> Publication:
        """A message that is numbered and nothing else, as nearly all of an SDK are."""
        self.count, self.seq = self.count + 1, self.seq + 1
        uid = f"{self.name}-{self.count}"
        message = Message(uid.encode(), self.world.time, producer=self.name, producer_seq=self.seq)
        return self._keep(Publication(uid, message, 4, self.patience_ms))

    def _compose(self) -> Publication:
        rng = self.rng
        self.count += 1
        uid = f"{self.name}-{self.count}"
        profile = self.world.profile
        if profile.annex and rng.random() < 0.4:
            uid += LONG_BODY
        key = rng.choice(KEYS) if rng.random() < self.cluster.keyed else None
        if profile.hot_key and rng.random() < 0.7:
            key = HOT_KEY
        dedup = producer = None
        seq = 0
        if rng.random() < 0.3:
            dedup = f"d-{uid}"
        elif rng.random() < 0.6:
            producer, self.seq = self.name, self.seq + 1
            seq = self.seq
        lane, not_before, expires_at = 4, 0, 0
        if key is None:
            if rng.random() < 0.2:
                lane = rng.choice((0, 5, 9))
            if rng.random() < 0.12:
                not_before = self.world.time + rng.choice((50, 500, 3_000, 9_000))
        if rng.random() < 0.1:
            expires_at = self.world.time + rng.choice((200, 2_000, 8_000, LONG_TTL_MS))
        message = Message(
            uid.encode(), self.world.time, False, key, None, dedup, producer, seq, not_before,
            expires_at,
        )  # fmt: skip
        return self._keep(Publication(uid, message, lane, self.patience_ms))

    def _keep(self, publication: Publication) -> Publication:
        """It may be published again."""
        if publication.repeatable(self.world.time):
            self.past.append(publication)
            del self.past[:-OLDEST]
        return publication

    def _send(self, batch: list[Publication]) -> None:
        assert self.conn is not None
        items = [(self.world.op(), publication) for publication in batch]
        if not items:
            return
        request = PublishRequest(self, self.queue, items)
        self.unanswered[request] = None
        self.conn.request(self._arrived, self.conn, request)

    def _arrived(self, conn: Connection, request: PublishRequest) -> None:
        """Which queue has the name now, and which shard a message goes to, is decided here."""
        runners = conn.node.runners.get(request.queue)
        if runners is None:
            conn.answer(self._refused, request, "not_found")
            return
        request.label = label = runners[0].label
        # To another queue of that name it is another message: nobody repeats it there.
        request.items = [item for item in request.items if item[1].label in ("", label)]
        if not request.items:
            self.unanswered.pop(request, None)
            return
        parts: dict[int, list[tuple[int, Publication]]] = {}
        for op, publication in request.items:
            publication.label = label
            self._record(label, op, publication)
            number = shard_of(publication.message, len(runners), self.rng.random)
            parts.setdefault(number, []).append((op, publication))
        request.parts = len(parts)
        for number, items in parts.items():
            runners[number].publish(PublishPart(request, items))

    def _record(self, label: str, op: int, publication: Publication) -> None:
        message = publication.message
        self.world.record(
            history.Publish(
                self.world.now,
                op,
                label,
                publication.uid,
                message.key,
                message.dedup,
                message.producer,
                message.producer_seq or None,
                0,
                bool(message.expires_at),
                max(0, message.expires_at - message.published_at),
                max(0, message.not_before - message.published_at),
            )
        )

    def answered(self, part: PublishPart, runner: Runner, ticket: PublishTicket) -> None:
        request = part.request
        if request not in self.unanswered:
            return
        for index, (op, publication) in enumerate(part.items):
            error = ticket.failed.get(index)
            if error is not None:
                request.answers[op] = error.code
                continue
            duplicate = index in ticket.duplicates
            place = ticket.duplicates.get(index, (publication.lane, ticket.seqs[index]))
            id, seq = ("", 0) if place is None else (runner.id(*place), place[1])
            request.answers[op] = history.Published(0, op, id, duplicate, seq)
        request.parts -= 1
        if not request.parts:
            self._finished(request)

    def _finished(self, request: PublishRequest) -> None:
        del self.unanswered[request]
        for op, publication in request.items:
            answer = request.answers[op]
            if isinstance(answer, str):
                self._failed(op, publication, answer)
            else:
                publication.stored = True
                self.world.record(msgspec.structs.replace(answer, at=self.world.now))

    def _refused(self, request: PublishRequest, code: str) -> None:
        """Nothing of it went to any shard, and the history knows nothing of it."""
        if self.unanswered.pop(request, self) is not self:
            for _, publication in request.items:
                self._again(publication)

    def _failed(self, op: int, publication: Publication, code: str) -> None:
        self.world.record(history.PublishFailed(self.world.now, op, code))
        self._again(publication)

    def _again(self, publication: Publication) -> None:
        if self._behind(publication):
            publication.given_up = True
        if publication.repeatable(self.world.time) and self.rng.random() < 0.8:
            self.repeat.append(publication)
            self.world.after(self.rng.randrange(300), self._repeat)

    def _behind(self, publication: Publication) -> bool:
        number = publication.message.producer_seq
        return not publication.stored and 0 < number <= self.seq - UNSURE_NUMBERS

    def _repeat(self) -> None:
        if self.conn is None:
            return
        batch, self.repeat = self.repeat, []
        for item in batch:
            item.given_up = item.given_up or self._behind(item)
        self._send([item for item in batch if item.repeatable(self.world.time)])
