"""Consumers of a cluster: they talk to the gateway of any node, and go on with their session there.

A session that a node does not know any more begins anew. Now and then a client is back before its
last node knows that it was gone, says something over its old connection after that, or tries to go
on with the session of somebody else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pushlane.wire.frames import (
    Ack,
    Credit,
    Deliver,
    Done,
    Ended,
    ErrorFrame,
    Extend,
    Goaway,
    LeaseLostFrame,
    Nack,
    Start,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from pushlane.wire.receipts import ReceiptRun, compress, parse
from pushlane_dispatcher.callers.feed import Feed
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.act import ACK
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Rule
from pushlane_history import event as history
from tests.simulation.clients import RESUME_MS, Connection
from tests.simulation.cluster_world.clients import connect
from tests.simulation.cluster_world.gateway import NodeConnection, Welcomed
from tests.simulation.consumers import ACTS, Consumer, Holding, Receipt, SettleRequest
from tests.simulation.population import TENANT

if TYPE_CHECKING:
    from tests.simulation.cluster_world.cluster import ClusterOfNodes
    from tests.simulation.cluster_world.node import ClusterNode
    from tests.simulation.cluster_world.world import ClusterWorld
    from tests.simulation.profile import Manner

REPEAT_MS = 100
ANY = 1 << 30
"""Of owners nobody knows what their grants of a moment ago have come to, so credit is judged by
what nodes have pushed to their clients (`Stream.out`)."""
LOOK_MS = 20
UNKNOWN_MS = 2_000
"""How long who asks over an old connection waits for the answer."""


class Stream:
    """A consumer's subscription, wherever its session is; in the place of a fan."""

    generation = 0
    """Feeds have those that count."""

    def __init__(self, consumer: NodeConsumer, conn: NodeConnection, welcomed: Welcomed) -> None:
        self.consumer = consumer
        self.world = consumer.world
        self.id = welcomed.id
        self.session = welcomed.ref
        self.label = f"{consumer.name}:{consumer.subscriptions}"
        self.queue = consumer.cluster.labels[consumer.queue]
        self.credit = consumer.rng.choice((1, 2, 5, 20))
        self.closed = False
        self.number = 0
        """Of its sub; 0: it has not heard yet."""
        self.member = conn.node.member
        self.at: NodeConnection | None = conn
        """Where its session has a connection now."""
        self.came = conn
        """How its client came last: what is pushed over an older connection is for nobody."""
        self.away = False
        """A node noticed that its connection is lost, and it has not come since."""
        self.parts = [self]
        self.out: set[Receipt] = set()
        """What was pushed to its client, and is neither settled nor lost."""
        self.settled: set[Receipt] = set()
        """What its client has settled, though the gateway may send it again: it was asked for
        before the settle came. It needs no permit."""
        self._most = self.credit
        """The highest credit that a shard may go by."""

    def part_of(self, prefix: str) -> Stream | None:
        return self if any(receipt[0] == prefix for receipt in self.out) else None

    @property
    def feed(self) -> Feed | None:
        session = None if self.at is None else self.at.end.session
        sub = None if session is None else session.subs.get(self.number)
        return None if sub is None else sub.feed

    def back(self, conn: NodeConnection, held: Iterable[Receipt]) -> None:
        """Its client comes, and says what it has."""
        self.at, self.came, self.away = None, conn, False
        self.out = set(held)
        self.settled.clear()

    def resumed(self, conn: NodeConnection) -> None:
        self.at = conn
        feed = self.feed
        if feed is not None:  # a node that died may not have written the last one down
            self._most = max(self._most, self.credit, feed._credit)
            self.credit = feed._credit
            self._look(conn, self.credit)

    def gone(self, receipts: Iterable[Receipt]) -> None:
        self.out.difference_update(receipts)

    def pushed(self, receipts: list[Receipt]) -> None:
        self.out.update(receipt for receipt in receipts if receipt not in self.settled)
        out, name = len(self.out), f"{self.label}.credit"
        self.world.record(history.Bound(self.world.now, name, out, self._most))

    def set_credit(self, conn: NodeConnection, credit: int) -> None:
        self.credit = credit
        self._most = max(self._most, credit)
        conn.end.take(Credit(self.number, credit))
        self._look(conn, credit)

    def _look(self, conn: NodeConnection, credit: int) -> None:
        """A lower credit counts once all shards go by it."""
        feed = self.feed
        if self.at is not conn or self.credit != credit or feed is None:
            return
        parts = feed._parts
        if all(not part._asked for part in parts) and sum(part.most for part in parts) <= credit:
            self._most = credit
        else:
            self.world.after(LOOK_MS, conn.node.guarded(self._look), conn, credit)


