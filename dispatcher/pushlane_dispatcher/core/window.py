"""The window: the part of a shard's messages that is in memory.

Messages enter it when their flush is stored and nothing stands in the store before them, else
page by page as room comes up: memory doesn't grow with the backlog. What must wait doesn't hold up
what stands behind it: later delays are left to the schedule index (`Delays`), and of a blocked key
only the first messages are kept (`Keys`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pushlane_dispatcher.core.admission import Admission
from pushlane_dispatcher.core.bodies import Bodies
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.delays import Delays
from pushlane_dispatcher.core.effects import Append, Effect, Fetch, Page, Schedule
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.expiry import Expiry
from pushlane_dispatcher.core.keys import Keys
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import PURGEABLE, Event, Life, State
from pushlane_dispatcher.core.seeking import Seeking
from pushlane_storage.interface import Due
from pushlane_storage.message import MESSAGE_OVERHEAD, Message
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq

AHEAD = 2
"""Pages that are read before their turn, so that consumers don't wait for the disk."""

_RETRYING, _LEAVING = int(State.RETRYING), int(State.LEAVING)
"""Asked for with every segment, and names of an enumeration are looked up slowly."""

NUMBERS = (
    "blocked", "blocked_stored", "delayed", "delayed_stored", "retrying", "retrying_full",
)  # fmt: skip
"""What a window can be asked for, for the metrics."""


