"""The engine: a shard's own task. It carries out what the core asks for.

Callers change the core with plain calls and `wake` the engine; nothing happens inside their
calls. A *pump* takes the core's effects and begins them all: what needs no I/O is done on the
spot, the rest in child tasks that pump again when they are done; segments and settlements, for
which the store calls back, need a task only when that failed. So there is no hop and no task per
message, and while the store is busy the next group gathers in the core.

It ends in one of two ways: `close` lets it finish what it accepted, `stop` ends it here and now.
Either way everybody who still waits is told.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Any

import trio

from pushlane.wire.errors import Unavailable
from pushlane_dispatcher.context import Context
from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS
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
    Schedule,
    Settle,
    SettleTicket,
    Transfer,
    WriteNote,
)
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.snapshot import Snapshot, take_snapshot
from pushlane_dispatcher.queues.transfers import Errors, Send
from pushlane_dispatcher.recording.notes import Notes
from pushlane_dispatcher.shard.asking import Confirmer, Reader, Unstored
from pushlane_dispatcher.shard.mark_cache import MarkCache
from pushlane_dispatcher.shard.repeat import Undecided, never, until_decided, until_done
from pushlane_dispatcher.shard.sender import Sender, hand_over
from pushlane_dispatcher.shard.stop import Stop
from pushlane_dispatcher.shard.waiting_publishers import WaitingPublishers
from pushlane_dispatcher.usage.counters import ShardCounters, Uncounted
from pushlane_leases.interface import StaleEpoch
from pushlane_storage.bucket import CONTROL, Bucket
from pushlane_storage.interface import Fenced, Outcome, StoreDamaged
from pushlane_storage.outcome import append as store_segment
from pushlane_storage.outcome import settle as store_settlements

log = logging.getLogger(__name__)

Ticket = PublishTicket | SettleTicket


class Engine:
    def __init__(
        self,
        shard: Shard,
        context: Context,
        send: Send,
        counters: ShardCounters | Uncounted,
        notes: Notes | None = None,
    ) -> None:
        """`notes` are told what happens, where that is recorded."""
        self.shard = shard
        self._notes = notes
        self.counters = counters
        self._context = context
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._heart = context.heart
        self._sender = self._marks = None
        if context.leases is not None:
            self._sender = Sender(shard, context.leases, context.settings)
            if context.leases.instant is None:  # else it would not outlive this process
                most = context.settings.cached_marks
                self._marks = MarkCache(context.leases, shard.key, shard.epoch, most)
        self._reader = Reader(shard.key, context)
        self._send = send
        self._asked: dict[Effect, int] = {}
        """Writes that the store has not answered yet, and since when; the oldest first."""
        self._tidying: deque[Mark | Drop | DropPurges | WriteNote] = deque()
        self.tickets: dict[Ticket, None] = {}
        """Whose token waits for an answer."""
        self.waiting_publishers = WaitingPublishers()
        """Publishers that wait for room."""
        self.closing: Stop | None = None
        self.stopped_by: Stop | None = None
        self.stopped = trio.Event()
        self.snapshot: Snapshot | None = None
        """For the next owner, where that is to be another process."""
        self._ticked_at = self._pumped_at = self._clock.now()
        self._scope = trio.CancelScope()
        self._alarm = trio.CancelScope()
        self._alarm_at = inf
        self._task: trio.lowlevel.Task | None = None
        self._parked = False
        self._woken = False
        self._pumping = False
        self._do: dict[type[Effect], Callable[[Any], None]] = {
            Append: self._append_soon,
            Settle: self._settle_soon,
            Mark: self._tidy_later,
            Drop: self._tidy_later,
            WriteNote: self._note_down,
            DropPurges: self._tidy_later,
            Page: self._spawn(self._unless_fenced(self._page)),
            Fetch: self._spawn(self._unless_fenced(self._fetch)),
            Schedule: self._spawn(self._unless_fenced(self._schedule)),
            Transfer: self._spawn(self._transfer),
            Published: self._answer,
            Confirm: self._answer,
            Done: self._answer,
            Deliver: hand_over,
            Lost: hand_over,
            Hungry: hand_over,
        }
        if context.store.ownership.shared:
            self._do |= {Confirm: self._confirm_soon, Published: self._published}
            self._confirmer = Confirmer(context.store.ownership, shard.key, self._settings)
        if self._sender is not None:
            self._do |= {
                Deliver: self._sender.add,
                Lost: self._sender.add,
                Hungry: self._sender.add,
                Remember: self._sender.add,
                Forget: self._sender.forget,
            }
        if notes is not None:
            self._do[Deliver] = partial(_noted, notes.granted, self._do[Deliver])
            self._do[Lost] = partial(_noted, notes.lost, self._do[Lost])

    # The task

    async def run(self) -> Stop:
        """Serve until stopped. Bugs of ours, and of the store, come through as they are."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._scope = self._nursery.cancel_scope
                if self.stopped_by is not None:
                    self._scope.cancel()
                try:
                    await self._serve()
                finally:  # answers of the store may still come: they begin nothing any more
                    if self.stopped_by is None:
                        self.stopped_by = Stop.CANCELLED
        finally:
            assert self.stopped_by is not None
            self._end(self.stopped_by)
        return self.stopped_by

    async def _serve(self) -> None:
        self._task = trio.lowlevel.current_task()
        while True:
            self._alarm_at = inf
            with trio.CancelScope() as self._alarm:
                while True:
                    self.pump()
                    if self._woken:
                        self._woken = False
                        await trio.lowlevel.checkpoint()
                    else:
                        self._parked = True
                        await trio.lowlevel.wait_task_rescheduled(self._unpark)
            self._tick()

    def _unpark(self, _: object) -> trio.lowlevel.Abort:
        self._parked = False
        return trio.lowlevel.Abort.SUCCEEDED

    def wake(self) -> None:
        """Have the core's wishes seen to, soon."""
        if self._parked:
            self._parked = False
            assert self._task is not None
            trio.lowlevel.reschedule(self._task)
        else:
            self._woken = True

    def begin(self) -> None:
        """See to them at once when nothing is under way: then there is no company to wait for."""
        if self._parked and not self._pumping:
            self.pump()
        else:
            self.wake()

    def pump(self) -> None:
        """Begin everything that the core wants done."""
        if self.stopped_by is not None:
            return
        self._pumping = True
        try:
            self._pumped_at = now = self._clock.now()
            if now - self._ticked_at >= self._settings.clock_ms:
                self._tick()
            # One that closes, and is busy, would never come to an end.
            self.shard.granting = self.closing is None and not self._heart.stands_still
            do = self._do
            for effect in self.shard.effects(now):
                do[type(effect)](effect)
            if self._sender is not None and self._sender.begin():
                self._send_out(self._sender)
            if self.waiting_publishers.lot and not self.shard.journal.congested:
                # It publishes and wakes us: then it is the next one's turn.
                self.waiting_publishers.call()
            if self.closing is not None and self.quiet:
                self.stop(self.closing)
            self._set_alarm(now)
        finally:
            self._pumping = False

    def _spawn(self, run: Callable[[Any], Awaitable[None]]) -> Callable[[Any], None]:
        def spawn(effect: Effect) -> None:
            self._nursery.start_soon(run, effect)

        return spawn

    def _unless_fenced(
        self, run: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        async def guarded(effect: Effect) -> None:
            try:
                await run(effect)
            except Fenced as error:
                self._fenced(error)

        return guarded

    def _fenced(self, error: Fenced) -> None:
        log.warning("%s: fenced: %s", self.shard.key, error)
        self.stop(Stop.FENCED)

    # Time

    @property
    def lag_ms(self) -> int:
        """How long its oldest write has waited for the store: what is stored is so far behind."""
        now = self._clock.now()
        return now - next(iter(self._asked.values()), now)

    def _tick(self) -> None:
        self._ticked_at = self._clock.now()
        if self.lag_ms >= self._settings.decide_ms:  # who waits longer holds up another owner
            self.stop(Stop.UNDECIDED)
            return
        suspect, ended = self.shard.clock_suspect, self.shard.retention.ended
        self.shard.tick(self._ticked_at, self._clock.offset(), self._clock.doubted)
        if self.shard.retention.ended > ended:
            self._tell_of_retention(self.shard.retention.ended - ended)
        if suspect and not self.shard.clock_suspect:
            log.warning("%s: its clock is trusted again", self.shard.key)

    def _tell_of_retention(self, ended: int) -> None:
        shard = self.shard
        count = self._context.past_retention.add(shard.key.queue_id, ended, self._ticked_at)
        if count:
            log.warning(
                "queue %s: %d messages ended because nobody took them within retention_ms (%d);"
                " retention_end is %s",
                shard.name, count, shard.config.retention_ms, shard.config.retention_end,
            )  # fmt: skip

    def _set_alarm(self, now: int) -> None:
        asked = next(iter(self._asked.values()), None)
        at = inf if asked is None else asked + self._settings.decide_ms
        wake_at = self.shard.wake_at()
        if wake_at is not None:
            at = min(at, wake_at)
        elif self.shard.clock_suspect:
            at = min(at, now + self._settings.clock_ms)  # it may be trusted again by then
        if at == inf:
            return
        at = min(max(at, self._ticked_at + self._settings.tick_ms), now + self._settings.clock_ms)
        if at < self._alarm_at:  # when it rings too early, a tick finds nothing to do
            self._alarm_at = at
            self._alarm.deadline = at / 1000

    # Writing

    def _append_soon(self, append: Append) -> None:
        outcome = self._outcome(partial(self._appended, append), self._append, append)
        self._store.append_soon(self.shard.key, append.segment, append.opens, outcome)

    def _settle_soon(self, settle: Settle) -> None:
        outcome = self._outcome(partial(self._settled, settle), self._settle, settle)
        self._store.settle_soon(self.shard.key, settle.rows, outcome)

    def _outcome(
        self,
        stored: Callable[[], None],
        again: Callable[[Any, Exception | None], Awaitable[None]],
        effect: Effect,
    ) -> Outcome:
        """What to do when the first try of a write is over; the others have a task.

        It must not refer to itself: what was written would stay in memory until the garbage
        collector comes, which would have to come often.
        """

        def outcome(error: Exception | None) -> None:
            del self._asked[effect]
            if self.stopped_by is not None:
                return
            if error is not None:
                self._nursery.start_soon(again, effect, error)
                return
            try:
                stored()
                self.pump()
            except Exception as bug:  # this is trio's own task: it would not survive it
                self._nursery.start_soon(_raise, bug)

        self._asked[effect] = self._pumped_at
        return outcome

    async def _append(self, append: Append, failed: Exception | None) -> None:
        shard = self.shard

        def undo() -> bool:
            return shard.append_refused(append, self._clock.now())

        async def write() -> None:
            await store_segment(self._store, shard.key, append.segment, append.opens)

        if await self._decide(write, undo, failed):
            self._appended(append)
        self.pump()

    def _appended(self, append: Append) -> None:
        flights = None if self._notes is None else list(append.lane.flights)
        self.shard.appended(append, self._clock.now())
        if self._notes is not None and flights is not None:
            for flight in flights:
                if flight not in append.lane.flights:  # it counts: all before it are stored
                    self._notes.stored(flight.segment)
        if self._marks is not None:
            self._marks.stored(append.segment)

    async def _settle(self, settle: Settle, failed: Exception | None) -> None:
        async def write() -> None:
            await store_settlements(self._store, self.shard.key, settle.rows)

        if await self._decide(write, never, failed):
            self._settled(settle)
        self.pump()

    def _settled(self, settle: Settle) -> None:
        if self._notes is not None:
            self._notes.settled(settle.rows)
        self.shard.settled(settle, self._clock.now())

    async def _decide(
        self,
        write: Callable[[], Awaitable[None]],
        undo: Callable[[], bool],
        failed: Exception | None,
    ) -> bool:
        """Whether a write is durable; else it was undone, or the shard has stopped."""
        try:
            return await until_decided(write, self._settings, undo, failed)
        except Fenced as error:
            self._fenced(error)
        except Undecided:
            self.stop(Stop.UNDECIDED)
        except StoreDamaged as error:
            log.error("%s: %s", self.shard.key, error)
            self.stop(Stop.DAMAGED)
        return False

    def _note_down(self, effect: WriteNote) -> None:
        if effect.holding:
            self._nursery.start_soon(self._write_note, effect)
        else:
            self._tidy_later(effect)

    async def _write_note(self, effect: WriteNote) -> None:
        """A note that publishes and settles wait for is decided as they are, not some day."""

        async def write() -> None:
            await self._store.write_note(self.shard.key, effect.note)

        if await self._decide(write, never, None):
            self.shard.noted(effect)
        self.pump()

    def _tidy_later(self, effect: Mark | Drop | DropPurges | WriteNote) -> None:
        self._tidying.append(effect)
        if len(self._tidying) == 1:
            self._nursery.start_soon(self._tidy)

    async def _tidy(self) -> None:
        """Marks, notes and drops, one after the other. Nobody waits for them."""
        while self._tidying:
            try:
                await until_done(self._tidy_next, self._settings)
            except Fenced as error:
                self._fenced(error)
                return
            self._tidying.popleft()
        self.pump()

    async def _tidy_next(self) -> None:
        effect = self._tidying[0]
        try:
            if isinstance(effect, Mark):
                if effect.bucket.drained:
                    await self.counters.cover(effect.bucket.key)
                await self._store.mark_bucket(self.shard.key, effect.bucket)
                if effect.bucket.drained:
                    self.counters.marked(effect.bucket.key)
                await self._cache_marks(effect.bucket)
            elif isinstance(effect, WriteNote):
                await self._store.write_note(self.shard.key, effect.note)
                self.shard.noted(effect)
            elif isinstance(effect, Drop):
                await self._store.drop(self.shard.key, effect.key)
            else:
                await self._store.drop(self.shard.key, CONTROL, effect.flushes)
        except StoreDamaged as error:  # what the bucket holds can be served all the same
            log.error("%s: a bucket stays as it is: %s", self.shard.key, error)

    async def _cache_marks(self, bucket: Bucket) -> None:
        if self._marks is not None and bucket.closed:
            own = self.shard.config.dedup_window_ms
            await self._marks.closed(bucket, TRANSFER_WINDOW_MS if bucket.marks.transfers else own)

    # Reading

    async def _page(self, page: Page) -> None:
        segments = await self._reader.page(page)
        self.shard.paged(page, segments, self._clock.now())
        self.pump()

    async def _fetch(self, fetch: Fetch) -> None:
        messages = await self._reader.fetch(fetch)
        self.shard.fetched(fetch, messages, self._clock.now())
        self.pump()

    async def _schedule(self, read: Schedule) -> None:
        found = await self._reader.schedule(read)
        self.shard.scheduled(read, found, self._clock.now())
        self.pump()

    # Sending

    def _send_out(self, sender: Sender) -> None:
        cache = None if self._context.leases is None else self._context.leases.instant
        if cache is None:
            self._nursery.start_soon(self._deliver, sender)
            return
        try:
            sender.run_now(cache)
        except StaleEpoch as error:
            log.warning("%s: %s", self.shard.key, error)
            self.stop(Stop.STALE)

    async def _deliver(self, sender: Sender) -> None:
        try:
            await sender.run()
        except Fenced as error:
            self._fenced(error)
        self.pump()

    async def _transfer(self, transfer: Transfer) -> None:
        self._transferred(transfer, await self._send(transfer.to, transfer.messages))
        self.pump()

    def _transferred(self, transfer: Transfer, errors: Errors) -> None:
        if self._notes is not None:
            self._notes.transferred(transfer, errors)
        self.shard.transferred(transfer, errors, self._clock.now())

    def _published(self, effect: Published) -> None:
        """What is new was confirmed when it was stored."""
        if effect.ticket.duplicates:
            self._confirm_soon(effect)
        else:
            self._answer(effect)

    def _confirm_soon(self, effect: Unstored) -> None:
        if self._confirmer.add(effect):
            self._nursery.start_soon(self._confirm)

    async def _confirm(self) -> None:
        try:
            await self._confirmer.run(self._answer)
        except Fenced as error:
            self._fenced(error)
        except Undecided:
            self.stop(Stop.UNDECIDED)
        self.pump()

    def _answer(self, effect: Published | Confirm | Done) -> None:
        ticket = effect.ticket
        if self._notes is not None:
            self._notes.answered(ticket, None)
        if ticket.token is not None:
            self.tickets.pop(ticket, None)
            ticket.token(ticket, None)

    def catch_up(self) -> bool:
        """Have the lease cache told what it missed. False: it missed nothing."""
        behind = self._sender is not None and self._sender.catch_up()
        if behind:
            self.wake()
        return behind

    # The end

    @property
    def quiet(self) -> bool:
        """Everything that was accepted is durable, answered and delivered."""
        return (
            not self.tickets
            and not self.shard.journal.pending_messages
            and self.shard.log.idle
            and not self._tidying
            and self.shard.notes.holding is None
            and (self._sender is None or not self._sender.busy)
        )

    @property
    def idle(self) -> bool:
        """Nobody would miss this shard."""
        return self.unused and not self.shard.life.leaving()

    @property
    def unused(self) -> bool:
        """Nobody uses it. Messages may be left that can't leave, as no queue takes them."""
        return (
            self.quiet
            and not self.shard.consumers.subscriptions
            and not self.waiting_publishers.lot
            and self.shard.life.leaving() == self.shard.departures.stuck
        )

    async def close(self, reason: Stop) -> None:
        """Take nothing more on, finish what was accepted, and stop."""
        if self.closing is None:
            self.closing = reason
            self.shard.part(self._clock.now())
            self.wake()
        with trio.move_on_after(self._settings.close_ms / 1000):
            await self.stopped.wait()
        self.stop(reason)
        await self.stopped.wait()

    def stop(self, reason: Stop) -> None:
        """End here and now: what is not durable yet has an unknown outcome."""
        if self.stopped_by is None:
            self.stopped_by = reason
            if reason.gives_up:
                log.warning("%s steps down: %s", self.shard.key, reason.value)
            self._scope.cancel()

    def _end(self, reason: Stop) -> None:
        self.stopped_by = reason
        if reason is Stop.MOVED:
            self.snapshot = take_snapshot(self.shard, self._clock.now())
        tickets, self.tickets = self.tickets, {}
        for ticket in tickets:
            error = Unavailable(reason.value, retry_ms=1_000)
            if self._notes is not None:
                self._notes.answered(ticket, error)
            ticket.token(ticket, error)
        unheard = {} if self._sender is None else self._sender.unheard()
        for subscription in list(self.shard.consumers.subscriptions.values()):
            if subscription.token is not None:
                had = unheard.get(subscription, subscription.held)
                held = runs_of_numbers(subscription.prefix, sorted(had))
                subscription.token.ended(reason.code, reason.value, held)
        self.waiting_publishers.dismiss()
        self.shard.dispose()
        self.stopped.set()


def _noted(note: Callable[[Any], None], do: Callable[[Any], None], effect: Effect) -> None:
    note(effect)
    do(effect)


async def _raise(bug: Exception) -> None:
    raise bug