class NodeConsumer(Consumer):
    cluster: ClusterOfNodes
    world: ClusterWorld
    fan: Stream | None  # type: ignore[assignment]
    _last: ClusterNode | None = None
    _before: NodeConnection | None = None
    """The connection before this one, which may be there still."""

    def __init__(
        self, cluster: ClusterOfNodes, name: str, queue: str, manner: Manner = "crowd"
    ) -> None:
        super().__init__(cluster, name, queue, manner)
        self.identity = Identity(name, TENANT, (Rule("admin", "*"),), key=name)
        self._asked: dict[int, SettleRequest] = {}
        """By the id of the frame."""

    # Connecting

    def connect(self) -> None:
        self._last = connect(self, self.cluster, self._last)

    def connected(self, conn: Connection) -> None:
        assert isinstance(conn, NodeConnection)
        self.ready = False
        fan = self.fan
        if fan is None or not fan.number or self.ack_none:
            conn.send(conn.end.hello, self.identity, None)
            return
        listed = {receipt: None for receipt in self.held if self.rng.random() < 0.8}
        for receipt in [receipt for receipt in self.held if receipt not in listed]:
            del self.held[receipt]
        conn.send(self._resume, conn, fan, list(listed))

    def _resume(self, conn: Connection, fan: Any, listed: list[Receipt] | None = None) -> None:
        assert isinstance(conn, NodeConnection)
        listed = listed or []
        fan.back(conn, listed)
        runs = {fan.number: [(prefix, n, n) for prefix, n in listed]}
        conn.end.hello(self.identity, (fan.id, runs))

    def _welcomed(self, conn: NodeConnection, welcomed: Welcomed) -> None:
        fan = self.fan
        if not welcomed.resumed or fan is None:
            self._end_session()
            conn.send(self._subscribe, conn, welcomed)
            return
        if conn.node.member != fan.member:
            self.world.fault("session.elsewhere")
            fan.member = conn.node.member
        self.world.fault("session.resumed")
        self.ready, self.fed = True, self.world.now
        self.told_lost([run for runs in welcomed.lost.values() for run in runs])
        if fan.closed:  # its connection broke before it said that it comes as somebody new
            self.world.after(1_000, self._return, fan)
        self._say_late(fan, conn)
        doubtful, self.doubtful = self.doubtful, []
        for prefix, n in doubtful:
            self._settle("ack", prefix, [n])
        for holding in self.held.values():
            holding.taken = False
        self._take_up_next()

    def _subscribe(self, conn: Connection, welcomed: Welcomed | None = None) -> None:
        assert isinstance(conn, NodeConnection)
        assert welcomed is not None
        if self.queue not in self.cluster.there:
            self._come_again(conn)
            return
        self.subscriptions += 1
        fan = self.fan = Stream(self, conn, welcomed)
        self.cluster.streams[fan.session] = fan
        self.world.record(
            history.Subscribe(self.world.now, fan.label, fan.session, fan.queue, ANY, self.ack_none)
        )
        conn.end.take(
            Subscribe(
                self.world.op(), self.queue, fan.credit,
                "none" if self.ack_none else "explicit",
                "explicit" if self.explicit else "delivery",
                self.rng.choice(self.lease_ms),
            )
        )  # fmt: skip

    def _come_again(self, conn: NodeConnection) -> None:
        """A little later, with another session."""
        self._unknown()
        self._end_session()
        self.ready = False
        if self.conn is conn:
            conn.clean = True
            self.lose_connection(broken=False)

    def closed(self, conn: NodeConnection) -> None:
        """By its node."""
        if self.conn is conn:
            self.lose_connection(broken=False)

    def disconnected(self, conn: Connection, broken: bool) -> None:
        assert isinstance(conn, NodeConnection)
        self._before = conn
        self._unknown()
        delay = self.world.latency()
        if not self.world.calm and self.rng.random() < 0.2:
            self.world.fault("connection.half_open")
            delay = self.rng.randrange(2 * RESUME_MS)
        self.world.after(delay, conn.node.guarded(lambda: conn.end.left(clean=conn.clean)))

    def _unknown(self) -> None:
        """Nobody will say what became of what was asked."""
        self._asked.clear()
        unanswered, self.unanswered = self.unanswered, {}
        for request in unanswered:
            for op, n in request.items:
                self.world.record(history.Verdict(self.world.now, op, "unknown"))
                if request.own:
                    self.doubtful.append((request.prefix, n))

    # What a gateway does, as it does it

    def pushed(self, conn: NodeConnection, frame: Any) -> None:
        fan = self.fan
        if fan is None or conn.end.session is None or conn.end.session.ref != fan.session:
            return
        if conn is not fan.came:
            return
        if isinstance(frame, Welcomed):
            lost = [run for runs in frame.lost.values() for run in runs]
            fan.gone((prefix, n) for prefix, low, high in lost for n in range(low, high + 1))
            fan.resumed(conn)
        elif fan.at is not conn:
            return
        elif isinstance(frame, Deliver):
            receipts = [_receipt(one.receipt) for one in frame.messages if one.receipt]
            if receipts:
                fan.pushed(receipts)
        elif isinstance(frame, LeaseLostFrame):
            fan.gone(_each(frame.receipts))

    def detached(self, ref: str) -> None:
        """Its node noticed that the connection is lost."""
        if self.fan is not None and self.fan.session == ref:
            self.fan.at = None
        stream = self.cluster.streams.get(ref)
        if stream is not None:
            stream.away = True
            self.world.record(history.Detach(self.world.now, stream.label))

    # What comes from a gateway

    def heard(self, conn: NodeConnection, frame: Any) -> None:
        fan = self.fan
        if isinstance(frame, Welcomed):
            self._welcomed(conn, frame)
        elif isinstance(frame, Goaway):
            self.world.fault(f"goaway.{frame.reason}")
            self.world.after(self.rng.randrange(1, 300), self.closed, conn)
        elif fan is None:
            return
        elif isinstance(frame, Subscribed):
            fan.number = frame.sub
            if fan.feed is not None:  # there may have been another queue of that name
                fan.queue = self.cluster.names[fan.feed._queue_id]
            self.ready, self.fed = True, self.world.now
        elif isinstance(frame, Deliver):
            self._got(frame)
        elif isinstance(frame, LeaseLostFrame):
            self.told_lost([parse(receipt) for receipt in frame.receipts])
        elif isinstance(frame, Done):
            self._done(frame)
        elif isinstance(frame, Ended):
            self.world.fault(f"sub.{frame.code}")
            self._come_again(conn)
        else:
            assert isinstance(frame, ErrorFrame), frame
            self._refused(conn, fan, frame)

    def _take_up_next(self) -> None:
        if not self.world.asleep:
            super()._take_up_next()

    def _got(self, frame: Deliver) -> None:
        self.fed = self.world.now
        for one in frame.messages:
            if one.receipt:
                self.held.setdefault(_receipt(one.receipt), Holding())
        self._take_up_next()

    def _done(self, frame: Done) -> None:
        request = self._asked.pop(frame.id, None)
        if request is None or self.unanswered.pop(request, self) is self:
            return
        lost, duplicate = set(_each(frame.lease_lost)), set(_each(frame.duplicate))
        for op, n in request.items:
            receipt = request.prefix, n
            result: Any = "lease_lost" if receipt in lost else "ok"
            result = "duplicate" if receipt in duplicate else result
            self.world.record(history.Verdict(self.world.now, op, result))

    def _refused(self, conn: NodeConnection, fan: Stream, frame: ErrorFrame) -> None:
        if frame.request == "subscribe":
            self._come_again(conn)
            return
        assert frame.code == "unavailable", frame
        request = None if frame.id is None else self._asked.pop(frame.id, None)
        if request is None or self.unanswered.pop(request, self) is self:
            return
        for op, n in request.items:
            fan.settled.discard((request.prefix, n))
            self.world.record(history.Verdict(self.world.now, op, "unknown"))
            if request.own:
                self.world.after(REPEAT_MS, self._repeat, fan, request.kind, request.prefix, n)

    def _repeat(self, fan: Stream, kind: str, prefix: str, n: int) -> None:
        """Nobody knows what became of it."""
        if self.fan is fan:
            self._settle(kind, prefix, [n])

    # What it says

    def _start(self, conn: Connection, fan: Any, receipt: Receipt) -> None:
        assert isinstance(conn, NodeConnection)
        conn.end.take(Start(fan.number, [f"{receipt[0]}.{receipt[1]}"]))

    def _arrived(
        self, conn: Connection, part: Any, generation: int, kind: str, request: SettleRequest
    ) -> None:
        assert isinstance(conn, NodeConnection)
        if conn.end.over:
            return
        fan: Stream = part
        numbers = [n for _, n in request.items]
        id: int | None = request.items[0][0]
        if kind == "ack" and numbers[0] % 2 == 0:
            id = None
            if self.unanswered.pop(request, self) is not self:
                for op, _ in request.items:
                    self.world.record(history.Verdict(self.world.now, op, "unknown"))
        else:
            request.kind = kind
            self._asked[request.items[0][0]] = request
        if kind != "extend":
            receipts = [(request.prefix, n) for n in numbers]
            fan.gone(receipts)
            fan.settled.update(receipts)
        conn.end.take(_frame(kind, fan.number, compress(request.prefix, numbers), id))

    def _set_credit(self, conn: Connection, fan: Any, credit: int) -> None:
        if fan.at is conn:
            fan.set_credit(conn, credit)

    def _leave(self, conn: Connection, fan: Any, gracefully: bool) -> None:
        """Close the session, or only unsubscribe, and come back as somebody new."""
        assert isinstance(conn, NodeConnection)
        if gracefully:
            conn.end.left(clean=True)
            if self.fan is fan:
                self._end_session()
                self.closed(conn)
        elif fan.at is conn:
            self.world.record(history.Unsubscribe(self.world.now, fan.label))
            fan.closed = True
            conn.end.take(Unsubscribe(self.world.op(), fan.number))
            self.world.after(1_000, self._return, fan)

    # Over a connection that is none any more, and with the session of somebody else

    def _say_late(self, fan: Stream, conn: NodeConnection) -> None:
        """Its node may not know of it; owners do."""
        old, feed = self._before, fan.feed
        if old is None or old is conn or feed is None or not self.held:
            return
        up = {part.prefix for part in feed._parts if part.up and not part._resuming}
        late = [receipt for receipt in self.held if receipt[0] in up]
        if late and self.rng.random() < 0.3:
            request = SettleRequest(self, late[0][0], [(self.world.op(), late[0][1])], own=False)
            op, receipt = request.items[0][0], f"{late[0][0]}.{late[0][1]}"
            holder = f"{fan.session}, before"
            self.world.fault("settle.late")
            self.world.record(history.Settle(self.world.now, op, "ack", receipt, holder))
            self.world.after(
                self.world.latency(), old.node.guarded(self._late), old, fan.number, late[0], op
            )
            self.unanswered[request] = None
            self.world.after(UNKNOWN_MS, self._give_up, request)

    def _late(self, old: NodeConnection, number: int, receipt: Receipt, op: int) -> None:
        sub = None if old.end.over or old.end.session is None else old.end.session.subs.get(number)
        if sub is None:
            return
        self.world.fault("settle.superseded")

        def answer(gather: Gather) -> None:
            ok = gather.error is None and not gather.lost and not gather.duplicate
            for request in [one for one in self.unanswered if one.items[0][0] == op]:
                del self.unanswered[request]
                result: Any = "ok" if ok else "lease_lost" if gather.lost else "unknown"
                self.world.record(history.Verdict(self.world.now, op, result))

        sub.feed.settle(ACK, [(receipt[0], receipt[1], receipt[1])], answer)

    def _give_up(self, request: SettleRequest) -> None:
        if self.unanswered.pop(request, self) is not self:
            self.world.record(history.Verdict(self.world.now, request.items[0][0], "unknown"))

    def act(self) -> None:
        super().act()
        if not self.world.calm and self.rng.random() < 0.01:
            self._steal()

    def _steal(self) -> None:
        others = [each for each in self.cluster.consumers if each is not self and each.fan]
        node = self.cluster.any_node()
        if others and node is not None and node.gateway is not None:
            fan: Any = self.rng.choice(others).fan
            self.world.fault("session.stolen")
            node.gateway.start_soon(self._try, node, fan.id)

    async def _try(self, node: ClusterNode, id: str) -> None:
        assert node.gateway is not None
        found = await node.gateway.sessions.find(id, self.identity)
        assert found is None, "somebody goes on with another one's session"


def _receipt(text: str) -> Receipt:
    prefix, n, _ = parse(text)
    return prefix, n


def _each(receipts: Iterable[str]) -> list[Receipt]:
    return [(prefix, n) for prefix, low, high in map(parse, receipts) for n in range(low, high + 1)]


def _frame(kind: str, number: int, receipts: list[str], id: int | None) -> Any:
    act = ACTS[kind]
    if kind == "ack":
        return Ack(number, receipts, id)
    if kind == "extend":
        return Extend(number, receipts, act.lease_ms or 0, id)
    return Nack(number, receipts, act.delay_ms, act.error, act.dead, id)


__all__ = ["NodeConsumer", "ReceiptRun", "Stream"]