class Window:
    __slots__ = (
        "_bounds", "_effects", "_epoch", "_life", "_seeking", "admission", "bodies", "delays",
        "expiry", "keys", "lanes", "order", "purging",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, epoch: int, life: Life, effects: list[Effect]) -> None:
        self._bounds = bounds
        self._epoch = epoch
        self._life = life
        self._effects = effects
        self.lanes: dict[int, Lane] = {}
        self.order: list[Lane] = []
        """Lanes, the highest first."""
        self.bodies = Bodies(bounds, self.order, effects)
        self.delays = Delays(bounds, life, self.bodies, effects)
        self.expiry = Expiry(bounds, self.order)
        self.keys = Keys(bounds)
        self._seeking = Seeking(bounds, self.keys, effects)
        self.admission = Admission(
            life, self.bodies, self.delays, self.expiry, self.keys, self._seeking
        )
        self.purging = False
        """A purge, or the end or departure of bare positions, is being written: nothing comes in
        until it is durable. Else a message could go out before an earlier one of its key that a
        crash brings back."""

    def lane(self, number: int) -> Lane:
        """A lane exists from its first message on."""
        found = self.lanes.get(number)
        if found is None:
            found = self.lanes[number] = Lane(number, self._epoch)
            found.cursor = found.stored
            self.order.append(found)
            self.order.sort(key=lambda lane: -lane.number)
        return found

    def stored_before(self, lane: int) -> int:
        """Everything below this seq is stored. A lane that is new has only what others stored."""
        found = self.lanes.get(lane)
        return make_seq(self._epoch, 0) if found is None else found.stored

    # Coming in

    def stored(self, append: Append, now: int, wall: int) -> None:
        """A segment of this epoch is stored: take it in, unless a backlog stands before it."""
        lane, segment, bucket = append.lane, append.segment, append.bucket
        if lane.cursor != segment.first or lane.paging or lane.bare:
            return
        counts = self._life.counts
        away = counts[_RETRYING] or counts[_LEAVING]
        if self.purging or (away and self.overdone) or not self.bodies.takes(lane, append.size):
            return
        if append.plain:
            self.admission.plain(lane, segment.first, segment.messages, append.size, now)
        else:
            self.admission.mixed(lane, segment.first, segment.messages, bucket, False, now, wall)

    @property
    def overdone(self) -> bool:
        """So many messages are in backoff, or on their way to other queues, that nothing new is
        begun before some of them are due, or gone."""
        counts = self._life.counts
        return counts[_RETRYING] + counts[_LEAVING] >= self._bounds.retrying

    def read(self) -> None:
        """Ask the store for more: bodies, keys that are sought, and where a lane runs low."""
        if self.bodies.urgent:
            self.bodies.fetch_urgent()
        if self.keys.sought and not self.purging:
            self._seeking.read()
        outdone = False  # by a higher lane, which needs the room
        for lane in self.order:
            if lane.bare and not outdone:
                self.bodies.fetch(lane, AHEAD * self._bounds.page_messages)
            if lane.cursor < lane.stored:
                self._page(lane)
                outdone |= lane.backlogged

    def _page(self, lane: Lane) -> None:
        bounds = self._bounds
        if lane.paging or lane.bare or lane.ready >= AHEAD * bounds.page_messages:
            return
        if self.purging:
            return
        found = lane.unsettled_from(lane.cursor)
        lane.cursor = lane.stored if found is None else found[1]
        if found is not None and not self.overdone and self.bodies.room_for(lane):
            lane.paging = True
            limit = min(bounds.page_messages, self.bodies.spare(lane, found[0]))
            self._effects.append(Page(lane, found[0].key, found[1], found[0].last, limit))

    def paged(self, page: Page, segments: Iterable[Segment], now: int, wall: int) -> list[Entry]:
        """What the store had. Answers what it should have had and has not: it is damaged.

        What comes while a purge is being written is read again afterwards.
        """
        bucket = page.lane.bucket_of(page.start)
        sought = page is self._seeking.page
        if sought:
            self._seeking.page = None
        else:
            page.lane.paging = False
        if bucket is None or self.purging:
            return []
        take = self._look if sought else self._take_in
        return take(page, bucket, segments, now, wall)

    def _take_in(
        self, page: Page, bucket: LiveBucket, segments: Iterable[Segment], now: int, wall: int
    ) -> list[Entry]:
        """The next of the backlog. The cursor may have moved on (a purge)."""
        lane = page.lane
        missing: list[Entry] = []
        for first, last, messages in _pieces(page, segments, lane.cursor, bucket.last):
            if not self.bodies.room_for(lane):
                break
            if messages is None:
                missing += self._missing(lane, bucket, first, last, now)
                lane.cursor = last + 1
                continue
            fitting = self.bodies.fitting(messages)
            self.admission.page(lane, first, fitting, bucket, now, wall)
            if len(fitting) < len(messages):
                break  # the rest is read again
        return missing

    def _look(
        self, page: Page, bucket: LiveBucket, segments: Iterable[Segment], now: int, wall: int
    ) -> list[Entry]:
        """A stretch behind the cursor, for keys whose messages were passed over there."""
        lane = page.lane
        missing: list[Entry] = []
        end = page.start
        for first, last, messages in _pieces(page, segments, page.start, page.last):
            end = last + 1
            if messages is None:
                missing += self._missing(lane, bucket, first, last, now)
            else:
                self.admission.sought(lane, first, messages, bucket, page.start, now, wall)
        self._seeking.done(page, end)
        return missing

    def _missing(
        self, lane: Lane, bucket: LiveBucket, low: int, high: int, now: int
    ) -> list[Entry]:
        """Bare positions of unsettled messages that the store has lost."""
        return [
            self.enter(lane, bucket, seq, now)
            for first, last in bucket.state.settled.gaps(low, high)
            for seq in range(first, last + 1)
            if seq not in lane.entries
        ]

    # What the store had aside

    def enter(self, lane: Lane, bucket: LiveBucket, seq: int, now: int) -> Entry:
        """A message that memory does not know comes in as a bare position, to leave or to end."""
        if seq < lane.cursor:
            self.admission.recall(bucket)
        entry = Entry(seq, lane, None, MESSAGE_OVERHEAD, State.READY, now)
        void = bucket.state.voids.get(seq)
        if void is not None:
            entry.attempts, entry.deliveries = void.attempts, void.deliveries
            entry.error, entry.fence = void.error, void.fence
        lane.entries[seq] = entry
        self._life.born(State.READY)
        return entry

    def enter_delayed(self, lane: Lane, bucket: LiveBucket, seq: int, due: int, now: int) -> Entry:
        """A delayed message comes in as a bare position, wherever it stands."""
        if seq < lane.cursor:
            self.admission.recall(bucket, far=True)
        entry = Entry(seq, lane, None, MESSAGE_OVERHEAD, State.DELAYED, now, not_before=due)
        lane.entries[seq] = entry
        self._life.born(State.DELAYED)
        return entry

    # Becoming ready

    def fetched(self, fetch: Fetch, messages: dict[int, Message]) -> set[Entry]:
        """Bodies came. Those whose body the store does not have are returned."""
        complete, damaged = self.bodies.fetched(fetch, messages)
        for entry, message in complete:
            if entry.state is State.READY and not self._misled(entry, message):
                self.ready(entry)
        return damaged

    def _misled(self, entry: Entry, message: Message) -> bool:
        """The schedule index spoke of another message, which was never stored, under this seq.

        Then this one goes back to where it was: passed over with its key, or further ahead.
        """
        bucket = entry.lane.bucket_of(entry.seq)
        assert bucket is not None  # an unsettled message's bucket is not drained
        if entry.seq in bucket.state.voids or entry.key is not None:
            return False
        if message.key is not None:
            self.keys.pass_over(message.key, entry.lane, entry.seq)
        elif message.not_before > entry.not_before:
            self.delays.read_until = min(self.delays.read_until, message.not_before)
        else:
            return False
        bucket.far += 1
        self.delays.far += 1
        self._life.born(State.READY, -1)
        self.bodies.forget((entry,))
        return True

    def ready(self, entry: Entry) -> None:
        """A message became ready: in its place, or first its body."""
        self.expiry.watch(entry)
        if entry.message is None:
            self.bodies.want(entry)
        else:
            entry.lane.put_back(entry)

    def due(self, now: int, wall: int) -> None:
        """Make ready what is due."""
        for entry in self.delays.due(wall):
            self._life.move((entry,), Event.DUE, now)
            self.ready(entry)

    def scheduled(self, read: Schedule, found: Sequence[Due], now: int) -> None:
        """What the schedule index had. Messages behind the cursor come by themselves later."""
        for due in self.delays.found(read, found):
            lane = self.lanes.get(due.lane)
            bucket = None if lane is None else lane.bucket_of(due.seq)
            if lane is None or bucket is None or not bucket.far or due.seq in lane.entries:
                continue
            if lane.purged < due.seq < lane.cursor and due.seq not in bucket.state.settled:
                self.delays.add(self.enter_delayed(lane, bucket, due.seq, due.due, now))
        self.delays.trim()
        self.delays.read_on(read, found)

    def free_key(self, entry: Entry, now: int) -> None:
        """A message's end or departure is durable: its key's next one has its turn.

        Unless that one is ending or leaving itself: then its own row comes first.
        """
        if entry.key is None:
            return
        head = self.keys.release(entry)
        if head is not None and head.state is State.BLOCKED:
            self._life.move((head,), Event.UNBLOCK, now)
            self.ready(head)

    def come_back(self, entry: Entry, now: int) -> None:
        """A message that was on its way to another queue is in line again, durably."""
        state: State | None = State.READY
        if entry.seq >= entry.lane.cursor:  # in the backlog: it comes in from there
            state = None
        elif entry.key is not None:
            state = self.keys.rejoin(entry)
            if state is None:
                bucket = entry.lane.bucket_of(entry.seq)
                assert bucket is not None  # an unsettled message's bucket is not drained
                bucket.passed += 1
        if state is None:
            self._life.born(entry.state, -1)
            self.bodies.forget((entry,))
        elif state is State.BLOCKED:
            self._life.move((entry,), Event.BLOCK, now)
        else:
            self._life.move((entry,), Event.REQUEUE, now)
            self.ready(entry)

    def numbers(self) -> dict[str, int]:
        """What waits in memory, and what was left to the store."""
        counts = self._life.counts
        delayed, retrying = counts[State.DELAYED], counts[State.RETRYING]
        found = self.keys.kept, self.keys.passed, delayed, self.delays.far, retrying, self.overdone
        return dict(zip(NUMBERS, found, strict=True))

    # Going

    @property
    def promising(self) -> bool:
        """Something is ready, or is on its way in and may be."""
        return self.reading or any(lane.ready or lane.bare for lane in self.order)

    @property
    def reading(self) -> bool:
        """Messages are on their way in."""
        return self._seeking.page is not None or any(lane.paging for lane in self.order)

    def purge(self) -> list[Entry]:
        """Take out everything that is not in flight, and skip the backlog."""
        purged = []
        for lane in self.order:
            lane.fresh.clear()
            lane.again.clear()
            lane.cursor = lane.stored
            lane.purged = lane.stored - 1
            purged += [entry for entry in lane.entries.values() if entry.state in PURGEABLE]
            for bucket in lane.buckets:
                bucket.far = bucket.passed = 0
        self.bodies.want_nothing_ready()
        self.delays.purge()
        self.keys.purge()
        return purged

    def oldest_ready(self) -> Entry | None:
        """The ready message that was published first, of any lane."""
        heads = [head for lane in self.order if (head := lane.head()) is not None]
        return min(heads, key=_published_at, default=None)

    def oldest_at(self) -> int | None:
        """When that was (wall clock)."""
        oldest = self.oldest_ready()
        return None if oldest is None else _published_at(oldest)


def _published_at(entry: Entry) -> int:
    assert entry.message is not None  # what is ready has its body
    return entry.message.published_at


def _pieces(
    page: Page, segments: Iterable[Segment], start: int, last: int
) -> Iterator[tuple[int, int, list[Message] | None]]:
    """What a read brought of the seqs start to last, in order: first, last, and the messages.

    None instead of messages: the store should have them and has not.
    """
    count = 0
    for segment in segments:
        if segment.first > page.last:
            break
        count += len(segment.messages)
        if segment.first > start:
            yield start, segment.first - 1, None
            start = segment.first
        messages = segment.messages[start - segment.first : last - segment.first + 1]
        if messages:
            yield start, start + len(messages) - 1, messages
            start += len(messages)
    if count < page.limit and start <= page.last:
        yield start, page.last, None
