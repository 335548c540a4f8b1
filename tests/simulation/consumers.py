"""Consumers: well-behaved, slow, failing, stuck, disconnected, cancelled, confused.

How one takes up what it gets is its *manner*: a crowd takes up everything at once, a worker one
message after the other (what it prefetched waits for it), a sleeper nothing at all. When faults
have stopped, all are crowds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.act import ACK, START, Act
from pushlane_dispatcher.core.effects import Deliver, SettleTicket
from pushlane_dispatcher.core.life import State
from pushlane_history import event as history
from tests.simulation.clients import RESUME_MS, Client, Connection
from tests.simulation.fan import Fan, Part

if TYPE_CHECKING:
    from pushlane_dispatcher.core.subscription import Subscription
    from tests.simulation.profile import Manner
    from tests.simulation.serving import Home, Runner

Receipt = tuple[str, int]

IDLE_MS = 3_000
"""How long a consumer with credit gets nothing before it says so: longer than any read, write or
backoff takes where nothing fails."""


ACTS = {
    "ack": ACK,
    "extend": Act("extend", lease_ms=2_000),
    "nack": Act("nack", error="nack"),
    "delay": Act("nack", delay_ms=700, error="delay"),
    "back": Act("nack", delay_ms=0, error="back"),
    "reject": Act("nack", error="reject", dead=True),
}
"""What a simulated consumer may say in the end."""


class Holding:
    """A message that a consumer has, as far as it knows."""

    __slots__ = ("started", "taken")

    def __init__(self) -> None:
        self.taken = False
        """It is being worked on."""
        self.started = False


class SettleRequest:
    def __init__(
        self,
        consumer: Consumer,
        prefix: str,
        items: list[tuple[int, int]],
        own: bool = True,
    ) -> None:
        self.consumer = consumer
        self.prefix = prefix
        self.items = items
        """(op, receipt number)"""
        self.own = own
        """The receipts are of this subscription: what is unknown of them is asked again."""
        self.kind = ""
        """What it asks for, where that is asked again."""

    def answered(self, ticket: SettleTicket) -> None:
        self.consumer.answered(self, ticket)


class Consumer(Client):
    """One session with one subscription."""

    def __init__(self, cluster: Home, name: str, queue: str, manner: Manner = "crowd") -> None:
        super().__init__(cluster, name, queue)
        self.manner = manner
        self.fan: Fan | None = None
        self.held: dict[Receipt, Holding] = {}
        self.old: list[Receipt] = []
        self.unanswered: dict[SettleRequest, None] = {}
        self.doubtful: list[Receipt] = []
        self.subscriptions = 0
        self.ready = False
        self.fed = 0
        """When something last came, or it had no room for more."""
        self.failing_until = 0
        """Until then all that it does fails."""
        draw = self.rng.random()
        # Where a cache may come back as it was, leases last and receipts are remembered.
        self.hoards = cluster.world.store == "cassandra"
        self.lease_ms = (1_500, 4_000) if self.hoards else (1_000, 1_500)
        self.pace_ms = 600 if self.hoards else 120
        self.ack_none = draw < 0.1 and queue == "q" and manner == "crowd"
        self.explicit = manner != "crowd" or (not self.ack_none and draw < 0.6)

    # Connecting

    @property
    def idle(self) -> bool:
        """It has no session yet, or none any more: it can't say anything."""
        return self.conn is None or self.fan is None or not self.ready

    def connected(self, conn: Connection) -> None:
        runners = conn.node.runners.get(self.queue)
        self.ready = False
        fan = self.fan
        if (
            fan is not None
            and runners is not None
            and runners[0].label == fan.queue
            and not self.ack_none
            and fan.moved(conn.node, runners)
        ):
            conn.send(self._resume, conn, fan)
        else:
            self._end_session()
            conn.send(self._subscribe, conn)

    def _end_session(self) -> None:
        if self.fan is not None:
            self.world.record(history.SessionEnd(self.world.now, self.fan.session))
        for request in self.unanswered:  # the next subscription counts its receipts anew
            request.own = False
        self.fan = None
        self.held.clear()
        self.doubtful.clear()

    def _subscribe(self, conn: Connection) -> None:
        runners = conn.node.runners.get(self.queue)
        if runners is None:
            self.world.after(200, self._try_again, conn)
            return
        self.subscriptions += 1
        label = f"{self.name}:{self.subscriptions}"
        credit = self.rng.choice((1, 2, 5, 20))
        fan = self.fan = Fan(self, conn.node, runners, label, credit)
        self.world.record(
            history.Subscribe(self.world.now, label, fan.session, fan.queue, credit, self.ack_none)
        )
        self.ready, self.fed = True, self.world.now
        fan.turn()

    def _try_again(self, conn: Connection) -> None:
        if self.conn is conn and self.fan is None:
            conn.send(self._subscribe, conn)

    def deleted(self, label: str) -> None:
        """There may be another queue of that name."""
        if self.fan is not None and self.fan.queue == label and self.conn is not None:
            for request in self.unanswered:
                for op, _ in request.items:
                    self.world.record(history.Verdict(self.world.now, op, "unknown"))
            self.unanswered.clear()
            self._end_session()
            self.ready = False
            self.conn.send(self._subscribe, self.conn)

    def _resume(self, conn: Connection, fan: Fan) -> None:
        if not fan.resumable:
            self._end_session()
            self._subscribe(conn)
            return
        listed = {receipt: None for receipt in self.held if self.rng.random() < 0.8}
        for receipt in [receipt for receipt in self.held if receipt not in listed]:
            del self.held[receipt]
        self.world.record(history.Resume(self.world.now, fan.label))
        before = [(part.sub, part.generation) for part in fan]
        lost = fan.resume([(prefix, n, n) for prefix, n in listed])
        if self.world.profile.late:
            self._come_late(conn, fan, dict(before), listed)
        self.ready, self.fed = True, self.world.now
        self.told_lost(lost)
        for prefix, n in self.doubtful:
            self._settle("ack", prefix, [n])
        self.doubtful.clear()
        for holding in self.held.values():
            holding.taken = False
        self._take_up_next()  # what was under way goes on

    def _come_late(
        self, conn: Connection, fan: Fan, before: dict[Subscription, int], held: Iterable[Receipt]
    ) -> None:
        """An ack of its last connection arrives only now: it holds the message, and is refused."""
        receipts: list[tuple[Receipt, Part]] = []
        for receipt in held:
            part = fan.part_of(receipt[0])
            if part is not None and before.get(part.sub, 0) not in (0, part.generation):
                receipts.append((receipt, part))
        if not receipts:
            return
        (prefix, n), part = self.rng.choice(receipts)
        self.world.fault("settle.late")
        request = SettleRequest(self, prefix, [(self.world.op(), n)], own=False)
        holder = f"{fan.session}, before"
        self.world.record(
            history.Settle(self.world.now, request.items[0][0], "ack", f"{prefix}.{n}", holder)
        )
        self.unanswered[request] = None
        self._arrived(conn, part, before[part.sub], "ack", request)

    def disconnected(self, conn: Connection, broken: bool) -> None:
        unanswered, self.unanswered = self.unanswered, {}
        for request in unanswered:
            for op, n in request.items:
                self.world.record(history.Verdict(self.world.now, op, "unknown"))
                if request.own:
                    self.doubtful.append((request.prefix, n))
        if self.fan is not None and conn.node.alive:
            # The node notices a little later that the connection is gone: its subscriptions are
            # detached then, also when the client is elsewhere by now.
            detached = conn.node.guarded(self._detached)
            left = [(part.runner, part.sub) for part in self.fan]
            self.world.after(self.world.latency(), detached, conn, self.fan, left, broken)

    def _detached(
        self, conn: Connection, fan: Fan, left: list[tuple[Runner, Subscription]], broken: bool
    ) -> None:
        back = self.conn is not None and self.fan is fan
        if back and fan.node is conn.node:
            return
        if broken and not back:
            self.world.record(history.Detach(self.world.now, fan.label))
        for runner, sub in left:
            known = runner.shard.consumers.subscriptions.get(sub.prefix) is sub
            if known and sub.away_until is None:
                runner.shard.detach(sub, RESUME_MS, conn.node.now)
            runner.wake()

    # What comes from the server

    def delivered(self, runner: Runner, effect: Deliver) -> None:
        fan = self.fan
        sub = effect.subscription
        self.fed = self.world.now
        if fan is None or self.ack_none or sub.session != fan.session:
            return
        for run in effect.runs:
            for index in range(len(run.messages)):
                self.held.setdefault((sub.prefix, run.n + index), Holding())
        self._take_up_next()

    def _pace(self) -> int:
        return self.rng.randrange(1, 120 if self.world.calm else self.pace_ms)

    def told_lost(self, receipts: list[ReceiptRun]) -> None:
        for prefix, low, high in receipts:
            for n in range(low, high + 1):
                if self.held.pop((prefix, n), None) is not None:
                    self.old.append((prefix, n))
                    del self.old[:-10]
        self._take_up_next()

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

    def _take_up_next(self) -> None:
        """Begin with what it has and has hands for."""
        hands = len(self.held)
        if not self.world.calm:
            hands = {"crowd": hands, "worker": 1, "sleeper": 0}[self.manner]
        busy = sum(holding.taken for holding in self.held.values())
        for receipt, holding in self.held.items():
            if busy >= hands:
                return
            if not holding.taken:
                holding.taken = True
                busy += 1
                self.world.after(self._pace(), self._take_up, self.fan, receipt)

    def wake(self) -> None:
        """Faults have stopped: there are hands for all that it holds."""
        self._take_up_next()

    def _take_up(self, fan: Fan, receipt: Receipt) -> None:
        holding = self.held.get(receipt)
        if self.idle or self.fan is not fan or holding is None:
            return
        assert self.conn is not None
        if self.explicit and not holding.started:
            holding.started = True
            self.conn.send(self._start, self.conn, fan, receipt)
        chances = self.world.chances
        if self.world.happens(chances.stuck):
            self.world.fault("consumer.stuck")
            return
        if self.world.happens(chances.slow):
            self.world.fault("consumer.slow")
            self.world.after(self.rng.randrange(900, 2_500), self._finish, fan, receipt, "ack")
            return
        kind = "ack"
        if self.world.now < self.failing_until:
            kind = "nack"
        elif self.world.happens(chances.failing):
            self.world.fault("consumer.failing")
            kind = self.rng.choice(("nack", "nack", "delay", "reject", "extend"))
        self.world.after(self._work(), self._finish, fan, receipt, kind)

    def _work(self) -> int:
        """How long a handler takes."""
        if self.manner == "worker" and not self.world.calm:
            return self.rng.randrange(100, 900)
        return self._pace()

    def _start(self, conn: Connection, fan: Fan, receipt: Receipt) -> None:
        prefix, n = receipt
        part = fan.part_of(prefix)
        if part is None:
            return
        entry = part.sub.held.get(n)
        ticket = SettleTicket()
        reserved = entry is not None and entry.state is State.RESERVED
        part.runner.shard.settle(
            part.sub, part.generation, START, [(prefix, n, n)], ticket, conn.node.now
        )
        if reserved and not ticket.lost:
            part.runner.started(f"{prefix}.{n}")
        part.runner.turn()

    def _finish(self, fan: Fan, receipt: Receipt, kind: str) -> None:
        if self.idle or self.fan is not fan or receipt not in self.held:
            return
        prefix, n = receipt
        if kind == "extend":
            self._settle("extend", prefix, [n])
            self.world.after(self.rng.randrange(500, 1_500), self._finish, fan, receipt, "ack")
            return
        numbers = [n]
        if kind == "ack" and self.manner == "crowd":  # what else is done goes in the same run
            while (prefix, numbers[-1] + 1) in self.held and self.rng.random() < 0.7:
                numbers.append(numbers[-1] + 1)
        for number in numbers:
            del self.held[prefix, number]
        if self.hoards:
            self.old += [(prefix, number) for number in numbers]
            del self.old[:-10]
        self._settle(kind, prefix, numbers)
        if self.rng.random() < 0.1:
            self._settle("extend" if self.world.profile.late else "ack", prefix, numbers)  # again
        self._take_up_next()

    def _settle(self, kind: str, prefix: str, numbers: list[int], own: bool = True) -> None:
        if self.idle:
            return
        assert self.conn is not None
        assert self.fan is not None
        fan = self.fan
        request = SettleRequest(self, prefix, [(self.world.op(), n) for n in numbers], own)
        recorded: Any = {"delay": "nack", "back": "nack"}.get(kind, kind)
        for op, n in request.items:
            self.world.record(
                history.Settle(self.world.now, op, recorded, f"{prefix}.{n}", fan.session)
            )
        self.unanswered[request] = None
        part = fan.part_of(prefix) or fan.parts[0]  # any shard can say what is nobody's
        self.conn.request(self._arrived, self.conn, part, part.generation, kind, request)

    def _arrived(
        self, conn: Connection, part: Part, generation: int, kind: str, request: SettleRequest
    ) -> None:
        shard, sub, now = part.runner.shard, part.sub, conn.node.now
        numbers = [n for _, n in request.items]
        receipts = [(request.prefix, numbers[0], numbers[-1])]
        silent = kind == "ack" and numbers[0] % 2 == 0
        ticket = SettleTicket(part.runner.settle_token(request), silent)
        if not part.known:  # its queue was deleted
            ticket.lost += receipts
            conn.answer(request.answered, ticket)
            return
        shard.settle(sub, generation, ACTS[kind], receipts, ticket, now)
        part.fan.lost()
        part.runner.turn()

    # Now and then

    def act(self) -> None:
        self.maybe_disconnect()
        if self.idle:
            return
        assert self.conn is not None
        assert self.fan is not None
        if self.world.serene_since is not None:
            self._complain(self.fan, self.world.serene_since)
        if self.world.calm:
            return
        if self.world.happens(self.world.chances.stale):
            self._confuse()
        draw = self.rng.random()
        if draw < 0.01:
            self.conn.send(self._set_credit, self.conn, self.fan, self.rng.choice((1, 3, 8)))
        elif draw < 0.015:
            self.conn.send(self._leave, self.conn, self.fan, self.rng.random() < 0.5)
        elif draw < 0.02:
            self._cancel()
        elif draw < 0.03:
            self.world.fault("consumer.failing_for_a_while")
            self.failing_until = self.world.now + self.rng.randrange(200, 2_000)

    def _complain(self, fan: Fan, serene_since: int) -> None:
        """It could have more, and gets nothing."""
        since = max(self.fed, serene_since)
        hungry = not fan.closed and (self.ack_none or len(self.held) < fan.credit)
        if not hungry or self.world.now - since >= IDLE_MS:
            self.fed = self.world.now
        if hungry and self.world.now - since >= IDLE_MS:
            self.world.record(
                history.Idle(self.world.now, fan.label, fan.queue, since, 3 * self.world.farthest)
            )

    def _confuse(self) -> None:
        """Settle with receipts that are stale, or another's."""
        assert self.fan is not None
        others = [
            receipt
            for c in self.cluster.consumers
            if c is not self and c.queue == self.queue
            for receipt in c.held
        ]
        wrong = self.old + others[:5]
        if not wrong:
            return
        self.world.fault("receipt.stale_or_foreign")
        prefix, n = self.rng.choice(wrong)
        self._settle("ack", prefix, [n], own=self.fan.part_of(prefix) is not None)

    def _set_credit(self, conn: Connection, fan: Fan, credit: int) -> None:
        self.world.record(history.Credit(self.world.now, fan.label, credit))
        fan.set_credit(credit)
        fan.turn()

    def _cancel(self) -> None:
        """As an SDK does when `consume()` is cancelled: it gives back what it has, and is gone."""
        assert self.conn is not None
        assert self.fan is not None
        self.world.fault("consumer.cancelled")
        held, self.held = self.held, {}
        self.conn.send(self._leave, self.conn, self.fan, False)
        for prefix, n in held:
            self._settle("back", prefix, [n])

    def _leave(self, conn: Connection, fan: Fan, gracefully: bool) -> None:
        """Close the session, or only unsubscribe, and come back as somebody new."""
        if gracefully:
            fan.end()
            if self.fan is fan:
                self._end_session()
                self._subscribe(conn)
        else:
            self.world.record(history.Unsubscribe(self.world.now, fan.label))
            fan.unsubscribe()
            self.world.after(1_000, self._return, fan)

    def _return(self, fan: Fan) -> None:
        if self.fan is not fan:
            return
        if self.conn is None or not self.ready:
            self.world.after(100, self._return, fan)
        else:
            self.conn.send(self._leave, self.conn, fan, True)


def _numbers(receipts: list[ReceiptRun]) -> set[int]:
    return {n for _, low, high in receipts for n in range(low, high + 1)}
