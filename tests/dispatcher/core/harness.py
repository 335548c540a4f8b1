"""A shard on in-memory tables, with every effect under the test's control.

`Rig` drives one shard: each call hands it an event and then carries out its effects, but for the
kinds in `hold`, which wait in `waiting` until the test finishes them one by one. `crash` throws
the shard away and opens the next one from the tables. After every step the invariants are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from pushlane.wire.errors import PushlaneError, QueueFull, Throttled
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import (
    Append,
    Confirm,
    Deliver,
    Done,
    Drop,
    DropPurges,
    Effect,
    Fetch,
    Forget,
    Hungry,
    Lost,
    Mark,
    Page,
    Published,
    PublishTicket,
    Remember,
    Run,
    Schedule,
    Settle,
    SettleTicket,
    Transfer,
    WriteNote,
)
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.opening import ClaimLeases, RecallMarks, WriteSeal, open_shard
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.core.shard import Moment, Setup, Shard
from pushlane_dispatcher.core.snapshot import Snapshot, take_snapshot
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_leases.interface import LeaseRun
from pushlane_storage.bucket import CONTROL, Bucket, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.memory import MemoryTables
from pushlane_storage.message import Message
from pushlane_storage.queue import QueueConfig
from pushlane_storage.seal import Seal
from pushlane_storage.segment import Segment
from pushlane_storage.slot import slot_of
from tests.dispatcher.core.consumer import Consumer, got
from tests.dispatcher.core.invariants import check
from tests.opened import carry_out, reading

OFFSET = 1_000_000_000_000
"""Wall clock minus monotonic clock when a rig begins."""

LANE = 4
E = TypeVar("E", bound=Effect)


class Arrived(NamedTuple):
    """A message that another queue stored."""

    entry: Entry
    to: str
    message: Message


class Rig:
    def __init__(
        self,
        config: QueueConfig | None = None,
        bounds: Bounds | None = None,
        *,
        dead_letter: str | None = "q.dead",
        cached: bool = False,
        fencing: bool = True,
        now: int = 0,
    ) -> None:
        self.config = config or QueueConfig()
        self.bounds = bounds or Bounds()
        self.dead_letter = dead_letter
        self.cached = cached
        self.tables = MemoryTables(fencing=fencing)
        self.key = ShardKey("q1", 0)
        self.now = now
        self.offset = OFFSET
        self.doubted = False
        """Other clocks disagree with this one."""
        self.chance = 0.5
        """What the shard's next random numbers are."""
        self.hold: set[type[Effect]] = set()
        """Kinds of effects that wait for the test."""
        self.waiting: list[Effect] = []
        self.effects = 0
        """How many the shard has asked for."""
        self.published: list[PublishTicket] = []
        self.done: list[SettleTicket] = []
        self.lost: list[tuple[str, int, int]] = []
        self.hungry: list[Hungry] = []
        """What was said of subscriptions that share their credit."""
        self.transfers: list[Arrived] = []
        """What arrived at other queues."""
        self.refusal: Callable[[Message], PushlaneError | None] | None = None
        """Why other queues don't take a message."""
        self.marks: list[Bucket] = []
        self.drops: list[Drop] = []
        self.reads: list[Page | Fetch | Schedule] = []
        self.damaged: set[int] = set()
        """Seqs whose messages can't be read singly."""
        self.cache: dict[tuple[str, int], LeaseRun] = {}
        """What a lease cache would know."""
        self.consumers: dict[Subscription, Consumer] = {}
        self.snapshot: Snapshot | None = None
        """What the next owner is handed."""
        self.epoch = 0
        self.seal: Seal | None = None
        self.read_marks: list[Bucket] = []
        """Closed buckets whose marks were read at the last opening."""
        self.shard = self.open()

    @property
    def wall(self) -> int:
        return self.now + self.offset

    # Opening and crashing

    def open(self) -> Shard:
        """Claim the slot, and open the shard from there."""
        self.epoch = self.tables.claim(slot_of(self.key), "node")
        self.read_marks = []
        table = reading(self.tables, self.key, lambda: self.moment) | {
            RecallMarks: self._recall_marks,
            WriteSeal: self._write_seal,
            ClaimLeases: lambda _: list(self.cache.values()),
        }
        shard = carry_out(open_shard(self.setup), table)
        assert shard is not None
        return shard

    @property
    def setup(self) -> Setup:
        return Setup(
            self.key, "q", self.config, self.dead_letter, self.epoch, lambda: self.chance,
            self.bounds, self.cached, snapshot=self.snapshot,
        )  # fmt: skip

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.offset, self.doubted)

    def _recall_marks(self, step: RecallMarks) -> None:
        self.read_marks.append(step.bucket)

    def _write_seal(self, step: WriteSeal) -> None:
        self.seal = step.seal
        self.tables.write_seal(self.key, step.seal)

    def crash(self, *, wipe: bool = False) -> list[Effect]:
        """Lose everything in memory and open the shard anew; `wipe`: the lease cache too.

        Answers what was under way: a zombie may still `land` it.
        """
        under_way, self.waiting = self.waiting, []
        self.consumers = {}
        if wipe:
            self.cache = {}
        self.shard = self.open()
        self.run()
        return under_way

    def hand_over(self, ms: int = 0) -> None:
        """The owner stops, and the next one opens the shard a little later."""
        self.snapshot = take_snapshot(self.shard, self.now)
        self.now += ms
        self.crash(wipe=True)

    def configure(self, **changes: Any) -> None:
        self.config = msgspec.structs.replace(self.config, **changes)
        self.shard.configure(self.config, self.dead_letter)
        self.run()

    # Effects

    def run(self) -> None:
        """Carry out effects until nothing but what is held is left."""
        while True:
            noted = self.turn()
            free = [effect for effect in self.waiting if type(effect) not in self.hold]
            if not free and not noted:
                break
            for effect in free:
                self.waiting.remove(effect)
                self.answer(effect, self.land(effect))
        check(self.shard)

    def turn(self) -> list[WriteNote]:
        """Take the shard's effects: some are done at once, the others wait. What was noted?"""
        noted: list[WriteNote] = []
        for effect in self.shard.effects(self.now):
            self.effects += 1
            match effect:
                case Deliver():
                    self._delivered(effect)
                case Lost():
                    self.lost += effect.receipts
                case Hungry():
                    self.hungry.append(effect)
                case Published():
                    self.published.append(effect.ticket)
                case Confirm() | Done():
                    self.done.append(effect.ticket)
                case Remember():
                    assert self.cached
                    self._remember(effect.subscription, effect.runs)
                case Forget():
                    assert self.cached
                    for prefix, low, high in effect.receipts:
                        for n in range(low, high + 1):
                            self.cache.pop((prefix, n), None)
                case Mark():
                    self.marks.append(effect.bucket)
                    self.tables.mark_bucket(self.key, effect.bucket)
                case Drop():
                    self.drops.append(effect)
                    self.tables.drop(self.key, effect.key)
                case WriteNote() if WriteNote not in self.hold:
                    self.tables.write_note(self.key, effect.note)
                    noted.append(effect)
                case DropPurges():
                    self.tables.drop(self.key, CONTROL, effect.flushes)
                case _:
                    self.waiting.append(effect)
        assert self.shard.effects(self.now) == [], "effects are handed over once"
        for effect in noted:
            self.shard.noted(effect)
        return noted

    def land(self, effect: Effect) -> Any:
        """What the store, or another queue, does for an effect."""
        match effect:
            case Append():
                self.tables.append(self.key, effect.segment, effect.opens)
                return None
            case Settle():
                self.tables.settle(self.key, effect.rows)
                return None
            case WriteNote():
                self.tables.write_note(self.key, effect.note)
                return None
            case Page():
                self.reads.append(effect)
                return self.tables.segments(self.key, effect.bucket, effect.start, effect.limit)
            case Fetch():
                self.reads.append(effect)
                seqs = [entry.seq for entry in effect.entries if entry.seq not in self.damaged]
                return self.tables.messages(self.key, effect.bucket, seqs)
            case Schedule():
                self.reads.append(effect)
                return self.tables.due(self.key, effect.start, effect.end, effect.limit)
            case Transfer():
                return self._arrive(effect)
        raise AssertionError(effect)

    def _arrive(self, transfer: Transfer) -> list[PushlaneError | None]:
        """One that is refused stops those behind it, as in `Journal.publish`."""
        errors: list[PushlaneError | None] = []
        for entry, message in zip(transfer.entries, transfer.messages, strict=True):
            error = None if self.refusal is None else self.refusal(message)
            if error is None and any(errors):
                error = Throttled("it waits for one before it")
            if error is None:
                self.transfers.append(Arrived(entry, transfer.to, message))
            errors.append(error)
        return errors

    @property
    def refusing(self) -> bool:
        """Other queues are full."""
        return self.refusal is not None

    @refusing.setter
    def refusing(self, refusing: bool) -> None:
        self.refusal = (lambda _: QueueFull("full")) if refusing else None

    def answer(self, effect: Effect, answer: Any) -> None:
        """Tell the shard what came of an effect."""
        match effect:
            case Append():
                self.shard.appended(effect, self.now)
            case Settle():
                self.shard.settled(effect, self.now)
            case WriteNote():
                self.shard.noted(effect)
            case Page():
                self.shard.paged(effect, answer, self.now)
            case Fetch():
                self.shard.fetched(effect, answer, self.now)
            case Schedule():
                self.shard.scheduled(effect, answer, self.now)
            case Transfer():
                self.shard.transferred(effect, answer, self.now)
        check(self.shard)

    def held(self, kind: type[E]) -> list[E]:
        """What waits of one kind."""
        return [effect for effect in self.waiting if type(effect) is kind]

    def finish(self, *effects: Effect) -> None:
        """Carry out effects that were held, all of them if none is named."""
        for effect in effects or list(self.waiting):
            self.waiting.remove(effect)
            self.answer(effect, self.land(effect))
        self.run()

    def refuse(self, append: Append) -> bool:
        """The store certainly did not store it. Answers whether it was undone."""
        undone = self.shard.append_refused(append, self.now)
        if undone:
            self.waiting.remove(append)
        self.run()
        return undone

    def _delivered(self, deliver: Deliver) -> None:
        subscription = deliver.subscription
        if not subscription.ack_none and self.cached:
            self._remember(subscription, deliver.runs)
        consumer = self.consumers.get(subscription)
        if consumer is not None:
            consumer.frames += 1
            consumer.inbox += got(deliver)

    def _remember(self, subscription: Subscription, runs: Sequence[Run]) -> None:
        for run in runs:
            for index in range(len(run.messages)):
                self.cache[subscription.prefix, run.n + index] = LeaseRun(
                    subscription.prefix,
                    run.n + index,
                    1,
                    run.lane,
                    run.seq + index,
                    run.fence,
                    subscription.session,
                    run.attempt - 1,
                    run.deliveries,
                    run.started,
                    subscription.lease_ms,
                    run.deadline + self.offset,
                    self.epoch,
                )

    # Time

    def wait(self, ms: int) -> None:
        """Let time pass, with a tick whenever the shard asked for one."""
        end = self.now + ms
        while (at := self.shard.wake_at()) is not None and at <= end:
            self.now = max(self.now, at)
            before = self.effects
            self.tick()
            again = self.shard.wake_at()
            idle = before == self.effects and again is not None and again <= self.now
            assert not idle, "the shard asks to be woken and then does nothing"
        self.now = end
        self.tick()

    def tick(self) -> None:
        self.shard.tick(self.now, self.offset, self.doubted)
        self.run()

    # Producers

    def message(self, body: str, **fields: Any) -> Message:
        return Message(body.encode(), self.wall, **fields)

    def publish(self, *bodies: str, lane: int | None = None, **fields: Any) -> PublishTicket:
        """Publish messages that all have the same fields."""
        return self.send([self.message(body, **fields) for body in bodies], lane)

    def send(self, messages: list[Message], lane: int | None = None) -> PublishTicket:
        lanes = None if lane is None else [lane] * len(messages)
        ticket = self.shard.publish(messages, self.now, lanes)
        self.run()
        return ticket

    def purge(self) -> SettleTicket:
        ticket = SettleTicket()
        self.shard.purge(ticket, self.now)
        self.run()
        return ticket

    # Consumers

    def subscribe(
        self,
        credit: int = 10,
        *,
        explicit: bool = False,
        ack_none: bool = False,
        lease_ms: int = 30_000,
        session: str = "",
        shared: bool = False,
        client: str = "",
        claims: Claims = (),
    ) -> Consumer:
        prefix = f"{self.epoch}p{len(self.consumers) + 1}"
        subscription = Subscription(
            prefix,
            session or f"session of {prefix}",
            credit,
            lease_ms,
            explicit=explicit,
            ack_none=ack_none,
            shared=shared,
            client=client,
            claims=claims,
        )
        self.shard.attach(subscription)
        return self.adopt(subscription)

    def adopt(self, subscription: Subscription) -> Consumer:
        """The consumer behind a subscription that the shard has."""
        consumer = self.consumers[subscription] = Consumer(self, subscription)
        self.run()
        return consumer

    # Looking

    def entry(self, seq: int, lane: int = LANE) -> Entry:
        return self.shard.window.lanes[lane].entries[seq]

    def explain(self, seq: int, lane: int = LANE) -> Explanation:
        return self.shard.explain(lane, seq, self.now, self.stored(lane, seq))

    def state(self, seq: int, lane: int = LANE) -> str:
        return self.explain(seq, lane).state

    @property
    def stats(self) -> Stats:
        return self.shard.stats()

    def stored(self, lane: int, seq: int) -> Message | None:
        for bucket in self.tables.outline(self.key).buckets:
            if bucket.key.lane == lane:
                found = self.tables.messages(self.key, bucket.key, [seq])
                if found:
                    return found[seq]
        return None

    def buckets(self) -> list[Bucket]:
        return self.tables.outline(self.key).buckets

    def segments(self) -> list[Segment]:
        return [
            segment
            for bucket in self.buckets()
            for segment in self.tables.segments(self.key, bucket.key, 0, 1_000_000)
        ]

    def dues(self) -> list[Due]:
        return self.tables.due(self.key, 0, 1 << 62, 1_000_000)


def prompt(bounds: Bounds | None = None, *, cached: bool = False) -> Rig:
    """A rig whose backoffs are over at once."""
    config = QueueConfig(backoff_base_ms=1, consumer_backoff_base_ms=1, consumer_backoff_max_ms=1)
    return Rig(config, bounds, cached=cached)
