"""Producers and consumers: well-behaved, slow, failing, stuck, disconnected, confused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pushlane.wire.limits import DEFAULT_LANE
from pushlane_dispatcher.core.effects import Deliver, PublishTicket, Receipts, SettleTicket
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_storage.history import event as history
from pushlane_storage.message import Message

if TYPE_CHECKING:
    from tests.simulation.serving import Home, Node, Runner

RESUME_MS = 800
KEYS = ("a", "b", "c")


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

    def __init__(self, cluster: Home, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.rng = cluster.world.rng
        self.name = name
        self.conn: Connection | None = None

    def connect(self) -> None:
        node = self.cluster.node
        if self.conn is not None or node is None:
            if self.conn is None:
                self.world.after(50, self.connect)
            return
        self.conn = Connection(self.cluster, node)
        self.connected(self.conn)

    def connected(self, conn: Connection) -> None:
        raise NotImplementedError

    def disconnected(self, conn: Connection) -> None:
        raise NotImplementedError

    def lose_connection(self) -> None:
        conn = self.conn
        if conn is None:
            return
        conn.alive = False
        self.conn = None
        self.disconnected(conn)
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

    def repeatable(self, wall: int) -> bool:
        """It has an id, and is not so old that it could be forgotten."""
        if self.message.dedup is None and self.message.producer is None:
            return False
        return abs(wall - self.message.published_at) < self.patience_ms


class PublishRequest:
    def __init__(self, producer: Producer, items: list[tuple[int, Publication]]) -> None:
        self.producer = producer
        self.items = items

    def answered(self, runner: Runner, ticket: PublishTicket) -> None:
        self.producer.answered(self, runner, ticket)


class Producer(Client):
    def __init__(self, cluster: Home, name: str) -> None:
        super().__init__(cluster, name)
        self.patience_ms = 1_500 if cluster.short_window else 10**9
        self.seq = 0
        self.count = 0
        self.unanswered: dict[PublishRequest, None] = {}
        self.repeat: list[Publication] = []
        self.past: list[Publication] = []

    def connected(self, conn: Connection) -> None:
        self._repeat()

    def disconnected(self, conn: Connection) -> None:
        unanswered, self.unanswered = self.unanswered, {}
        for request in unanswered:
            for op, publication in request.items:
                self._failed(op, publication, "connection_lost")

    def act(self) -> None:
        """Publish a few messages; sometimes one that was published before."""
        self.maybe_disconnect()
        if self.conn is None or len(self.unanswered) > 8:
            return
        compose = self._number if self.rng.random() < 0.25 else self._compose
        batch = [compose() for _ in range(self.rng.choice((1, 1, 2, 3, 8)))]
        if self.past and self.rng.random() < 0.15:
            old = self.rng.choice(self.past)
            if old.repeatable(self.world.wall):
                batch.append(old)
            if self.rng.random() < 0.3:
                batch.append(batch[0])
        wall = self.world.wall
        self._send([p for i, p in enumerate(batch) if i == batch.index(p) or p.repeatable(wall)])

    def _number(self) -> Publication:
        """A message that is numbered and nothing else, as nearly all of an SDK are."""
        self.count, self.seq = self.count + 1, self.seq + 1
        uid = f"{self.name}-{self.count}"
        message = Message(uid.encode(), self.world.wall, producer=self.name, producer_seq=self.seq)
        return self._keep(Publication(uid, message, 4, self.patience_ms))

    def _compose(self) -> Publication:
        rng = self.rng
        self.count += 1
        uid = f"{self.name}-{self.count}"
        key = rng.choice(KEYS) if rng.random() < 0.35 else None
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
                not_before = self.world.wall + rng.choice((50, 500, 3_000, 9_000))
        if rng.random() < 0.1:
            expires_at = self.world.wall + rng.choice((200, 2_000, 8_000))
        message = Message(
            uid.encode(), self.world.wall, False, key, None, dedup, producer, seq, not_before,
            expires_at,
        )  # fmt: skip
        return self._keep(Publication(uid, message, lane, self.patience_ms))

    def _keep(self, publication: Publication) -> Publication:
        """It may be published again."""
        if publication.repeatable(self.world.wall):
            self.past.append(publication)
            del self.past[:-20]
        return publication

    def _send(self, batch: list[Publication]) -> None:
        assert self.conn is not None
        items = [(self.world.op(), publication) for publication in batch]
        if not items:
            return
        for op, publication in items:
            message = publication.message
            self.world.record(
                history.Publish(
                    self.world.now,
                    op,
                    "q",
                    publication.uid,
                    message.key,
                    message.dedup,
                    message.producer,
                    message.producer_seq or None,
                    0,
                    bool(message.expires_at),
                )
            )
        request = PublishRequest(self, items)
        self.unanswered[request] = None
        self.conn.request(self._arrived, self.conn.node, request)

    def _arrived(self, node: Node, request: PublishRequest) -> None:
        runner = node.runners["q"]
        lanes = [publication.lane for _, publication in request.items]
        runner.shard.publish(
            [publication.message for _, publication in request.items],
            node.now,
            None if set(lanes) == {DEFAULT_LANE} else lanes,
            runner.publish_token(request),
        )
        runner.turn()

    def answered(self, request: PublishRequest, runner: Runner, ticket: PublishTicket) -> None:
        if request not in self.unanswered:
            return
        del self.unanswered[request]
        for index, (op, publication) in enumerate(request.items):
            error = ticket.failed.get(index)
            if error is not None:
                self._failed(op, publication, error.code)
                continue
            place = ticket.duplicates.get(index)
            lane, seq = place or (publication.lane, ticket.seqs[index])
            self.world.record(
                history.Published(self.world.now, op, runner.id(lane, seq), place is not None, seq)
            )

    def _failed(self, op: int, publication: Publication, code: str) -> None:
        self.world.record(history.PublishFailed(self.world.now, op, code))
        if publication.repeatable(self.world.wall) and self.rng.random() < 0.8:
            self.repeat.append(publication)
            self.world.after(self.rng.randrange(300), self._repeat)

    def _repeat(self) -> None:
        if self.conn is None:
            return
        batch, self.repeat = self.repeat, []
        self._send([item for item in batch if item.repeatable(self.world.wall)])


class Holding:
    """A message that a consumer has, as far as it knows."""

    __slots__ = ("n", "started")

    def __init__(self, n: int) -> None:
        self.n = n
        self.started = False


class SettleRequest:
    def __init__(
        self,
        consumer: Consumer,
        conn: Connection,
        items: list[tuple[int, int]],
        own: bool = True,
    ) -> None:
        self.consumer = consumer
        self.conn = conn
        self.items = items
        """(op, receipt number)"""
        self.own = own
        """The receipts are of this subscription: what is unknown of them is asked again."""

    def answered(self, ticket: SettleTicket) -> None:
        self.consumer.answered(self, ticket)


class Consumer(Client):
    """One session with one subscription."""

    def __init__(self, cluster: Home, name: str, queue: str) -> None:
        super().__init__(cluster, name)
        self.queue = queue
        self.sub: Subscription | None = None
        self.generation = 0
        self.held: dict[int, Holding] = {}
        self.old: list[tuple[str, int]] = []
        self.unanswered: dict[SettleRequest, None] = {}
        self.doubtful: list[int] = []
        self.subscriptions = 0
        self.ready = False
        draw = self.rng.random()
        # Where a cache may come back as it was, leases last and receipts are remembered.
        self.hoards = cluster.world.store == "cassandra"
        self.lease_ms = (1_500, 4_000) if self.hoards else (1_000, 1_500)
        self.pace_ms = 600 if self.hoards else 120
        self.ack_none = draw < 0.1 and queue == "q"
        self.explicit = not self.ack_none and draw < 0.6

    # Connecting

    @property
    def idle(self) -> bool:
        """It has no session yet, or none any more: it can't say anything."""
        return self.conn is None or self.sub is None or not self.ready

    def connected(self, conn: Connection) -> None:
        runner = conn.node.runners[self.queue]
        self.ready = False
        sub = None
        if self.sub is not None and not self.ack_none:
            sub = runner.shard.consumers.subscriptions.get(self.sub.prefix)
        if sub is not None and sub.away_until is not None:
            conn.send(self._resume, conn, sub)
        else:
            self._end_session()
            conn.send(self._subscribe, conn)

    def _end_session(self) -> None:
        if self.sub is not None:
            self.world.record(history.SessionEnd(self.world.now, self.sub.session))
        for request in self.unanswered:  # the next subscription counts its receipts anew
            request.own = False
        self.sub = None
        self.held.clear()
        self.doubtful.clear()

    def _subscribe(self, conn: Connection) -> None:
        self.subscriptions += 1
        prefix = f"{self.name}:{self.subscriptions}"
        credit = self.rng.choice((1, 2, 5, 20))
        sub = Subscription(
            prefix, f"s-{prefix}", credit, self.rng.choice(self.lease_ms),
            explicit=self.explicit, ack_none=self.ack_none,
        )  # fmt: skip
        runner = conn.node.runners[self.queue]
        sub.token = runner.sink(self, sub)
        runner.shard.attach(sub)
        self.sub, self.generation, self.ready = sub, sub.generation, True
        self.world.record(
            history.Subscribe(
                self.world.now, prefix, sub.session, self.queue, credit, self.ack_none
            )
        )
        runner.turn()

    def _resume(self, conn: Connection, sub: Subscription) -> None:
        runner = conn.node.runners[self.queue]
        if runner.shard.consumers.subscriptions.get(sub.prefix) is not sub:
            self._end_session()
            self._subscribe(conn)
            return
        listed = [(sub.prefix, n, n) for n in self.held if self.rng.random() < 0.8]
        for _, n, _ in [(0, n, 0) for n in list(self.held) if (sub.prefix, n, n) not in listed]:
            del self.held[n]
        sub.token = runner.sink(self, sub)
        lost = runner.shard.resume(sub, listed, conn.node.now)
        self.world.record(history.Credit(self.world.now, sub.prefix, 5))
        runner.shard.credit(sub, 5)
        self.sub, self.generation, self.ready = sub, sub.generation, True
        self.told_lost(lost)
        runner.turn()
        for n in self.doubtful:
            self._settle("ack", [n])
        self.doubtful.clear()
        for n in self.held:  # what was under way goes on
            self.world.after(self._pace(), self._take_up, sub, n)

    def disconnected(self, conn: Connection) -> None:
        unanswered, self.unanswered = self.unanswered, {}
        for request in unanswered:
            for op, n in request.items:
                self.world.record(history.Verdict(self.world.now, op, "unknown"))
                if request.own:
                    self.doubtful.append(n)
        if self.sub is not None and conn.node.alive:
            # The node notices a little later that the connection is gone.
            self.world.after(
                self.world.latency(), conn.node.guarded(self._detached), conn, self.sub
            )

    def _detached(self, conn: Connection, sub: Subscription) -> None:
        runner = conn.node.runners[self.queue]
        back = self.conn is not None and self.sub is sub
        if not back and runner.shard.consumers.subscriptions.get(sub.prefix) is sub:
            runner.shard.detach(sub, RESUME_MS, conn.node.now)
            runner.turn()

    # What comes from the server

    def delivered(self, runner: Runner, effect: Deliver) -> None:
        if effect.subscription is not self.sub or self.ack_none:
            return
        for run in effect.runs:
            for index in range(len(run.messages)):
                n = run.n + index
                if n not in self.held:
                    self.held[n] = Holding(n)
                    self.world.after(self._pace(), self._take_up, self.sub, n)

    def _pace(self) -> int:
        return self.rng.randrange(1, self.pace_ms)

    def told_lost(self, receipts: list[Receipts]) -> None:
        for prefix, low, high in receipts:
            if self.sub is not None and prefix == self.sub.prefix:
                for n in range(low, high + 1):
                    if self.held.pop(n, None) is not None:
                        self.old.append((prefix, n))
                        del self.old[:-10]

    def answered(self, request: SettleRequest, ticket: SettleTicket) -> None:
        if request not in self.unanswered:
            return
        del self.unanswered[request]
        lost = _numbers(ticket.lost)
        duplicate = _numbers(ticket.duplicate)
        for op, n in request.items:
            result: Any = "lease_lost" if n in lost else "duplicate" if n in duplicate else "ok"
            self.world.record(history.Verdict(self.world.now, op, result))

    # What it does with a message

    def _take_up(self, sub: Subscription, n: int) -> None:
        holding = self.held.get(n)
        if self.idle or self.sub is not sub or holding is None:
            return
        assert self.conn is not None
        if self.explicit and not holding.started:
            holding.started = True
            self.conn.send(self._start, self.conn, sub, self.generation, n)
        chances = self.world.chances
        if self.world.happens(chances.stuck):
            self.world.fault("consumer.stuck")
            return
        if self.world.happens(chances.slow):
            self.world.fault("consumer.slow")
            self.world.after(self.rng.randrange(900, 2_500), self._finish, sub, n, "ack")
            return
        kind = "ack"
        if self.world.happens(chances.failing):
            self.world.fault("consumer.failing")
            kind = self.rng.choice(("nack", "nack", "delay", "reject", "extend"))
        self.world.after(self._pace(), self._finish, sub, n, kind)

    def _start(self, conn: Connection, sub: Subscription, generation: int, n: int) -> None:
        runner = conn.node.runners[self.queue]
        entry = sub.held.get(n)
        ticket = SettleTicket()
        reserved = entry is not None and entry.state is State.RESERVED
        runner.shard.start(sub, generation, [(sub.prefix, n, n)], ticket, conn.node.now)
        if reserved and not ticket.lost:
            runner.started(f"{sub.prefix}.{n}")
        runner.turn()

    def _finish(self, sub: Subscription, n: int, kind: str) -> None:
        if self.idle or self.sub is not sub or n not in self.held:
            return
        if kind == "extend":
            self._settle("extend", [n])
            self.world.after(self.rng.randrange(500, 1_500), self._finish, sub, n, "ack")
            return
        numbers = [n]
        if kind == "ack":  # what else is done goes in the same run
            while self.held.get(numbers[-1] + 1) is not None and self.rng.random() < 0.7:
                numbers.append(numbers[-1] + 1)
        for number in numbers:
            del self.held[number]
        if self.hoards:
            self.old += [(sub.prefix, number) for number in numbers]
            del self.old[:-10]
        self._settle(kind, numbers)
        if self.rng.random() < 0.1:
            self._settle("ack", numbers)  # again

    def _settle(self, kind: str, numbers: list[int]) -> None:
        if self.idle:
            return
        assert self.conn is not None
        assert self.sub is not None
        sub = self.sub
        request = SettleRequest(self, self.conn, [(self.world.op(), n) for n in numbers])
        recorded: Any = {"delay": "nack"}.get(kind, kind)
        for op, n in request.items:
            self.world.record(
                history.Settle(self.world.now, op, recorded, f"{sub.prefix}.{n}", sub.session)
            )
        self.unanswered[request] = None
        self.conn.request(self._arrived, self.conn, sub, self.generation, kind, sub.prefix, request)

    def _arrived(
        self, conn: Connection, sub: Subscription, generation: int, kind: str, prefix: str,
        request: SettleRequest,
    ) -> None:  # fmt: skip
        runner = conn.node.runners[self.queue]
        shard, now = runner.shard, conn.node.now
        numbers = [n for _, n in request.items]
        receipts = [(prefix, numbers[0], numbers[-1])]
        silent = kind == "ack" and numbers[0] % 2 == 0
        ticket = SettleTicket(runner.settle_token(request), silent)
        if kind == "extend":
            shard.extend(sub, generation, receipts, 2_000, ticket, now)
        elif kind == "ack":
            shard.ack(sub, generation, receipts, ticket, now)
        elif kind == "delay":
            shard.nack(sub, generation, receipts, ticket, now, delay_ms=700, error="later")
        else:
            dead = kind == "reject"
            shard.nack(sub, generation, receipts, ticket, now, error=kind, dead=dead)
        runner.turn()

    # Now and then

    def act(self) -> None:
        self.maybe_disconnect()
        if self.idle:
            return
        assert self.conn is not None
        assert self.sub is not None
        if self.world.happens(self.world.chances.stale):
            self._confuse()
        draw = self.rng.random()
        if draw < 0.03:
            self.conn.send(self._set_credit, self.conn, self.sub, self.rng.choice((1, 3, 8)))
        elif draw < 0.04 and not self.world.calm:
            self.conn.send(self._leave, self.conn, self.sub, self.rng.random() < 0.5)

    def _confuse(self) -> None:
        """Settle with receipts that are stale, or another's."""
        assert self.conn is not None
        assert self.sub is not None
        others = [
            (c.sub.prefix, n)
            for c in self.cluster.consumers
            if c is not self and c.sub is not None and c.queue == self.queue
            for n in c.held
        ]
        wrong = self.old + others[:5]
        if not wrong:
            return
        self.world.fault("receipt.stale_or_foreign")
        prefix, n = self.rng.choice(wrong)
        own = prefix == self.sub.prefix
        request = SettleRequest(self, self.conn, [(self.world.op(), n)], own)
        self.world.record(
            history.Settle(
                self.world.now, request.items[0][0], "ack", f"{prefix}.{n}", self.sub.session
            )
        )
        self.unanswered[request] = None
        self.conn.request(
            self._arrived, self.conn, self.sub, self.generation, "ack", prefix, request
        )

    def _set_credit(self, conn: Connection, sub: Subscription, credit: int) -> None:
        runner = conn.node.runners[self.queue]
        self.world.record(history.Credit(self.world.now, sub.prefix, credit))
        runner.shard.credit(sub, credit)
        runner.turn()

    def _leave(self, conn: Connection, sub: Subscription, gracefully: bool) -> None:
        """Close the session, or only unsubscribe, and come back as somebody new."""
        runner = conn.node.runners[self.queue]
        if gracefully:
            runner.shard.end(sub, conn.node.now)
            if self.sub is sub:
                self._end_session()
                self._subscribe(conn)
        else:
            self.world.record(history.Unsubscribe(self.world.now, sub.prefix))
            runner.shard.unsubscribe(sub, conn.node.now)
            self.world.after(1_000, self._return, sub)
        runner.turn()

    def _return(self, sub: Subscription) -> None:
        if self.sub is not sub:
            return
        if self.conn is None or not self.ready:
            self.world.after(100, self._return, sub)
        else:
            self.conn.send(self._leave, self.conn, sub, True)


def _numbers(receipts: list[Receipts]) -> set[int]:
    return {n for _, low, high in receipts for n in range(low, high + 1)}
