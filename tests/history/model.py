"""A tiny queue that keeps every promise, and writes a history of what it does.

It has what makes histories hard: answers that get lost, repeated publishes and settles, leases
that expire, crashes with and without a lease cache, predecessors that don't know that they are
over, transfers in steps, drops, purges, expiry and deleted queues. A seed gives the same history
for ever.
"""

from dataclasses import dataclass, field
from random import Random

from pushlane_history.event import (
    Allow,
    Begin,
    Bound,
    Crash,
    Credit,
    Deleted,
    Detach,
    Drained,
    Ended,
    Event,
    Fault,
    Gap,
    Grant,
    How,
    Idle,
    Kind,
    LeaseLost,
    Leaving,
    Moved,
    Open,
    Publish,
    Published,
    PublishFailed,
    QueueSet,
    Quiesce,
    Result,
    Resume,
    SessionEnd,
    Settle,
    Start,
    Stored,
    Subscribe,
    Unsubscribe,
    Verdict,
    Void,
)

WINDOW_MS = 1_000
MAX_ATTEMPTS, MAX_DELIVERIES = 3, 5
KINDS: tuple[Kind, ...] = ("ack", "ack", "ack", "nack", "reject", "extend")


@dataclass(eq=False)
class Held:
    """A message in the store."""

    queue: str
    id: str
    uid: str
    key: str | None
    seq: int
    expires: bool
    attempts: int = 0
    deliveries: int = 0
    grants: dict[int, int] = field(default_factory=dict)
    leaving: str = ""
    to: str = ""
    moved: bool = False
    lease: "Lease | None" = None


@dataclass(eq=False)
class Lease:
    held: Held
    receipt: str
    sub: str
    fence: int
    started: bool


