"""A shard against its model: random events, effects in any order, crashes at any time."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pushlane.wire.errors import Conflict, NotFound
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import (
    Append,
    Effect,
    Fetch,
    Page,
    PublishTicket,
    Schedule,
    Settle,
    SettleTicket,
    Transfer,
)
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.core.consumer import Consumer
from tests.dispatcher.core.harness import LANE
from tests.dispatcher.core.model import Known, ModelRig

T = TypeVar("T")

BOUNDS = Bounds(
    window_messages=4, window_bytes=400, positions=6, key_positions=2, delayed=4, page_messages=3,
    segment_messages=2, flushes=3, bucket_ms=5_000, bucket_messages=3, checkpoint_rows=3,
    settled_runs=4, taken=2, transfers=2, leaving=3, fetch_messages=2, horizon_ms=2_000,
    pending_messages=12,
)  # fmt: skip
CONFIG = QueueConfig(
    max_attempts=3, max_deliveries=4, reserve_ms=5_000, backoff_base_ms=100,
    dedup_window_ms=3_000, max_messages=15,
)  # fmt: skip
ALL: list[type[Effect]] = [Append, Settle, Page, Fetch, Schedule, Transfer]
DISTURBANCES = ["calm", "refuse", "pause", "purge", "crash", "wipe", "late"]
picks = st.integers(0, 1_000)
some = st.sets(st.integers(0, 5), min_size=1, max_size=4)


class ShardMachine(RuleBasedStateMachine):
    rig: ModelRig

    def __init__(self) -> None:
        super().__init__()
        self.consumers: list[Consumer] = []
        self.limits: dict[Consumer, int] = {}
        self.tickets: list[tuple[PublishTicket, list[Known]]] = []
        self.seen = 0

    @initialize(overflow=st.sampled_from(["reject", "drop_oldest", "dead_letter"]))
    def open(self, overflow: str) -> None:
        config = msgspec.structs.replace(CONFIG, overflow=overflow)
        self.rig = ModelRig(config, BOUNDS, cached=True, fencing=False)

    # Producers

    @rule(
        count=st.integers(1, 4),
        key=st.sampled_from([None, None, "k", "l"]),
        dedup=st.sampled_from([None, None, "d", "e"]),
        delay=st.sampled_from([0, 0, 0, 700, 9_000]),
        ttl=st.sampled_from([0, 0, 0, 1_500]),
        lane=st.sampled_from([LANE, LANE, 8]),
    )
    def publish(
        self, count: int, key: str | None, dedup: str | None, delay: int, ttl: int, lane: int
    ) -> None:
        rig = self.rig
        uids = [f"m{len(rig.model.messages) + index}" for index in range(count)]
        known = [Known(uid, key) for uid in uids]
        messages = [
            rig.message(
                uid,
                key=key,
                dedup=dedup,
                not_before=rig.wall + delay if delay and key is None else 0,
                expires_at=rig.wall + ttl if ttl else 0,
            )
            for uid in uids
        ]
        lane = LANE if key is not None else lane
        ticket = rig.shard.publish(messages, rig.now, [lane] * count)
        for index, one in enumerate(known):
            rig.model.messages[one.uid] = one
            if index in ticket.failed or index in ticket.duplicates or ticket.seqs[index] < 0:
                one.state = "failed"
            else:
                rig.model.places[lane, ticket.seqs[index]] = one
        self.tickets.append((ticket, known))
        rig.run()

    # The store

    @precondition(lambda self: self.rig.waiting)
    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        self.rig.finish(one_of(self.rig.waiting, pick))

    @rule(kinds=st.sets(st.sampled_from(ALL), max_size=3))
    def hold(self, kinds: set[type[Effect]]) -> None:
        """From now on effects of these kinds wait, the others are carried out at once."""
        self.rig.hold = kinds
        self.rig.run()

    @precondition(lambda self: self.rig.waiting)
    @rule(pick=picks)
    def land_without_an_answer(self, pick: int) -> None:
        self.rig.land(one_of(self.rig.waiting, pick))

    @precondition(lambda self: self.rig.held(Append))
    @rule(pick=picks)
    def refuse(self, pick: int) -> None:
        append = one_of(self.rig.held(Append), pick)
        if append in self.rig.landed:
            return  # after an unknown outcome a refusal proves nothing
        before = dict(self.rig.model.places)
        if self.rig.refuse(append):
            lane = append.lane
            for (number, seq), known in before.items():
                if number == lane.number and seq >= append.segment.first:
                    assert known.state == "pending"
                    known.state = "failed"
                    del self.rig.model.places[number, seq]

    @rule(what=st.sampled_from(DISTURBANCES))
    def disturb(self, what: str) -> None:
        if what in ("crash", "wipe", "late"):
            self.crash(what)
        elif what == "purge":
            self.rig.purge()
        else:
            self.rig.refusing = what == "refuse"
            self.rig.configure(paused=what == "pause")

    @precondition(lambda self: self.rig.model.places)
    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        """Of whatever message: only a delayed one ends by it."""
        lane, seq = one_of(list(self.rig.model.places), pick)
        stored = self.rig.stored(lane, seq)
        with suppress(NotFound, Conflict):
            not_before = 0 if stored is None else stored.not_before
            self.rig.shard.cancel(lane, seq, not_before, SettleTicket(), self.rig.now)
            assert stored is not None
            assert stored.not_before, "it was delayed, though it may be due by now"
            assert self.rig.state(seq, lane) == "leaving"
        self.rig.run()

    def crash(self, how: str) -> None:
        """`wipe`: the lease cache is lost too; `late`: what was under way lands afterwards."""
        rig = self.rig
        rig.decide()
        self.tickets = []
        zombie = rig.crash(wipe=how == "wipe")
        if how == "late":
            for effect in zombie:
                if isinstance(effect, Append | Settle):
                    rig.land(effect)
        found = rig.shard.consumers.subscriptions.values()
        self.consumers = [rig.adopt(subscription) for subscription in list(found)]
        self.limits = {consumer: len(consumer.sub.held) for consumer in self.consumers}

    # Consumers

    @rule(credit=st.integers(1, 5), explicit=st.booleans(), ack_none=st.sampled_from([0, 0, 0, 1]))
    def subscribe(self, credit: int, explicit: bool, ack_none: int) -> None:
        if len(self.consumers) >= 4:
            return
        self.rig.model.takers |= bool(ack_none)
        consumer = self.rig.subscribe(
            credit, explicit=explicit, ack_none=bool(ack_none), lease_ms=2_000
        )
        self.consumers.append(consumer)
        self.limits[consumer] = credit

    def consumer(self, pick: int) -> Consumer:
        return one_of(self.consumers, pick)

    def chosen(self, consumer: Consumer, which: set[int]) -> list[int]:
        """Some of the receipts it holds, and at times one that it does not."""
        held = list(consumer.sub.held)
        return [held[index] if index < len(held) else 10**6 + index for index in sorted(which)]

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, which=some)
    def ack(self, pick: int, which: set[int]) -> None:
        consumer = self.consumer(pick)
        numbers = self.chosen(consumer, which)
        for n in numbers:
            entry = consumer.sub.held.get(n)
            if entry is not None:
                self.rig.model.places[entry.order].ack_sent = True
        consumer.ack(*numbers)

    @precondition(lambda self: self.consumers)
    @rule(
        pick=picks,
        which=some,
        delay_ms=st.sampled_from([None, None, 0, 1_000]),
        dead=st.sampled_from([False, False, True]),
    )
    def nack(self, pick: int, which: set[int], delay_ms: int | None, dead: bool) -> None:
        consumer = self.consumer(pick)
        consumer.nack(*self.chosen(consumer, which), delay_ms=delay_ms, dead=dead)

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, which=some)
    def start(self, pick: int, which: set[int]) -> None:
        consumer = self.consumer(pick)
        for n in self.chosen(consumer, which):
            entry = consumer.sub.held.get(n)
            if entry is not None:
                self.rig.model.places[entry.order].starts += 1
            consumer.start(n)

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, which=some, lease_ms=st.sampled_from([500, 5_000]))
    def extend(self, pick: int, which: set[int], lease_ms: int) -> None:
        consumer = self.consumer(pick)
        consumer.extend(lease_ms, *self.chosen(consumer, which))

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, credit=st.integers(0, 5))
    def set_credit(self, pick: int, credit: int) -> None:
        consumer = self.consumer(pick)
        self.limits[consumer] = max(credit, len(consumer.sub.held))
        consumer.credit(credit)

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, which=some)
    def come_and_go(self, pick: int, which: set[int]) -> None:
        """Who is away comes back, and who is there goes away."""
        consumer = self.consumer(pick)
        if consumer.sub.away_until is None:
            consumer.detach(3_000)
            return
        held = set(consumer.sub.held)
        listed = self.chosen(consumer, which)
        before = len(consumer.inbox)
        lost = {n for _, low, high in consumer.resume(*listed) for n in range(low, high + 1)}
        assert lost == {n for n in listed if n not in held and n not in consumer.sub.settled}
        again = {got.n for got in consumer.inbox[before:] if got.again}
        assert again <= held - set(listed)

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, how=st.sampled_from(["end", "unsubscribe"]))
    def leave(self, pick: int, how: str) -> None:
        consumer = self.consumer(pick)
        if how == "end":
            consumer.end()
            self.consumers.remove(consumer)
        else:
            consumer.unsubscribe()

    # Time

    @rule(ms=st.sampled_from([1, 100, 1_000, 2_000, 6_000]))
    def wait(self, ms: int) -> None:
        self.rig.wait(ms)

    # What must hold

    @invariant()
    def counts_are_the_models(self) -> None:
        stats, model = self.rig.stats, self.rig.model
        assert stats.stored == model.count("live", "leaving")
        assert stats.pending == model.count("pending")

    @invariant()
    def credit_is_never_exceeded(self) -> None:
        for consumer in self.consumers:
            held = len(consumer.sub.held)
            assert held <= self.limits[consumer]
            self.limits[consumer] = max(consumer.sub.credit, held)

    @invariant()
    def answers_are_true(self) -> None:
        """A publish that was answered is stored, or failed for a reason."""
        for ticket in self.rig.published[self.seen :]:
            for other, known in self.tickets:
                if other is ticket:
                    for index, one in enumerate(known):
                        refused = index in ticket.failed or index in ticket.duplicates
                        assert (one.state == "failed") == refused
        self.seen = len(self.rig.published)

    @invariant()
    def memory_is_bounded(self) -> None:
        assert self.rig.shard.window.bodies.resident <= 4 + 2 * 2 + 4 * 2

    def teardown(self) -> None:
        """When all is well again, everything that was stored is delivered and ends."""
        if not hasattr(self, "rig"):
            return
        rig = self.rig
        rig.hold = set()
        rig.refusing = False
        rig.configure(paused=False)
        for consumer in self.consumers:
            consumer.end()
        rig.model.takers = True
        last = rig.subscribe(10)
        for _ in range(60):
            last.ack(*last.sub.held)
            if not rig.stats.stored:
                break
            rig.wait(500)
        assert rig.model.count("live", "leaving", "pending") == 0


def one_of(things: list[T], pick: int) -> T:
    return things[pick % len(things)]


def test_a_shard_does_what_its_model_does() -> None:
    run_state_machine_as_test(
        ShardMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


# Hypothesis prefers short and simple runs, which is good for finding small failures. Plain random
# walks get farther: into full windows, long backlogs and crashes in the middle of everything.

WEIGHTS = {
    "publish": 8, "finish": 6, "hold": 2, "land": 2, "refuse": 2, "disturb": 2, "subscribe": 3,
    "ack": 8, "nack": 3, "start": 3, "extend": 1, "credit": 1, "session": 1, "leave": 1, "wait": 6,
    "cancel": 4,
}  # fmt: skip


class Walk:
    """The rules of the machine, by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.machine = ShardMachine()
        self.machine.open(self.rng.choice(["reject", "drop_oldest", "dead_letter"]))

    def step(self) -> None:
        machine, rng = self.machine, self.rng
        (name,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        pick, which = rng.randrange(1_000), set(rng.sample(range(5), rng.randint(1, 4)))
        if name in ("finish", "land", "refuse"):
            self.store(name, pick)
        elif name == "publish":
            machine.publish(
                rng.randint(1, 4), rng.choice([None, None, "k", "l"]),
                rng.choice([None, None, None, "d", "e"]), rng.choice([0, 0, 0, 700, 9_000]),
                rng.choice([0, 0, 0, 1_500]), rng.choice([LANE, LANE, 8]),
            )  # fmt: skip
        elif name == "subscribe":
            machine.subscribe(rng.randint(1, 5), rng.random() < 0.5, int(rng.random() < 0.05))
        elif name == "hold":
            machine.hold(set(rng.sample(ALL, rng.choice([0, 1, 1, 2, 3]))))
        elif name == "disturb":
            machine.disturb(rng.choice([*DISTURBANCES, "calm", "late"]))
        elif name == "cancel":
            if machine.rig.model.places:
                machine.cancel(pick)
        elif name == "wait":
            machine.wait(rng.choice([1, 100, 1_000, 2_000, 6_000]))
        elif machine.consumers:
            self.consume(name, pick, which)
        machine.counts_are_the_models()
        machine.credit_is_never_exceeded()
        machine.answers_are_true()
        machine.memory_is_bounded()

    def store(self, name: str, pick: int) -> None:
        machine = self.machine
        if name == "refuse" and machine.rig.held(Append):
            machine.refuse(pick)
        elif name == "finish" and machine.rig.waiting:
            machine.finish(pick)
        elif name == "land" and machine.rig.waiting:
            machine.land_without_an_answer(pick)

    def consume(self, name: str, pick: int, which: set[int]) -> None:
        machine, rng = self.machine, self.rng
        if name == "ack":
            machine.ack(pick, which)
        elif name == "nack":
            machine.nack(pick, which, rng.choice([None, None, 0, 1_000]), rng.random() < 0.3)
        elif name == "start":
            machine.start(pick, which)
        elif name == "extend":
            machine.extend(pick, which, rng.choice([500, 5_000]))
        elif name == "credit":
            machine.set_credit(pick, rng.randint(0, 5))
        elif name == "session":
            machine.come_and_go(pick, which)
        else:
            machine.leave(pick, rng.choice(["end", "unsubscribe"]))


@pytest.mark.parametrize("seed", range(40))
def test_random_walks(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(250):
        walk.step()
    walk.machine.teardown()
