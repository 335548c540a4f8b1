"""A shard: a queue, or a part of one, as a state machine.

Events are plain synchronous calls; each takes the time as an argument, and random numbers come
from a source given at birth. What the shard wants done stands in the list that `effects()`
hands over; the outcomes come back as events. It never waits, reads a clock or touches I/O, so a
seed and a commit reproduce any run.

`now` is monotonic milliseconds; wall time is `now` plus an offset that `tick` brings and that does
not step (see `Clock`). Leases, backoff and dedup windows are kept in monotonic time, `not_before`
and expiry in wall time, which a successor can read.

While its clock is *suspect* nothing that a predecessor stored ends for its age, no bucket is
dropped or past its retention, and dedup marks count as new. It is suspect when it is doubted
outside, or when a predecessor stored something in the future: one of the two clocks was wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pushlane.wire.errors import PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.account import Account
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.bounds import CLOCK_TOLERANCE_MS, Bounds
from pushlane_dispatcher.core.by_request import cancel, redrive
from pushlane_dispatcher.core.consumers import Consumers
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.departures import Departures
from pushlane_dispatcher.core.drops import Drops
from pushlane_dispatcher.core.effects import (
    Append,
    Confirm,
    Done,
    DropPurges,
    Effect,
    Fetch,
    Mark,
    Page,
    Published,
    PublishTicket,
    Resumed,
    Schedule,
    Settle,
    SettleTicket,
    Transfer,
    WriteNote,
)
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.explain import Explanation, Stats, explain, stats
from pushlane_dispatcher.core.journal import Journal
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import ENDS, Event, Life, State
from pushlane_dispatcher.core.log import Batch, Log
from pushlane_dispatcher.core.looking import (
    ConsumerInfo,
    Located,
    Stretch,
    in_line,
    locate,
    roster,
    stretch,
)
from pushlane_dispatcher.core.meter import Meter
from pushlane_dispatcher.core.notes import Notes
from pushlane_dispatcher.core.overflow import Overflow
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.core.recovered import Recovered, restore
from pushlane_dispatcher.core.retention import Retention
from pushlane_dispatcher.core.snapshot import Snapshot
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.core.verdicts import Verdicts
from pushlane_dispatcher.core.window import Window
from pushlane_storage.bucket import Bucket, ShardKey
from pushlane_storage.interface import Due
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.queue import QueueConfig
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Purge
from pushlane_storage.tally import Counters

NEVER = 1 << 62


class Setup(msgspec.Struct, frozen=True):
    """What whoever opens a shard brings along: all else is read."""

    key: ShardKey
    name: str
    """The queue's."""
    config: QueueConfig
    dead_letter: str | None
    """The queue for dead letters; None: nowhere."""
    epoch: int
    chance: Callable[[], float]
    """Random numbers in [0, 1)."""
    bounds: Bounds = Bounds()
    cached: bool = False
    """A lease cache wants to be told of starts, extensions and ends."""
    meter: Meter | None = None
    tenant: str = ""
    shared: bool = False
    """Predecessors may still be running: another process may take over what one has."""
    snapshot: Snapshot | None = None
    """What an owner before handed over."""


class Moment(NamedTuple):
    """A look at the clock."""

    now: int
    """Monotonic milliseconds."""
    offset: int
    """What to add to get wall-clock time."""
    doubted: bool = False
    """Other clocks disagree."""

    @property
    def wall(self) -> int:
        return self.now + self.offset


