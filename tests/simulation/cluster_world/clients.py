"""Clients of a cluster: they come to any node, and publish and consume through its doors.

The doors and feeds are the product's own, so what crosses the links is what really would. A client
stays with its node for a while. When it comes back there in time it goes on with its session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pushlane.wire.errors import NotFound, PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.door import Caller, Door
from pushlane_dispatcher.callers.feed import Feed, Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.callers.publication import Publication as Answers
from pushlane_dispatcher.core.act import START
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.ident import parse_id
from pushlane_history import event as history
from pushlane_storage.message import Message
from tests.simulation.clients import (
    RESUME_MS,
    Client,
    Connection,
    Producer,
    PublishRequest,
    stamped,
)
from tests.simulation.consumers import ACTS, Consumer, Holding, Receipt, SettleRequest
from tests.simulation.population import TENANT

if TYPE_CHECKING:
    from tests.simulation.cluster_world.cluster import ClusterOfNodes
    from tests.simulation.cluster_world.node import ClusterNode

STAY = 0.7
"""How likely a client comes back to the node where it was, if that is there."""
REPEAT_MS = 100
ANY = 1 << 30
"""Of owners nobody knows what their grants of a moment ago have come to, so credit is judged by
what a node has pushed to its client (`Session.out`)."""
LOOK_MS = 20


class NodeConnection(Connection):
    """One to a node, with a door there."""

    node: ClusterNode  # type: ignore[assignment]  # less of a node is used here

    def __init__(self, cluster: ClusterOfNodes, node: ClusterNode) -> None:
        super().__init__(cluster, node)  # type: ignore[arg-type]
        assert node.dispatcher is not None

        def failed(error: Exception) -> None:
            cluster.world.failure = cluster.world.failure or error

        self.door: Door = node.dispatcher.door(Caller(TENANT), failed)


def connect(
    client: Client, cluster: ClusterOfNodes, last: ClusterNode | None
) -> ClusterNode | None:
    """To the node where it was, or to another; None: to nobody for now."""
    if client.conn is not None:
        return last
    node = last
    if node is None or not node.at_work or client.rng.random() >= STAY:
        node = cluster.any_node()
    if node is None:
        client.world.after(50, client.connect)
        return last
    client.conn = conn = NodeConnection(cluster, node)
    client.connected(conn)
    return node


class Batch(list[Message]):
    """The messages of a request: its queue is known once they get there."""

    def __init__(self, request: PublishRequest, wall: int) -> None:
        super().__init__(stamped(publication.message, wall) for _, publication in request.items)
        self.request = request

    def reached(self, label: str) -> NotFound | None:
        """They are about to go to the shards of this queue; or not, if some of them were for
        another one of its name."""
        request = self.request
        if any(publication.label not in ("", label) for _, publication in request.items):
            return NotFound("it was for another queue of that name")
        request.label = label
        producer = request.producer
        for op, publication in request.items:
            publication.label = label
            producer._record(label, op, publication)
        return None


class NodeProducer(Producer):
    cluster: ClusterOfNodes
    _last: ClusterNode | None = None

    def connect(self) -> None:
        self._last = connect(self, self.cluster, self._last)

    def _arrived(self, conn: Connection, request: PublishRequest) -> None:
        assert isinstance(conn, NodeConnection)
        label = self.cluster.labels[request.queue]
        request.items = [item for item in request.items if item[1].label in ("", label)]
        if not request.items:
            self.unanswered.pop(request, None)
            return
        assert conn.node.clock is not None
        batch = Batch(request, conn.node.clock.wall())
        lanes = [publication.lane for _, publication in request.items]
        conn.door.publish(self.queue, batch, lanes, partial(self._told, conn, request))

    def _told(
        self, conn: NodeConnection, request: PublishRequest, answers: Answers | None,
        error: PushlaneError | None = None,
    ) -> None:  # fmt: skip
        conn.node.answer(self, conn, self._result, request, answers, error)

    def _result(
        self, request: PublishRequest, answers: Answers | None, error: PushlaneError | None
    ) -> None:
        if request not in self.unanswered:
            return
        if answers is None:
            assert error is not None
            assert not request.label, "refused as a whole, though it went to shards"
            self._refused(request, error.code)
            return
        for index, (op, _) in enumerate(request.items):
            fault = answers.failed.get(index)
            if fault is not None:
                request.answers[op] = fault.code
                continue
            id = answers.ids[index] or ""
            seq = parse_id(id).seq if id else 0
            duplicate = index in answers.duplicates
            request.answers[op] = history.Published(0, op, id, duplicate, seq)
        self._finished(request)

    def disconnected(self, conn: Connection, broken: bool) -> None:
        super().disconnected(conn, broken)
        conn.node.guarded(close)(conn)


def close(conn: NodeConnection) -> None:
    conn.door.closed = True


class Session:
    """A session with one subscription, as its node has it; in the place of a fan."""

    generation = 0
    """The feed has those that count."""

    def __init__(self, consumer: NodeConsumer, conn: NodeConnection, label: str) -> None:
        self.consumer = consumer
        self.world = consumer.world
        self.node = conn.node
        self.conn: NodeConnection | None = conn
        """None: its client is away."""
        self.label = label
        self.session = f"s-{label}"
        self.queue = consumer.cluster.labels[consumer.queue]
        self.credit = consumer.rng.choice((1, 2, 5, 20))
        self.lease_ms = consumer.rng.choice(consumer.lease_ms)
        self.closed = False
        self.over = False
        self.feed: Feed | None = None
        self.parts = [self]
        self.out: set[Receipt] = set()
        """What was pushed to its client, and is neither settled nor lost."""
        self._most = self.credit
        """The highest credit that a shard may go by."""
        self._prefixes: set[str] = set()
        self._away = 0

    @property
    def spec(self) -> Spec:
        consumer = self.consumer
        return Spec(
            TENANT, consumer.queue, self.session, "", self.credit, self.lease_ms,
            consumer.explicit, consumer.ack_none, 20, 300,
        )  # fmt: skip

    def part_of(self, prefix: str) -> Session | None:
        return self if prefix in self._prefixes else None

    def turn(self) -> None:
        """Feeds see to that themselves."""

    def _answer(self, action: Callable[..., None], *args: Any) -> None:
        self.node.answer(self.consumer, self.conn, action, *args)

    def subscribed(self, feed: Feed | None, error: PushlaneError | None) -> None:
        self.feed = feed
        if feed is None:
            self.over = True
            self.world.record(history.SessionEnd(self.world.now, self.session))
        elif self.conn is None:  # meanwhile its client has gone
            self.end()
        self._answer(self.consumer.subscribed, self)

    # Coming and going

    def left(self, conn: NodeConnection) -> None:
        """A connection of its is gone."""
        conn.door.closed = True
        if self.conn is not conn:
            return
        self.conn = None
        self._away += 1
        if self.feed is not None and not self.over:
            self.world.record(history.Detach(self.world.now, self.label))
            self.feed.detach(RESUME_MS)
            self.world.after(RESUME_MS, self.node.guarded(self._give_up), self._away)

    def _give_up(self, away: int) -> None:
        if self.conn is None and self._away == away and not self.over:
            assert self.feed is not None
            self.over = True
            self.feed.abandon()

    def resume(self, conn: NodeConnection, held: list[ReceiptRun]) -> None:
        assert self.feed is not None
        self.conn = conn
        self.out = {(prefix, n) for prefix, low, high in held for n in range(low, high + 1)}
        # The owners may learn of it late. Until then what they count as broken may be so.
        self.feed.resume(held, (), partial(self._resumed, conn))

    def _resumed(self, conn: NodeConnection, lost: list[ReceiptRun]) -> None:
        if self.conn is conn:
            self.gone(lost)
            self.world.record(history.Resume(self.world.now, self.label))
            self._answer(self.consumer.resumed, self, lost)

    def gone(self, receipts: list[ReceiptRun]) -> None:
        for prefix, low, high in receipts:
            self.out.difference_update((prefix, n) for n in range(low, high + 1))

    def unsubscribe(self) -> None:
        self.closed = True
        if self.feed is not None and not self.over:
            self.feed.unsubscribe()

    def end(self) -> None:
        """Its session closed in good order."""
        self.closed = self.over = True
        if self.feed is not None:
            self.feed.end()

    # Credit

    def set_credit(self, credit: int) -> None:
        self.credit = credit
        self._most = max(self._most, credit)
        if self.feed is not None and not self.over:
            self.feed.set_credit(credit)
            self._look(credit)

    def _look(self, credit: int) -> None:
        """A lower credit counts once all shards go by it."""
        if self.credit != credit or self.over or self.feed is None:
            return
        parts = self.feed._parts
        if all(not part._asked for part in parts) and sum(part.most for part in parts) <= credit:
            self._most = credit
        else:
            self.world.after(LOOK_MS, self.node.guarded(self._look), credit)

    # What the feed says

    def deliver(
        self, runs: list[Run], place: str, prefix: str | None, lease_ms: int | None, again: bool
    ) -> None:
        numbers: list[int] = []
        if prefix is not None:
            self._prefixes.add(prefix)
            for run in runs:
                numbers += range(run.n, run.n + len(run.messages))
            if self.conn is not None:
                self.out.update((prefix, n) for n in numbers)
                out, name = len(self.out), f"{self.label}.credit"
                self.world.record(history.Bound(self.world.now, name, out, self._most))
        self._answer(self.consumer.got, self, prefix, numbers)

    def lost(self, receipts: list[ReceiptRun]) -> None:
        self.gone(receipts)
        self._answer(self.consumer.told_lost, receipts)

    def quiet(self) -> None:
        """It waits for what comes."""

    def settled(self) -> None:
        """It stays until its client goes."""

    def ended(self, code: str, message: str) -> None:
        self.world.fault(f"feed.{code}")
        self.over = True
        self._answer(self.consumer.ended, self)

    def elsewhere(self) -> None:
        raise AssertionError("a node of a cluster sends nobody away")

    def reattached(self) -> None:
        """What it needs stands with each delivery."""

    def superseded(self) -> None:
        raise AssertionError("nobody goes on elsewhere here")


class NodeConsumer(Consumer):
    cluster: ClusterOfNodes
    fan: Session | None  # type: ignore[assignment]
    _last: ClusterNode | None = None

    def connect(self) -> None:
        self._last = connect(self, self.cluster, self._last)

    def connected(self, conn: Connection) -> None:
        self.ready = False
        fan = self.fan
        assert isinstance(conn, NodeConnection)
        known = fan is not None and fan.node is conn.node and fan.feed is not None
        if known and fan is not None and not fan.over and not self.ack_none:
            conn.send(self._resume, conn, fan)
        else:
            self._end_session()
            conn.send(self._subscribe, conn)

    def _subscribe(self, conn: Connection) -> None:
        assert isinstance(conn, NodeConnection)
        if self.queue not in self.cluster.there:
            self.world.after(200, self._try_again, conn)
            return
        self.subscriptions += 1
        fan = self.fan = Session(self, conn, f"{self.name}:{self.subscriptions}")
        self.world.record(
            history.Subscribe(self.world.now, fan.label, fan.session, fan.queue, ANY, self.ack_none)
        )
        conn.door.subscribe(fan.spec, fan, fan.subscribed)

    def subscribed(self, fan: Session) -> None:
        if self.fan is not fan:
            return
        if fan.over:
            self.ended(fan)
            return
        self.ready, self.fed = True, self.world.now

    def ended(self, fan: Session) -> None:
        """Its queue was deleted, or could not be had."""
        if self.fan is fan and self.conn is not None:
            for request in self.unanswered:
                for op, _ in request.items:
                    self.world.record(history.Verdict(self.world.now, op, "unknown"))
            self.unanswered.clear()
            self._end_session()
            self.ready = False
            self.world.after(200, self._try_again, self.conn)

    def _resume(self, conn: Connection, fan: Any) -> None:
        assert isinstance(conn, NodeConnection)
        if fan.over or fan is not self.fan:
            self._end_session()
            self._subscribe(conn)
            return
        listed = {receipt: None for receipt in self.held if self.rng.random() < 0.8}
        for receipt in [receipt for receipt in self.held if receipt not in listed]:
            del self.held[receipt]
        self.world.fault("session.resumed")
        assert isinstance(fan, Session)
        fan.resume(conn, [(prefix, n, n) for prefix, n in listed])

    def resumed(self, fan: Session, lost: list[ReceiptRun]) -> None:
        if self.fan is not fan:
            return
        self.ready, self.fed = True, self.world.now
        self.told_lost(lost)
        doubtful, self.doubtful = self.doubtful, []
        for prefix, n in doubtful:
            self._settle("ack", prefix, [n])
        for holding in self.held.values():
            holding.taken = False
        self._take_up_next()

    def disconnected(self, conn: Connection, broken: bool) -> None:
        assert isinstance(conn, NodeConnection)
        unanswered, self.unanswered = self.unanswered, {}
        for request in unanswered:
            for op, n in request.items:
                self.world.record(history.Verdict(self.world.now, op, "unknown"))
                if request.own:
                    self.doubtful.append((request.prefix, n))
        if self.fan is not None:
            self.world.after(self.world.latency(), conn.node.guarded(self.fan.left), conn)

    # What comes from the server

    def got(self, fan: Session, prefix: str | None, numbers: list[int]) -> None:
        self.fed = self.world.now
        if self.fan is not fan or prefix is None:
            return
        for n in numbers:
            self.held.setdefault((prefix, n), Holding())
        self._take_up_next()

    def verdict(
        self, fan: Session, request: SettleRequest, gather: Gather, kind: str, silently: bool
    ) -> None:
        if request not in self.unanswered:
            return
        del self.unanswered[request]
        assert gather.error is None or gather.error.code == "unavailable", gather.error
        lost, duplicate = _numbers(gather.lost), _numbers(gather.duplicate)
        for op, n in request.items:
            result: Any = "unknown" if gather.error is not None or silently else "ok"
            result = "lease_lost" if n in lost else "duplicate" if n in duplicate else result
            self.world.record(history.Verdict(self.world.now, op, result))
            if gather.error is not None and request.own:
                self.world.after(REPEAT_MS, self._repeat, fan, kind, request.prefix, n)

    def _repeat(self, fan: Session, kind: str, prefix: str, n: int) -> None:
        """Nobody knows what became of it."""
        if self.fan is fan:
            self._settle(kind, prefix, [n])

    def _start(self, conn: Connection, fan: Any, receipt: Receipt) -> None:
        prefix, n = receipt
        if fan.feed is not None and not fan.over:
            fan.feed.settle(START, [(prefix, n, n)], lambda _: None)

    def _arrived(
        self, conn: Connection, part: Any, generation: int, kind: str, request: SettleRequest
    ) -> None:
        fan: Session = part
        numbers = [n for _, n in request.items]
        receipts = [(request.prefix, numbers[0], numbers[-1])]
        silently = kind == "ack" and numbers[0] % 2 == 0

        def answer(gather: Gather) -> None:
            assert isinstance(conn, NodeConnection)
            conn.node.answer(self, conn, self.verdict, fan, request, gather, kind, silently)

        if fan.feed is None or fan.over:
            answer(Gather.all_lost(receipts))
        else:
            if kind != "extend":
                fan.gone(receipts)
            fan.feed.settle(ACTS[kind], receipts, answer, silently=silently)

    def _set_credit(self, conn: Connection, fan: Any, credit: int) -> None:
        fan.set_credit(credit)


def _numbers(receipts: list[ReceiptRun]) -> set[int]:
    return {n for _, low, high in receipts for n in range(low, high + 1)}