class Model:
    def __init__(self, seed: int, *, gaps: bool = False) -> None:
        self.random = Random(seed)
        self.gaps = gaps
        self.history: list[Event] = [Begin(0, note=f"seed {seed}")]
        self.now = self.count = self.epoch = 0
        self.store: dict[str, Held] = {}
        self.dedups: dict[tuple[str, str | None, int | str], tuple[str, int]] = {}
        self.requests: list[Publish] = []
        self.answers: list[Published | PublishFailed] = []
        self.retries: list[Publish] = []
        self.leases: dict[str, Lease] = {}
        self.receipts: list[tuple[str, str]] = []
        self.settled: set[str] = set()
        self.settles: list[Settle] = []
        self.verdicts: list[Verdict] = []
        self.credits: dict[str, int] = {}
        self.zombie: tuple[int, list[Held]] = (0, [])
        self.allowed: set[str] = set()
        self.add(QueueSet(0, "q", MAX_ATTEMPTS, MAX_DELIVERIES, WINDOW_MS, "drop_oldest"))
        self.add(QueueSet(0, "q.dead", 1_000, 1_000, dead_letter=""))
        self.open()
        for sub, queue in (("a", "q"), ("b", "q"), ("d", "q.dead")):
            self.credits[sub] = 3
            self.add(Subscribe(0, sub, f"S{sub}", queue, 3))

    def add(self, event: Event) -> None:
        self.history.append(event)

    def number(self) -> int:
        self.count += 1
        return self.count

    def maybe(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def run(self, steps: int) -> list[Event]:
        self.work(steps)
        self.finish()
        return self.history

    def work(self, steps: int) -> None:
        actions = [self.publish, self.serve_publish, self.serve_publish, self.answer, self.answer]
        actions += [self.grant, self.grant, self.start, self.settle, self.settle, self.transfer]
        actions += [self.serve_settle, self.serve_settle, self.verdict, self.verdict, self.grant]
        rare = [self.retry, self.expire_lease, self.again, self.crash, self.takeover, self.haunt]
        rare += [self.expire, self.drop, self.purge, self.redrive, self.credit, self.at_most_once]
        rare += [self.retry, self.expire_lease, self.lose_connection, self.haunt, self.sample] * 4
        rare += [self.rest, self.make_and_delete]
        rare += [self.gap] * self.gaps
        for _ in range(steps):
            self.now += self.random.randrange(20)
            self.random.choice(rare if self.maybe(0.2) else actions)()

    # Publishing

    def publish(self) -> None:
        n = self.number()
        producer_seq = n if self.maybe(0.3) else None
        key = self.random.choice((None, None, "k1", "k2"))
        dedup = self.random.choice((None, None, None, f"d{n}", f"d{n % 3}"))
        expires = self.maybe(0.2)
        order = n if self.maybe() else 0
        self.request(
            Publish(self.now, n, "q", f"u{n}", key, dedup, "p", producer_seq, order, expires)
        )

    def request(self, publish: Publish) -> None:
        self.add(publish)
        self.requests.append(publish)

    def retry(self) -> None:
        """Repeat a publish whose outcome is unknown, or even one that was answered."""
        if self.retries:
            p = self.random.choice(self.retries)
            self.request(
                Publish(
                    self.now,
                    self.number(),
                    "q",
                    p.uid,
                    p.key,
                    p.dedup,
                    p.producer,
                    p.producer_seq,
                    expires=p.expires,
                )
            )

    def serve_publish(self) -> None:
        if not self.requests:
            return
        p = self.requests.pop(0)  # frames of a session are taken in order
        identities: list[tuple[str, str | None, int | str]] = []
        if p.producer_seq is not None:
            identities.append(("seq", p.producer, p.producer_seq))
        if p.dedup is not None:
            identities.append(("dedup", p.key, p.dedup))
        for identity in identities:
            id, at = self.dedups.get(identity, ("", 0))
            if id and (self.now - at < WINDOW_MS or identity[0] == "seq"):
                self.answers.append(Published(0, p.op, id, True))
                return
        if self.maybe(0.1):
            self.answers.append(PublishFailed(0, p.op, "queue_full"))
            return
        held = self.append("q", p.uid, p.key, p.expires)
        self.dedups.update(dict.fromkeys(identities, (held.id, self.now)))
        self.answers.append(Published(0, p.op, held.id, False, held.seq))

    def append(self, queue: str, uid: str, key: str | None, expires: bool) -> Held:
        n = self.number()
        held = Held(queue, f"m{n}", uid, key, (self.epoch << 40) + n, expires)
        self.store[held.id] = held
        return held

    def answer(self) -> None:
        if self.answers:
            a = self.answers.pop(self.random.randrange(len(self.answers)))
            self.give(a if self.maybe(0.9) else PublishFailed(0, a.op, "connection_lost"))

    def give(self, answer: Published | PublishFailed) -> None:
        if isinstance(answer, Published):
            self.add(Published(self.now, answer.op, answer.id, answer.duplicate, answer.seq))
        else:
            self.add(PublishFailed(self.now, answer.op, answer.code))
        asked = {e.op: e for e in self.history if isinstance(e, Publish)}
        self.retries.append(asked[answer.op])

    # Leases

    def ready(self, queue: str) -> list[Held]:
        """What may be granted: of each key the first only."""
        keys: set[str] = set()
        found = []
        for held in sorted(self.store.values(), key=lambda held: held.seq):
            if held.queue == queue and not held.leaving:
                if held.lease is None and held.key not in keys:
                    found.append(held)
                if held.key is not None:
                    keys.add(held.key)
        return found

    def grant(self) -> None:
        sub = self.random.choice("abd")
        ready = self.ready("q.dead" if sub == "d" else "q")
        outstanding = sum(lease.sub == sub for lease in self.leases.values())
        if ready and outstanding < self.credits[sub]:
            self.lease(self.random.choice(ready), sub, self.epoch, self.maybe())

    def lease(self, held: Held, sub: str, epoch: int, reserved: bool) -> Lease:
        held.grants[epoch] = held.grants.get(epoch, 0) + 1
        lease = Lease(
            held, f"r{self.number()}", sub, (epoch << 20) + held.grants[epoch], not reserved
        )
        if epoch == self.epoch:
            held.lease = self.leases[lease.receipt] = lease
        self.receipts.append((lease.receipt, f"S{sub}"))
        self.deliver(lease, reserved)
        return lease

    def deliver(self, lease: Lease, reserved: bool, again: bool = False) -> None:
        held = lease.held
        self.add(
            Grant(
                self.now,
                held.queue,
                held.id,
                held.uid,
                lease.sub,
                f"S{lease.sub}",
                lease.receipt,
                lease.fence,
                held.attempts + 1,
                reserved,
                again=again,
                seq=held.seq,
            )
        )

    def again(self) -> None:
        if self.leases:
            lease = self.random.choice(list(self.leases.values()))
            self.deliver(lease, not lease.started, True)

    def start(self) -> None:
        waiting = [lease for lease in self.leases.values() if not lease.started]
        if waiting:
            lease = self.random.choice(waiting)
            lease.started = True
            self.add(Start(self.now, lease.receipt))

    def settle(self) -> None:
        if self.receipts:
            receipt, session = self.random.choice(self.receipts[-8:])
            if self.maybe(0.05):
                session = "Sother"
            kind = self.random.choice(KINDS)
            settle = Settle(self.now, self.number(), kind, receipt, session)
            self.add(settle)
            self.settles.append(settle)

    def serve_settle(self) -> None:
        if not self.settles:
            return
        s = self.settles.pop(0)
        lease = self.leases.get(s.receipt)
        result: Result = "ok"
        if lease is None or s.session != f"S{lease.sub}":
            known = s.receipt in self.settled and s.session != "Sother"
            result = "duplicate" if known else "lease_lost"
        elif s.kind == "ack":
            self.settled.add(s.receipt)
            if self.maybe():
                self.add(Ended(self.now, lease.held.queue, lease.held.id, "acked"))
            self.remove(lease.held)
        elif s.kind != "extend":
            self.settled.add(s.receipt)
            if s.kind == "reject":
                self.leave(lease.held, "rejected")
            else:
                self.give_back(lease)
        self.verdicts.append(Verdict(0, s.op, result))

    def verdict(self) -> None:
        if self.verdicts:
            v = self.verdicts.pop(self.random.randrange(len(self.verdicts)))
            self.add(Verdict(self.now, v.op, v.result if self.maybe(0.8) else "unknown"))

    def expire_lease(self) -> None:
        if self.leases:
            lease = self.random.choice(list(self.leases.values()))
            self.add(LeaseLost(self.now, lease.receipt))
            self.give_back(lease)

    def lose_connection(self) -> None:
        """Of one client. What it only reserved counts, unless it comes back in time."""
        if self.leases:
            sub = self.random.choice(list(self.leases.values())).sub
            self.add(Detach(self.now, sub))
            held = [lease for lease in self.leases.values() if lease.sub == sub]
            lost = [lease for lease in held if self.maybe()]
            for lease in lost:
                self.give_back(lease, broken=True)
            self.add(Resume(self.now, sub))
            for lease in lost:
                self.add(LeaseLost(self.now, lease.receipt))

    def give_back(self, lease: Lease, broken: bool = False) -> None:
        held = lease.held
        held.attempts += lease.started
        held.deliveries += broken and not lease.started
        if held.queue == "q" and held.attempts >= MAX_ATTEMPTS:
            self.leave(held, "max_attempts")
        elif held.queue == "q" and held.deliveries >= MAX_DELIVERIES:
            self.leave(held, "max_deliveries")
        else:
            self.drop_lease(held)
            fence = (self.epoch << 20) + held.grants.get(self.epoch, 0)
            fence = max(lease.fence, fence)
            self.add(Void(self.now, held.queue, held.id, fence, held.attempts, held.deliveries))

    def drop_lease(self, held: Held) -> None:
        if held.lease is not None:
            self.leases.pop(held.lease.receipt, None)
            held.lease = None

    def credit(self) -> None:
        sub = self.random.choice("ab")
        self.credits[sub] = self.random.randrange(5)
        self.add(Credit(self.now, sub, self.credits[sub]))

    def rest(self) -> None:
        """A consumer that could hold more gets nothing, because nothing is ready."""
        sub = self.random.choice("abd")
        queue = "q.dead" if sub == "d" else "q"
        if not self.ready(queue):
            self.add(Idle(self.now, sub, queue, self.now))

    def at_most_once(self) -> None:
        """Deliver to a subscription that needs no acks; a crash may come in between."""
        self.add(Subscribe(self.now, "n", "Sn", "q", 0, True))
        if ready := self.ready("q"):
            held = self.random.choice(ready)
            seen, sent = self.random.choice(((True, True), (True, False), (False, True)))
            if seen:
                self.add(Ended(self.now, "q", held.id, "acked"))
            self.remove(held)
            if sent:
                self.add(Grant(self.now, "q", held.id, held.uid, "n", "Sn", ack_none=True))
        self.add(Unsubscribe(self.now, "n"))

    # Owners

    def open(self) -> None:
        self.epoch += 1
        self.add(Open(self.now, f"n{self.epoch}", self.epoch))

    def crash(self) -> None:
        self.add(Fault(self.now, "crash"))
        self.add(Crash(self.now, f"n{self.epoch}"))
        self.change_owner()

    def takeover(self) -> None:
        """The owner goes on without knowing that it is one no more."""
        if self.zombie[0]:
            self.add(Crash(self.now, f"n{self.zombie[0]}"))
        self.zombie = (self.epoch, self.ready("q"))
        self.change_owner()

    def change_owner(self) -> None:
        for p in self.requests:
            self.give(PublishFailed(0, p.op, "connection_lost"))
        for a in self.answers:
            self.give(PublishFailed(0, a.op, "unavailable"))
        for op in [s.op for s in self.settles] + [v.op for v in self.verdicts]:
            self.add(Verdict(self.now, op, "unknown"))
        for todo in (self.requests, self.answers, self.settles, self.verdicts):
            todo.clear()
        self.settled.clear()
        self.open()
        resumed = self.maybe()
        for lease in list(self.leases.values()):
            if self.maybe():  # the lease cache did not know it
                self.drop_lease(lease.held)
                if resumed:
                    self.add(LeaseLost(self.now, lease.receipt))
        if not resumed:
            for sub, credit in self.credits.items():
                queue = "q.dead" if sub == "d" else "q"
                self.add(Subscribe(self.now, sub, f"S{sub}", queue, credit))

    def gap(self) -> None:
        """Something happens that nobody writes down, and answers are not waited for any more."""
        after = len(self.history)
        for _ in range(self.random.randrange(5)):
            self.random.choice((self.publish, self.serve_publish, self.grant, self.settle))()
        for todo in (self.requests, self.answers, self.retries, self.settles, self.verdicts):
            todo.clear()
        lost = len(self.history) - after
        del self.history[after:]
        self.add(Gap(self.now, lost=lost))

    def haunt(self) -> None:
        epoch, ready = self.zombie
        if ready:
            self.lease(ready.pop(), "z", epoch, False)

    # Ends

    def remove(self, held: Held) -> None:
        self.drop_lease(held)
        del self.store[held.id]

    def end(self, held: Held, how: How, cause: str = "") -> None:
        self.add(Ended(self.now, held.queue, held.id, how, cause))
        self.remove(held)

    def leave(self, held: Held, cause: str, to: str = "q.dead") -> None:
        self.drop_lease(held)
        if held.queue == "q.dead" and cause != "redriven":
            self.end(held, "dead", cause)
        else:
            held.leaving, held.to = cause, to
            self.add(Leaving(self.now, held.queue, held.id, cause, to))

    def transfer(self) -> None:
        leaving = [held for held in self.store.values() if held.leaving]
        if not leaving:
            return
        held = self.random.choice(leaving)
        if held.moved:
            self.end(held, "redriven" if held.leaving == "redriven" else "dead")
            return
        there = self.append(held.to, held.uid, held.key, held.expires)
        held.moved = True
        moved = Moved(self.now, held.queue, held.id, held.to, there.id, held.uid, there.seq)
        self.history += [moved] * self.random.choice((1, 1, 2))

    def expire(self) -> None:
        if ripe := [held for held in self.ready("q") if held.expires]:
            held = self.random.choice(ripe)
            if self.maybe():
                self.end(held, "expired")
            else:
                self.leave(held, "expired")

    def drop(self) -> None:
        if ready := self.ready("q"):
            self.end(ready[0], "dropped")

    def allow(self, queue: str, what: str) -> None:
        self.allowed.add(what)
        self.add(Allow(self.now, queue, what))

    def purge(self) -> None:
        self.allow("q", "purged")
        for held in self.ready("q")[:3]:
            self.end(held, "purged")

    def redrive(self) -> None:
        if ready := self.ready("q.dead"):
            self.allow("q.dead", "redriven")
            self.leave(self.random.choice(ready), "redriven", "q")

    def make_and_delete(self) -> None:
        """A queue of its own, deleted with the message in it."""
        n = self.number()
        self.add(QueueSet(self.now, f"t{n}"))
        self.add(Publish(self.now, n, f"t{n}", f"u{n}"))
        self.add(Published(self.now, n, f"m{n}", seq=(self.epoch << 40) + n))
        self.add(Deleted(self.now, f"t{n}"))

    def sample(self) -> None:
        self.add(Bound(self.now, "leases", len(self.leases), 100))

    def finish(self) -> None:
        if self.maybe():
            self.drain()
        for queue in ("q", "q.dead"):
            left = [held for held in self.store.values() if held.queue == queue]
            half = len(left) // 2
            for part in (left[:half], left[half:]):
                self.add(Stored(self.now, queue, [held.id for held in part], [h.uid for h in part]))

    def drain(self) -> None:
        for held in self.store.values():
            self.drop_lease(held)
        self.change_owner()
        self.add(Quiesce(self.now, ["q"], self.now + 1_000))
        while ready := self.ready("q"):
            lease = self.lease(ready[0], "drain", self.epoch, False)
            self.settles = [Settle(self.now, self.number(), "ack", lease.receipt)]
            self.history += self.settles
            self.remove(lease.held)
            self.add(Verdict(self.now, self.settles[0].op, "ok"))
        while any(held.leaving for held in self.store.values()):
            self.transfer()
            for held in self.ready("q"):  # redriven just now
                self.end(held, "dropped")
        self.add(SessionEnd(self.now, "Sa"))
        self.add(Drained(self.now + 500))


def as_clients_saw_it(history: list[Event]) -> list[Event]:
    """The same run without what only the server knows."""
    hidden = (Gap, Open, Crash, Void, Leaving, Moved, Ended, Idle)
    seen: list[Event] = [Begin(0, "client")]
    for event in history[1:]:
        if isinstance(event, Published):
            seen.append(Published(event.at, event.op, event.id, event.duplicate))
        elif not isinstance(event, hidden):
            seen.append(event)
    return seen