class Shard:
    def __init__(self, setup: Setup, recovered: Recovered, moment: Moment) -> None:
        now, offset, doubted = moment
        key, name, config, epoch = setup.key, setup.name, setup.config, setup.epoch
        self.key = key
        self.name = name
        self.epoch = epoch
        self.offset = offset
        self.bounds = bounds = setup.bounds
        self.newest_at = recovered.newest_at
        """Wall clock: when the newest message was published that was there before."""
        self.meter = meter = setup.meter
        if meter is not None:
            meter.offset = offset
        self.account = Account(recovered.tally, recovered.buckets)
        self._effects: list[Effect] = []
        self.granting = True
        """Its owner may grant: it neither leaves nor seems dead to others."""
        self.life = Life()
        self.window = Window(bounds, epoch, self.life, self._effects)
        self.dedup = Dedup(bounds, config.dedup_window_ms, self.window.stored_before)
        self.journal = Journal(
            bounds, self._effects, self.window.lanes, self.window.lane, self.dedup
        )
        self.log = Log(bounds, self._effects, epoch)
        self.departures = Departures(
            bounds, self._effects, self.life, self.log, self.window,
            (name, key.queue_id, key.shard), epoch,
        )  # fmt: skip
        self.verdicts = Verdicts(
            self.life, self.log, self.window, self.departures, setup.chance, meter
        )
        self.consumers = Consumers(
            bounds, epoch, self._effects, self.life, self.log, self.window, self.verdicts,
            setup.cached, meter, key,
        )  # fmt: skip
        self._purges = recovered.purges
        """The rows of purges that are stored; only the last of them counts."""
        self.overflow = Overflow(
            bounds, self.life, self.journal, self.window, self.verdicts, self.departures
        )
        blank = Note(epoch, 0, setup.tenant, name)
        self.notes = Notes(bounds, self._effects, self.dedup.producers, blank)
        self._drops = Drops(bounds, self._effects, self.dedup, self.notes)
        self.retention = Retention(bounds, self.log, self.window, self.verdicts, self.departures)
        self.configure(config, setup.dead_letter)
        self.window.delays.read_until = now + offset + bounds.horizon_ms
        self.clock_suspect = False
        self._judge_clock(now + offset, doubted)
        restore(self, recovered, now)
        self.retention.reconsider()

    def configure(self, config: QueueConfig, dead_letter: str | None) -> None:
        """Take on a configuration. `dead_letter` is the queue for dead letters; None: nowhere."""
        self.config = config
        self.verdicts.config = config
        self.verdicts.dead_letter = dead_letter
        self.departures.configure(dead_letter)
        self.journal.max_message_bytes = config.max_message_bytes
        self.journal.retention_ms = config.retention_ms
        self.dedup.window_ms = config.dedup_window_ms
        self.overflow.configured()
        self.retention.reconsider()
        self._drops.archived = config.archive != "none"

    def effects(self, now: int) -> list[Effect]:
        """Hand over what is to be done, after granting and flushing what can be."""
        wall = now + self.offset
        if self.consumers.again:
            self.consumers.resend()
        rests = self.config.paused or not self.granting
        if not rests:
            self.consumers.pump(now, wall)
        else:
            self.consumers.pause()
        if self.overflow.owing:
            self.overflow.pay(now, wall)
        if self.departures.lines or self.departures.parked_until is not None:
            self.departures.pump(now, wall)
        self.window.read()
        if self.window.delays.far:
            self.window.delays.read(wall)
        if self.consumers.hunger.asking and (rests or not self.window.promising):
            self.consumers.hunger.nothing_left()
        if self.journal.soonest is not None or self.life.counts[State.LEAVING]:
            self._remind(now, wall)
        if self.notes.holding is None:
            company = False
            for lane in self.window.order:
                if lane.pending:
                    company |= self.journal.flush(lane, now, wall)
            self.log.flush(now, company)
        effects = self._effects.copy()
        self._effects.clear()
        return effects

    # When it must be open

    def _remind(self, now: int, wall: int) -> None:
        """What is due while nobody uses the queue is noted before it is written."""
        soonest = self.journal.soonest
        if soonest is not None and self.notes.remind(soonest, now, wall, hold=True):
            self.journal.soonest = None
        if self.life.counts[State.LEAVING]:
            self.notes.remind(wall, now, wall, hold=True)

    def part(self, now: int) -> None:
        """The shard will be closed: the note says when it must be open again."""
        wall = now + self.offset
        window = self.window
        reading = window.reading or window.delays.reading or self.journal.pending_messages > 0
        unseen = reading or window.delays.far > 0 or window.keys.passed > 0
        dues = [wall] if self.life.departing() else []
        for lane in window.order:
            unseen |= lane.backlogged
            for entry in lane.entries.values():
                if entry.expires_at:
                    dues.append(entry.expires_at)
                elif entry.message is None:  # a bare position, perhaps of one that expires
                    unseen = True
            stored = [bucket.last_at for bucket in lane.buckets if bucket.count]
            dues += [last_at + self.config.retention_ms for last_at in stored]
        due = min(dues, default=None)
        self.notes.part(due, now, wall, unseen=unseen, reading=reading)

    def noted(self, write: WriteNote) -> None:
        """A note is durable."""
        self.notes.written(write)

    # Publishing

    def publish(
        self,
        messages: list[Message],
        now: int,
        lanes: Sequence[int] | None = None,
        token: Any = None,
    ) -> PublishTicket:
        """Messages to be stored. `Published` says when they are, or why not."""
        ticket = PublishTicket([], lanes, token)
        journal, count = self.journal, len(messages)
        size = journal.plain_size(messages) if lanes is None else None
        if size is not None and not journal.full(count, size):
            name, low = messages[0].producer, messages[0].producer_seq
            new = name is None or self.dedup.producers.all_new(name, low, now)
            if new and self.overflow.has_room(count, size):
                journal.publish_plain(messages, ticket, size, now)
                return ticket
        wall = now + self.offset

        def make_room(count: int, size: int) -> Any:
            return self.overflow.make_room(count, size, now, wall)

        journal.publish(messages, ticket, make_room, now)
        if not ticket.waits:
            self._effects.append(Published(ticket))
        return ticket

    def appended(self, append: Append, now: int) -> None:
        """A flush is stored."""
        wall = now + self.offset
        self.account.changed = True
        if append.opens is not None:
            self.notes.remind(wall + self.config.retention_ms, now, wall, hold=False)
        for stored in self.journal.stored(append):
            if self.meter is not None:
                self.meter.stored(stored.segment.messages, stored.size, now)
            self.overflow.recount(stored.bucket)
            self.window.stored(stored, now, wall)
            for bucket in stored.lane.buckets[-2:]:
                if bucket.rolled:
                    self.close_bucket(stored.lane, bucket, now)

    def allot(self, messages: int, size: int | None, now: int) -> bool:
        """This shard's share of the queue's `max_messages` and `max_bytes`. Does anything go?"""
        return self.overflow.allot(messages, size, now, now + self.offset)

    def append_refused(self, append: Append, now: int) -> bool:
        """A flush certainly was not stored. False: write the same again (see `Journal`)."""
        return self.journal.refused(append)

    # Consuming: see Consumers

    def attach(self, subscription: Subscription) -> None:
        self.consumers.attach(subscription)

    def claim(self, subscription: Subscription, claims: Claims) -> None:
        self.consumers.claim(subscription, claims)

    def detach(
        self, subscription: Subscription, resume_ms: int, now: int, *, broken: bool = True
    ) -> None:
        """`broken`: its client's own connection."""
        self.consumers.detach(subscription, now + resume_ms, broken)

    def resume(self, subscription: Subscription, held: Iterable[ReceiptRun]) -> Resumed:
        return self.consumers.resume(subscription, held)

    def adopt(self, subscription: Subscription, held: Iterable[ReceiptRun], now: int) -> Resumed:
        return self.consumers.adopt(subscription, held, now, now + self.offset)

    def unsubscribe(self, subscription: Subscription, now: int) -> None:
        self.consumers.unsubscribe(subscription, now, now + self.offset)

    def end(self, subscription: Subscription, now: int) -> None:
        """Its session closed in good order."""
        self.consumers.end(subscription, True, now, now + self.offset)

    def credit(self, subscription: Subscription, credit: int) -> None:
        self.consumers.set_credit(subscription, credit)

    def settle_lost(
        self, prefix: str, receipts: Iterable[ReceiptRun], ticket: SettleTicket, now: int
    ) -> None:
        """Answer for receipts with a prefix that no subscription has (any more)."""
        self.consumers.settle_lost(prefix, receipts, ticket, now)
        self._answer(ticket)

    def settle(
        self, subscription: Subscription, generation: int, act: Act,
        receipts: Iterable[ReceiptRun], ticket: SettleTicket, now: int,
    ) -> None:  # fmt: skip
        """Start, ack, nack or extend what these receipts stand for."""
        wall = now + self.offset
        self.consumers.settle(subscription, generation, act, receipts, ticket, now, wall)
        if act.verb == "extend":
            self._confirm(ticket, Confirm(ticket))
        elif act.verb == "start":
            self._confirm(ticket, Done(ticket))
        else:
            self._answer(ticket)

    def _confirm(self, ticket: SettleTicket, effect: Confirm | Done) -> None:
        """At once, unless it says `duplicate`: that confirms a settle, so it must be durable."""
        if ticket.duplicate:
            self._answer(ticket)
        else:
            self._effects.append(effect)

    def _answer(self, ticket: SettleTicket) -> None:
        """When everything decided so far is durable; also a duplicate's first one."""
        if not self.log.wait(ticket):
            self._effects.append(Done(ticket))

    def settled(self, settle: Settle, now: int) -> None:
        """A flush of the settlement log is durable."""
        wall = now + self.offset
        self.account.changed = True
        batch = self.log.settled(settle)
        buckets = [row.bucket for row in batch.rows.values()]
        for bucket in buckets:
            self.overflow.recount(bucket)
        self._settle_batch(batch, (settle.rows[0].owner, settle.rows[0].n), now, wall)
        for bucket in buckets:
            if bucket.rolled:
                self.close_bucket(self.window.lanes[bucket.key.lane], bucket, now)

    def _settle_batch(self, batch: Batch, flush: tuple[int, int], now: int, wall: int) -> None:
        self._ended(batch.acked, Event.SETTLED, now)
        for subscription, entries in batch.taken:
            self.consumers.taken(subscription, entries)
            self._ended(entries, Event.SETTLED, now)
        for entry in batch.voided:
            if not self.departures.returned(entry, now):
                self.verdicts.voided(entry, now, wall)
        for entry in batch.leaving:
            self.window.free_key(entry, now)
            self.departures.decided(entry, now)
        for entry in batch.ended:
            self._ended([entry], ENDS.get(entry.cause, Event.SETTLED), now)
        if batch.barrier:
            self.window.purging = self.log.purging
            purged = self._purged(batch.purges, now)
            for ticket in batch.tickets:
                ticket.purged = purged
        if batch.purges:
            if self._purges:
                self._effects.append(DropPurges(self._purges))
            self._purges = [flush]
        self._effects += [Done(ticket) for ticket in batch.tickets]

    def _ended(self, entries: list[Entry], event: Event, now: int) -> None:
        """Messages' ends are durable: forget them, and let their keys go on."""
        if not entries:
            return
        self.life.move(entries, event, now)
        self.window.bodies.forget(entries)
        for entry in entries:
            entry.holder = None
            if entry.key is not None:
                self.window.free_key(entry, now)

    # Managing

    def purge(self, ticket: SettleTicket, now: int) -> None:
        """Everything goes that is stored and not in flight."""
        purged = self.window.purge()
        for entry in purged:
            entry.cause = "purged"
        self.life.move_mixed(purged, Event.END, now)
        purges = [
            Purge(
                lane.number,
                lane.stored - 1,
                sorted(seq for seq, entry in lane.entries.items() if entry.cause != "purged"),
            )
            for lane in self.window.order
        ]
        if purges:
            self.window.purging = True
            self.log.purge(purges, purged)
        self._answer(ticket)

    def _purged(self, purges: list[Purge], now: int) -> int:
        """Purges are durable: how many messages they ended."""
        count = 0
        for purge in purges:
            lane = self.window.lane(purge.lane)
            for bucket in list(lane.buckets):
                before = bucket.state.settled.count
                bucket.state.purge(purge, bucket.first, bucket.last)
                count += bucket.state.settled.count - before
                self.overflow.recount(bucket)
                self.close_bucket(lane, bucket, now)
        if count:
            self.verdicts.count("purged", count)
        return count

    def hold(self) -> None:
        """What is decided in this turn must be durable before anything comes into the window."""
        self.window.purging = True
        self.log.hold()

    def redrive(self, lane: int, targets: Mapping[int, str], now: int) -> int:
        """Messages of a lane that wait go to other queues, by seq; how many did."""
        return redrive(self, lane, targets, now)

    def cancel(self, lane: int, seq: int, not_before: int, ticket: SettleTicket, now: int) -> None:
        """End a delayed message, or raise why not. `not_before` is the stored message's own."""
        cancel(self, lane, seq, not_before, now)
        self._answer(ticket)

    # Reading

    def paged(self, page: Page, segments: Iterable[Segment], now: int) -> None:
        for entry in self.window.paged(page, segments, now, now + self.offset):
            self.verdicts.damaged(entry, now)

    def fetched(self, fetch: Fetch, messages: dict[int, Message], now: int) -> None:
        damaged = self.window.fetched(fetch, messages)
        leaving = self.departures.fetched(fetch.entries)
        for entry in fetch.entries:
            self.consumers.fetched(entry)
            if entry in damaged and (entry in leaving or entry.state is State.READY):
                self.verdicts.damaged(entry, now)

    def scheduled(self, read: Schedule, found: Sequence[Due], now: int) -> None:
        self.window.scheduled(read, found, now)

    def transferred(
        self, transfer: Transfer, errors: Sequence[PushlaneError | None], now: int
    ) -> None:
        """Why each message is not stored there; None: it is."""
        self.departures.transferred(transfer, errors, now, now + self.offset)
        if any(errors):  # what comes back, or is stuck, counts again
            self.overflow.owing = True

    # Time

    def tick(self, now: int, offset: int, doubted: bool = False) -> None:
        """Time has come for something, or just passed. Safe to call at any time."""
        self.offset = offset
        if self.meter is not None:
            self.meter.offset = offset
        wall = now + offset
        self._judge_clock(wall, doubted)
        self.consumers.tick(now, wall)
        self.window.due(now, wall)
        for entry in self.window.expiry.sweep(wall):
            self.verdicts.expire(entry, now, wall)
        if not self.clock_suspect:
            self.retention.tick(now, wall)
            self._drops.tick(now, wall)
        if self.retention.next_at is not None:  # it may have been shortened
            self.notes.remind(self.retention.next_at, now, wall, hold=False)
        for lane in self.window.order:
            bucket = lane.open
            if bucket is not None and not lane.flights and self.journal.outgrown(bucket, now):
                self.journal.roll(lane, bucket)
                self.close_bucket(lane, bucket, now)

    def _judge_clock(self, wall: int, doubted: bool) -> None:
        suspect = doubted or self.newest_at - wall > CLOCK_TOLERANCE_MS
        if suspect != self.clock_suspect:
            self.clock_suspect = suspect
            self.window.expiry.judge_from(make_seq(self.epoch, 0) if suspect else 0, wall)

    def wake_at(self) -> int | None:
        """Monotonic: when `tick` has something to do next; None: not before the next event."""
        consumers, departures, delays = self.consumers, self.departures, self.window.delays
        times = [consumers.timers.next(), self.log.next.patient_until]
        walls = [self.window.expiry.next_at]
        if consumers.idle.since is not None:
            times.append(consumers.idle.next_steal())
        if departures.lines or departures.parked_until is not None:
            times.append(departures.next_retry())
        if delays.heap:
            walls.append(delays.next_due())
        if delays.far:
            walls.append(delays.next_read())
        if not self.clock_suspect:
            if self._drops.waiting:
                times.append(self._drops.waiting[0].due)
            if self.retention.next_at is not None:
                walls.append(self.retention.next())
        at = NEVER  # plain loops: this is asked with every pump
        for time in times:
            if time is not None and time < at:
                at = time
        for wall in walls:
            if wall is not None and wall - self.offset < at:
                at = wall - self.offset
        for lane in self.window.order:
            if lane.open is not None and not lane.flights:
                at = min(at, lane.open.opened_at + self.bounds.bucket_ms)
        return None if at == NEVER else at

    # Buckets

    def close_bucket(self, lane: Lane, bucket: LiveBucket, now: int) -> None:
        """Close a bucket when all of it is stored, and let it go when all of it is settled."""
        if bucket.rolled and not bucket.closed and bucket.count == bucket.assigned:
            bucket.closed = True
            self._effects.append(Mark(bucket.row()))
            self.retention.watch(bucket)
        if bucket.drained and bucket in lane.buckets:
            lane.buckets.remove(bucket)
            self.account.drain(bucket)
            row = bucket.row(drained=True)
            self._effects.append(Mark(row))
            self.drop_later(row, now)

    def drop_later(self, drained: Bucket, now: int) -> None:
        age = 0 if self.clock_suspect else max(0, now + self.offset - drained.last_at)
        self._drops.add(drained, age, now)

    # Asking

    def explain(self, lane: int, seq: int, now: int, message: Message | None = None) -> Explanation:
        return explain(self, lane, seq, now, message)

    def stats(self) -> Stats:
        return stats(self)

    def lifetime(self) -> Counters:
        """What ever happened in it, exactly."""
        return self.account.lifetime(self.window.order)

    def stretch(self, lane: int, start: int) -> Stretch | None:
        return stretch(self, lane, start)

    def in_line(self, lane: int, seq: int, not_before: int, now: int) -> int | None:
        return in_line(self, lane, seq, not_before, now)

    def locate(self, lane: int, seq: int) -> Located | None:
        return locate(self, lane, seq)

    def roster(self) -> list[ConsumerInfo]:
        return roster(self)

    # The end

    def dispose(self) -> None:
        """The shard is over and will not be used again: let go of its messages (see `Entry`)."""
        for lane in self.window.order:
            for entry in lane.entries.values():
                entry.holder = None
            for kept in (
                lane.entries, lane.fresh, lane.again, lane.bare, lane.flights, lane.tickets,
            ):  # fmt: skip
                kept.clear()
        for subscription in self.consumers.subscriptions.values():
            subscription.held.clear()
