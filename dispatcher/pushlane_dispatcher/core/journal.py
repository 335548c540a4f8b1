"""The journal: how published messages become stored ones.

A publish gets its seqs at once and waits in its lane. A flush takes what is there and becomes
one segment; while it is under way the next one gathers. Flushes of a lane may overlap, but they
count (acknowledge, dedup, deliver) only in order of seq: a hole would be lost at a takeover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from pushlane.wire.errors import BadRequest, PushlaneError, Throttled, TooLarge, Unavailable
from pushlane.wire.limits import DEFAULT_LANE
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.effects import Append, Effect, Published, PublishTicket
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.marks import Marks
from pushlane_dispatcher.core.numbers import SOMEWHERE, Place
from pushlane_dispatcher.core.retention import too_long
from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import MESSAGE_OVERHEAD, Message, is_transfer, size_of, total_size
from pushlane_storage.segment import Segment, marks_of
from pushlane_storage.seq import counter_of, make_seq

MakeRoom = Callable[[int, int], PushlaneError | None]
"""Asks for room for one more message of a size: why there is none, or None."""


class Journal:
    __slots__ = (
        "_bounds", "_effects", "_get_lane", "_lanes", "dedup", "max_message_bytes",
        "pending_messages", "pending_size", "retention_ms", "soonest",
    )  # fmt: skip

    def __init__(
        self,
        bounds: Bounds,
        effects: list[Effect],
        lanes: dict[int, Lane],
        get_lane: Callable[[int], Lane],
        dedup: Dedup,
    ) -> None:
        self._bounds = bounds
        self._effects = effects
        self._lanes = lanes
        self._get_lane = get_lane
        self.dedup = dedup
        self.max_message_bytes = 0
        self.retention_ms = 0
        self.pending_messages = 0
        """Published and not yet stored, flushes under way included."""
        self.pending_size = 0
        self.soonest: int | None = None
        """Wall clock: when the first expires of what was accepted lately."""

    @property
    def congested(self) -> bool:
        """Publishers should wait before they hand in more."""
        bounds = self._bounds
        return (
            self.pending_messages * 2 >= bounds.pending_messages
            or self.pending_size * 2 >= bounds.pending_bytes
        )

    def publish_plain(
        self, messages: list[Message], ticket: PublishTicket, size: int, now: int
    ) -> None:
        """Plain messages (see `plain_size`), all of them new, for which there is room."""
        lane = self._get_lane(DEFAULT_LANE)
        first = make_seq(lane.epoch, lane.counter)
        count = len(messages)
        producer = messages[0].producer
        if producer is not None:
            lane.marked = True
            low = messages[0].producer_seq
            self.dedup.producers.add(producer, low, count, DEFAULT_LANE, first, now)
        ticket.seqs.extend(range(first, first + count))
        lane.counter += count
        lane.pending += messages
        lane.pending_size += size
        self.pending_messages += count
        self.pending_size += size
        lane.tickets.append((first + count - 1, ticket))
        ticket.waits += 1

    def plain_size(self, messages: Sequence[Message]) -> int | None:
        """The size of messages that need no closer look; None when one of them does.

        They may be numbered, one after the other, by one producer.
        """
        size = 0
        biggest = self.max_message_bytes
        producer, number = messages[0].producer, messages[0].producer_seq
        step = 0 if producer is None else 1
        for message in messages:
            body = len(message.body)
            if (
                message.producer != producer
                or message.producer_seq != number
                or message.dedup is not None
                or message.key is not None
                or message.headers is not None
                or message.not_before
                or message.expires_at
                or body > biggest
            ):
                return None
            size += body
            number += step
        return size + len(messages) * MESSAGE_OVERHEAD

    def full(self, count: int, size: int) -> bool:
        bounds = self._bounds
        return (
            self.pending_messages + count > bounds.pending_messages
            or self.pending_size + size > bounds.pending_bytes
        )

    def publish(
        self, messages: Sequence[Message], ticket: PublishTicket, make_room: MakeRoom, now: int
    ) -> None:
        """Messages of any kind. Each stands alone, but for those of another shard: they come in
        order, and one that is refused stops those behind it."""
        touched: dict[int, int] = {}
        in_order = is_transfer(messages[0])
        for index, message in enumerate(messages):
            number = DEFAULT_LANE if ticket.lanes is None else ticket.lanes[index]
            size = size_of(message)
            found = self.dedup.find(message, now)
            if found is not None and not isinstance(found, PushlaneError):
                self._repeat(found, ticket, index)
                continue
            error = found or self._refuse(message, number, size)
            if error is None and in_order and ticket.failed:
                error = Throttled("it waits for one before it, which was refused", retry_ms=100)
            error = error or make_room(1, size)
            if error is not None:
                ticket.failed[index] = error
                ticket.seqs.append(-1)
                continue
            seq = self._accept(message, number, size, now)
            ticket.seqs.append(seq)
            touched[number] = seq
        for number, seq in touched.items():
            self._lanes[number].tickets.append((seq, ticket))
            ticket.waits += 1

    def _repeat(self, first: Place, ticket: PublishTicket, index: int) -> None:
        if first is SOMEWHERE:
            ticket.seqs.append(-1)
            ticket.duplicates[index] = None
        elif self.dedup.is_stored(first):
            ticket.seqs.append(first.seq)
            ticket.duplicates[index] = first
        else:
            ticket.seqs.append(-1)
            ticket.waits += 1
            self.dedup.wait(first, ticket, index)

    def _refuse(self, message: Message, lane: int, size: int) -> PushlaneError | None:
        if len(message.body) > self.max_message_bytes:
            return TooLarge(
                f"the body is over the queue's {self.max_message_bytes} bytes",
                limit="max_message_bytes",
            )
        if message.key is not None and (lane != DEFAULT_LANE or message.not_before):
            return BadRequest("key can't be combined with priority or delay_ms")
        if message.not_before:
            error = too_long(message.not_before - message.published_at, self.retention_ms)
            if error is not None:
                return error
        if self.full(1, size):
            return Throttled(
                "too much is waiting to be stored", retry_ms=100, limit="pending_messages"
            )
        return None

    def _accept(self, message: Message, number: int, size: int, now: int) -> int:
        lane = self._get_lane(number)
        lane.plain = False
        seq = make_seq(lane.epoch, lane.counter)
        lane.counter += 1
        lane.pending.append(message)
        lane.pending_size += size
        self.pending_messages += 1
        self.pending_size += size
        if message.expires_at and (self.soonest is None or message.expires_at < self.soonest):
            self.soonest = message.expires_at
        if message.dedup is not None or message.producer is not None:
            lane.marked = True
            self.dedup.pending(message, number, seq, now)
        return seq

    def flush(self, lane: Lane, now: int, wall: int) -> bool:
        """Begin as many flushes of a lane as there is something for; whether there was.

        A bucket is begun only when the one before is stored whole: so the row of a bucket says
        that nothing before it is missing.
        """
        before = len(lane.flights)
        while lane.pending and len(lane.flights) < self._bounds.flushes:
            if lane.open is not None and self.outgrown(lane.open, now):
                if lane.flights:
                    break
                self.roll(lane, lane.open)
            self._effects.append(self._begin(lane, now, wall))
        return len(lane.flights) > before

    def _begin(self, lane: Lane, now: int, wall: int) -> Append:
        messages, size = lane.pending, lane.pending_size
        if len(messages) > self._bounds.segment_messages or size > self._bounds.segment_bytes:
            messages, size = self._cut(lane)
        else:
            lane.pending, lane.pending_size = [], 0
        first = make_seq(lane.epoch, lane.counter - len(lane.pending) - len(messages))
        bucket, opens = lane.open, None
        if bucket is None:
            bucket = self._open_bucket(lane, first, now, wall)
            opens = bucket.row()
        segment = Segment(bucket.key, first, messages)
        append = Append(lane, bucket, segment, opens, size, lane.plain, lane.marked)
        bucket.assigned += len(messages)
        bucket.assigned_size += size
        if not lane.pending:
            append.tickets = [ticket for _, ticket in lane.tickets]
            lane.tickets = []
            lane.marked = False
            lane.plain = True
        else:
            append.tickets = [ticket for last, ticket in lane.tickets if last <= segment.last]
            lane.tickets = [item for item in lane.tickets if item[0] > segment.last]
        lane.flights.append(append)
        return append

    def _cut(self, lane: Lane) -> tuple[list[Message], int]:
        """What the next segment takes of what is pending, which is too much for one."""
        bounds, pending = self._bounds, lane.pending
        messages = pending[: bounds.segment_messages]
        size = total_size(messages)
        while size > bounds.segment_bytes and len(messages) > 1:
            size -= size_of(messages.pop())
        lane.pending = pending[len(messages) :]
        lane.pending_size -= size
        return messages, size

    def _open_bucket(self, lane: Lane, first: int, now: int, wall: int) -> LiveBucket:
        lane.last_start = max(wall, lane.last_start + 1)
        key = BucketKey(lane.number, lane.epoch, lane.last_start)
        bucket = LiveBucket(key, first, now, Marks(self._bounds.bucket_producers))
        lane.open = bucket
        lane.buckets.append(bucket)
        return bucket

    def roll(self, lane: Lane, bucket: LiveBucket) -> None:
        """Nothing more goes into this bucket."""
        bucket.rolled = True
        lane.open = None

    def outgrown(self, bucket: LiveBucket, now: int) -> bool:
        bounds = self._bounds
        return (
            bucket.assigned >= bounds.bucket_messages
            or bucket.assigned_size >= bounds.bucket_bytes
            or now - bucket.opened_at >= bounds.bucket_ms
        )

    def stored(self, append: Append) -> list[Append]:
        """A flush is stored. Which ones count from now on, in order?"""
        append.done = True
        flights = append.lane.flights
        counted = []
        while flights and flights[0].done:
            counted.append(self._count(flights.popleft()))
        return counted

    def _count(self, append: Append) -> Append:
        segment, bucket = append.segment, append.bucket
        count = len(segment.messages)
        append.lane.stored = segment.first + count
        bucket.count += count
        bucket.size += append.size
        last_at = segment.messages[-1].published_at
        if append.marked:  # only dedup windows need it exactly
            last_at = max([message.published_at for message in segment.messages])
        bucket.last_at = max(bucket.last_at, last_at)
        self.pending_messages -= count
        self.pending_size -= append.size
        if append.marked:
            bucket.marks.add(marks_of(segment.first, segment.messages))
            for place, waiters in self.dedup.stored(append.lane.number, segment.first, count):
                for ticket, index in waiters:
                    ticket.seqs[index] = place.seq
                    ticket.duplicates[index] = place
                    self.release(ticket)
        for ticket in append.tickets:
            self.release(ticket)
        return append

    def release(self, ticket: PublishTicket) -> None:
        """One thing less to wait for."""
        ticket.waits -= 1
        if not ticket.waits:
            self._effects.append(Published(ticket))

    def refused(self, append: Append) -> bool:
        """A flush certainly was not stored. True: it is undone; False: it must be repeated.

        Only the newest flush of a lane can be undone: behind it stands nothing but what is
        pending, and that fails with it. Undoing another one would leave a hole.
        """
        lane = append.lane
        if lane.flights[-1] is not append:
            return False
        lane.flights.pop()
        first = append.segment.first
        self._fail(lane, first, append.segment.messages)
        self._fail(lane, first + len(append.segment.messages), lane.pending)
        tickets = [*append.tickets, *(ticket for _, ticket in lane.tickets)]
        for ticket in tickets:
            self._fail_ticket(ticket, lane, first)
        self.pending_messages -= len(append.segment.messages) + len(lane.pending)
        self.pending_size -= append.size + lane.pending_size
        append.bucket.assigned -= len(append.segment.messages)
        append.bucket.assigned_size -= append.size
        if append.opens is not None:
            lane.buckets.remove(append.bucket)
            lane.open = None
        lane.pending, lane.pending_size, lane.tickets = [], 0, []
        lane.marked, lane.plain = False, True
        lane.counter = counter_of(first)
        return True

    def _fail(self, lane: Lane, first: int, messages: Iterable[Message]) -> None:
        for seq, message in enumerate(messages, first):
            for ticket, index in self.dedup.failed(message, lane.number, seq):
                ticket.failed[index] = Unavailable("the store refused the first one")
                self.release(ticket)

    def _fail_ticket(self, ticket: PublishTicket, lane: Lane, first: int) -> None:
        """What a ticket has from `first` on is gone; for what it has before, it waits on."""
        waits = False
        for index, seq in enumerate(ticket.seqs):
            number = DEFAULT_LANE if ticket.lanes is None else ticket.lanes[index]
            if number != lane.number or index in ticket.duplicates:
                continue
            if seq >= first:
                ticket.failed[index] = Unavailable("the store refused it", retry_ms=1_000)
                ticket.seqs[index] = -1
            elif seq >= lane.stored:
                waits = True
        if waits:
            lane.flights[-1].tickets.append(ticket)
        else:
            self.release(ticket)
