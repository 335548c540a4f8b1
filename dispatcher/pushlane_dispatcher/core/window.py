"""The window: the part of a shard's messages that is in memory.

Messages enter it when their flush is stored and nothing stands in the store before them, else
page by page as room comes up: memory doesn't grow with the backlog. Those that must wait
(delayed, retrying, blocked) and those in flight keep their body only while there is room, and
are read again when their turn comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from heapq import heapify, heappop, heappush

from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import Append, Effect, Fetch, Page, Schedule
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.keys import Keys
from pushlane_dispatcher.core.lane import Lane, LiveBucket
from pushlane_dispatcher.core.life import PURGEABLE, WAITING, Event, Life, State
from pushlane_storage.interface import Due
from pushlane_storage.message import MESSAGE_OVERHEAD, Message, size_of
from pushlane_storage.ranges import Range
from pushlane_storage.segment import Segment
from pushlane_storage.seq import make_seq
from pushlane_storage.settlement import Void

AHEAD = 2
"""Pages that are read before their turn, so that consumers don't wait for the disk."""

FETCHES = 4
"""Reads of single messages under way at once."""


class Window:
    __slots__ = (
        "_bounds", "_delayed", "_effects", "_epoch", "_expiring", "_fetching", "_life",
        "_reading", "_urgent", "_wanted", "far", "keys", "lanes", "next_expiry", "order",
        "purging", "resident", "resident_bytes", "scheduled_until", "scheduling",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, epoch: int, life: Life, effects: list[Effect]) -> None:
        self._bounds = bounds
        self._epoch = epoch
        self._life = life
        self._effects = effects
        self.lanes: dict[int, Lane] = {}
        self.order: list[Lane] = []
        """Lanes, the highest first."""
        self.keys = Keys()
        self.resident = 0
        """Messages with their body in memory."""
        self.resident_bytes = 0
        self._delayed: list[tuple[int, int, int, Entry]] = []
        self._wanted: deque[Entry] = deque()
        """Ready, but their bodies are to be read again, as room comes up."""
        self._urgent: deque[Entry] = deque()
        """The same for what is in flight or leaves: few, and somebody waits for them."""
        self._fetching = 0
        self._reading = 0
        """Messages in the reads under way."""
        self.far = 0
        """Messages that only the schedule index knows of."""
        self.scheduled_until = 0
        """Wall clock: the schedule index was read up to here."""
        self.scheduling = False
        self.purging = False
        """A purge, or the end of what is past retention, is being written: nothing comes in until
        it is durable. Else a message could go out before an earlier one of its key that a crash
        brings back."""
        self._expiring = False
        self.next_expiry: int | None = None
        """Wall clock: no ready message expires before."""

    def lane(self, number: int) -> Lane:
        """A lane exists from its first message on."""
        found = self.lanes.get(number)
        if found is None:
            found = self.lanes[number] = Lane(number, self._epoch)
            found.cursor = found.stored
            self.order = sorted(self.lanes.values(), key=lambda lane: -lane.number)
        return found

    def stored_before(self, lane: int) -> int:
        """Everything below this seq is stored. A lane that is new has only what others stored."""
        found = self.lanes.get(lane)
        return make_seq(self._epoch, 0) if found is None else found.stored

    # Coming in

    def stored(self, append: Append, now: int, wall: int) -> None:
        """A segment of this epoch is stored: take it in, unless a backlog stands before it."""
        lane, segment = append.lane, append.segment
        if lane.cursor != segment.first or lane.paging or self.purging or not self._room():
            return
        if append.plain:
            self._admit_plain(lane, segment.first, segment.messages, append.size, now)
        else:
            self._admit(lane, segment.first, segment.messages, None, now, wall)

    def _admit_plain(
        self, lane: Lane, first: int, messages: list[Message], size: int, now: int
    ) -> None:
        """The same as `_admit` for messages that need no closer look."""
        lane.cursor = first + len(messages)
        ready = State.READY
        entries = [
            Entry(seq, lane, message, MESSAGE_OVERHEAD + len(message.body), ready, now)
            for seq, message in enumerate(messages, first)
        ]
        lane.entries.update(zip(range(first, lane.cursor), entries, strict=True))
        lane.fresh.extend(entries)
        self.resident += len(entries)
        self.resident_bytes += size
        self._life.born(ready, len(entries))

    def _room(self) -> bool:
        bounds = self._bounds
        return (
            self.resident < bounds.window_messages
            and self.resident_bytes < bounds.window_bytes
            and not self._crowded()
        )

    def _crowded(self) -> bool:
        """No more bare positions: there are as many as may be."""
        return self._life.waiting() + len(self._wanted) >= self._bounds.positions

    def page(self) -> None:
        """Ask the store for more where a lane runs low."""
        if self.purging or self._wanted:  # those come first, and need the room
            return
        for lane in self.order:
            if not lane.backlogged or lane.paging or not self._room():
                continue
            if lane.ready >= AHEAD * self._bounds.page_messages:
                continue
            bucket = self._next_unsettled(lane)
            if bucket is not None:
                lane.paging = True
                limit = min(
                    self._bounds.page_messages, self._bounds.window_messages - self.resident
                )
                self._effects.append(Page(lane, bucket.key, lane.cursor, bucket.last, limit))

    def _next_unsettled(self, lane: Lane) -> LiveBucket | None:
        """Move the cursor to the next unsettled message; its bucket, or None at the end."""
        while (bucket := lane.bucket_from(lane.cursor)) is not None:
            start = max(lane.cursor, bucket.first)
            gap = next(bucket.state.settled.gaps(start, bucket.last), None)
            if gap is not None:
                lane.cursor = gap[0]
                return bucket
            lane.cursor = bucket.last + 1
        lane.cursor = lane.stored
        return None

    def paged(self, page: Page, segments: Iterable[Segment], now: int, wall: int) -> list[Range]:
        """What the store had. The cursor may have moved on (a purge); the rest is backlog.

        Answers what the store should have had and has not: it is damaged.
        """
        lane = page.lane
        lane.paging = False
        bucket = lane.bucket_of(page.start)
        if bucket is None:
            return []
        missing: list[Range] = []
        count = 0
        for segment in segments:
            if segment.first > page.last:
                break
            if not self._room():
                return missing
            count += len(segment.messages)
            if segment.first > lane.cursor:
                missing.append((lane.cursor, segment.first - 1))
            skip = max(0, lane.cursor - segment.first)
            messages = segment.messages[skip : bucket.last - segment.first + 1]
            if messages:
                self._admit_page(lane, segment.first + skip, messages, bucket, now, wall)
        if count < page.limit and lane.cursor <= page.last:
            missing.append((lane.cursor, page.last))
            lane.cursor = page.last + 1
        return missing

    def missing(self, lane: Lane, ranges: list[Range], now: int) -> list[Entry]:
        """Bare positions of unsettled messages that the store has lost."""
        lost = []
        for low, high in ranges:
            bucket = lane.bucket_of(low)
            assert bucket is not None  # it was just paged
            for first, last in bucket.state.settled.gaps(low, high):
                for seq in range(first, last + 1):
                    if seq not in lane.entries:
                        entry = Entry(seq, lane, None, MESSAGE_OVERHEAD, State.READY, now)
                        lane.entries[seq] = entry
                        lost.append(entry)
        self._life.born(State.READY, len(lost))
        return lost

    def _admit_page(
        self,
        lane: Lane,
        first: int,
        messages: list[Message],
        bucket: LiveBucket,
        now: int,
        wall: int,
    ) -> None:
        """Most of a backlog was never touched and is plain: then there is nothing to look up."""
        last = first + len(messages) - 1
        size = None
        if (
            not bucket.state.voids
            and next(bucket.state.settled.gaps(first, last), None) == (first, last)
            and lane.entries.keys().isdisjoint(range(first, last + 1))
        ):
            size = _plain_size(messages)
        if size is None:
            self._admit(lane, first, messages, bucket, now, wall)
        else:
            self._admit_plain(lane, first, messages, size, now)

    def _admit(
        self,
        lane: Lane,
        first: int,
        messages: Sequence[Message],
        bucket: LiveBucket | None,
        now: int,
        wall: int,
    ) -> None:
        """Enter stored messages; `bucket` when some of them may have a past."""
        lane.cursor = first + len(messages)
        entries, fresh = lane.entries, lane.fresh
        before, total, count = len(fresh), 0, 0
        for seq, message in enumerate(messages, first):
            void = None
            if bucket is not None:
                if seq in entries or seq in bucket.state.settled:
                    continue
                void = bucket.state.voids.get(seq)
            size = MESSAGE_OVERHEAD + len(message.body)
            if message.headers is not None:
                size = size_of(message)
            entry = Entry(seq, lane, message, size, State.READY, now)
            if (
                message.key is None
                and not message.not_before
                and not message.expires_at
                and void is None
            ):
                fresh.append(entry)
            elif not self._place(entry, message, void, wall):
                continue
            entries[seq] = entry
            total += size
            count += 1
        self.resident += count
        self.resident_bytes += total
        self._life.counts[State.READY] += len(fresh) - before
        if len(fresh) - before != count:
            self._thin_waiting(lane, first)

    def _place(self, entry: Entry, message: Message, void: Void | None, wall: int) -> bool:
        """Find a message's place; False when only the schedule index needs to know it."""
        entry.key = message.key
        entry.expires_at = message.expires_at
        entry.not_before = message.not_before
        if void is not None:
            entry.attempts, entry.deliveries = void.attempts, void.deliveries
            entry.not_before, entry.error, entry.fence = void.not_before, void.error, void.fence
        elif entry.not_before > wall:
            if not self.far:
                self.scheduled_until = max(self.scheduled_until, wall + self._bounds.horizon_ms)
            if entry.not_before >= self.scheduled_until:
                self.far += 1
                return False
        if entry.key is not None and not self.keys.claim(entry.key, entry):
            entry.state = State.BLOCKED
        elif entry.not_before > wall:
            entry.state = State.DELAYED if void is None else State.RETRYING
            self.delay(entry)
        else:
            if void is None:
                entry.lane.fresh.append(entry)
            else:
                entry.lane.put_back(entry)
                self._life.born(State.READY)
            self._watch_expiry(entry)
            return True
        self._life.born(entry.state)
        return True

    def _thin_waiting(self, lane: Lane, first: int) -> None:
        if self.tight:
            for seq in range(first, lane.cursor):
                entry = lane.entries.get(seq)
                if entry is not None and entry.state in WAITING:
                    self.thin(entry)

    # Bodies

    @property
    def tight(self) -> bool:
        """Room for bodies runs low: only what is ready keeps its own."""
        bounds = self._bounds
        return (
            self.resident * 2 > bounds.window_messages
            or self.resident_bytes * 2 > bounds.window_bytes
        )

    def thin(self, entry: Entry) -> None:
        """Let go of a body; it can be read again."""
        if entry.message is not None:
            entry.message = None
            self.resident -= 1
            self.resident_bytes -= entry.size

    def thin_all(self, entries: Iterable[Entry]) -> None:
        """The same for messages that all have their body."""
        count = total = 0
        for entry in entries:
            entry.message = None
            count += 1
            total += entry.size
        self.resident -= count
        self.resident_bytes -= total

    def forget(self, entries: Iterable[Entry]) -> None:
        """Messages have ended durably."""
        count = total = 0
        for entry in entries:
            del entry.lane.entries[entry.seq]
            if entry.message is not None:
                count += 1
                total += entry.size
        self.resident -= count
        self.resident_bytes -= total

    def want(self, entry: Entry) -> None:
        """A bare position whose body is needed."""
        (self._wanted if entry.state is State.READY else self._urgent).append(entry)

    def fetch(self) -> None:
        """Read bodies that are needed, bucket by bucket."""
        while self._fetching < FETCHES and (wanted := self._next_wanted()):
            groups: dict[LiveBucket, list[Entry]] = {}
            for entry in wanted:
                if entry.lane.entries.get(entry.seq) is not entry:
                    continue  # it ended meanwhile
                bucket = entry.lane.bucket_of(entry.seq)
                assert bucket is not None  # an unsettled message's bucket is not drained
                groups.setdefault(bucket, []).append(entry)
            for bucket, entries in groups.items():
                self._fetching += 1
                self._reading += len(entries)
                self._effects.append(Fetch(bucket.key, entries))

    def _next_wanted(self) -> list[Entry]:
        """What to read next: what is urgent, else what is ready as far as there is room."""
        if not self._urgent and not self._wanted:
            return []
        bounds = self._bounds
        queue, count = self._urgent, bounds.fetch_messages
        if not queue:
            room = bounds.window_messages - self.resident - self._reading
            if self.resident_bytes >= bounds.window_bytes:
                room = 0
            queue, count = self._wanted, min(count, max(0, room))
        return [queue.popleft() for _ in range(min(count, len(queue)))]

    def fetched(self, fetch: Fetch, messages: dict[int, Message]) -> set[Entry]:
        """Bodies came. Those whose body the store does not have are returned."""
        self._fetching -= 1
        self._reading -= len(fetch.entries)
        damaged = set()
        for entry in fetch.entries:
            message = messages.get(entry.seq)
            if entry.message is not None or entry.lane.entries.get(entry.seq) is not entry:
                continue
            if message is None:
                damaged.add(entry)
                continue
            entry.message = message
            entry.size = size_of(message)  # a bare position did not know it
            self.resident += 1
            self.resident_bytes += entry.size
            entry.expires_at = message.expires_at
            if entry.state is State.READY:
                self._watch_expiry(entry)
                entry.lane.put_back(entry)
        return damaged

    # Waiting

    def ready(self, entry: Entry) -> None:
        """A message became ready: in its place, or first its body."""
        self._watch_expiry(entry)
        if entry.message is None:
            self.want(entry)
        else:
            entry.lane.put_back(entry)

    def delay(self, entry: Entry) -> None:
        """A message waits for its `not_before`."""
        heappush(self._delayed, (entry.not_before, entry.seq, entry.lane.number, entry))

    def no_longer_delayed(self, entries: Container[Entry]) -> None:
        """They end before they are due. That is rare, so the heap is just made anew."""
        self._delayed = [item for item in self._delayed if item[3] not in entries]
        heapify(self._delayed)

    def next_due(self) -> int | None:
        """Wall clock: when the next waiting message is due."""
        return self._delayed[0][0] if self._delayed else None

    def due(self, now: int, wall: int) -> None:
        """Make ready what is due."""
        while self._delayed and self._delayed[0][0] <= wall:
            entry = heappop(self._delayed)[3]
            self._life.move((entry,), Event.DUE, now)
            self.ready(entry)

    def free_key(self, entry: Entry, now: int) -> None:
        """A message's end is durable, or it leaves: its key's next one has its turn."""
        if entry.key is None:
            return
        head = self.keys.release(entry)
        if head is not None:
            self._life.move((head,), Event.UNBLOCK, now)
            self.ready(head)

    # The schedule index

    def schedule(self, wall: int) -> None:
        """Read the index ahead, as far as it knows of anything."""
        at = self.next_read()
        if at is None or wall < at:
            return
        start, self.scheduled_until = self.scheduled_until, wall + self._bounds.horizon_ms
        self.scheduling = True
        self._effects.append(Schedule(start, self.scheduled_until, self._bounds.page_messages))

    def next_read(self) -> int | None:
        """Wall clock: when the index is to be read; None: not because time passes."""
        if self.scheduling or not self.far or self._crowded():
            return None
        return self.scheduled_until - self._bounds.horizon_ms // 2

    def scheduled(self, read: Schedule, found: Sequence[Due], now: int) -> None:
        """What the index had. Messages behind the cursor come by themselves later."""
        self.scheduling = False
        for due, number, _, seq in found:
            lane = self.lane(number)
            bucket = lane.bucket_of(seq)
            if bucket is None or not lane.purged < seq < lane.cursor or seq in lane.entries:
                continue
            if seq in bucket.state.settled:
                continue
            self.enter_delayed(lane, seq, due, now)
        if len(found) < read.limit:
            return
        last = found[-1].due
        if self._crowded():
            self.scheduled_until = last  # go on from there when some of them are due
            return
        # There is more. Where all are due at once, only a longer read gets behind them.
        limit = read.limit * 2 if last == read.start else self._bounds.page_messages
        self.scheduling = True
        self._effects.append(Schedule(last, read.end, limit))

    def enter_delayed(self, lane: Lane, seq: int, due: int, now: int) -> Entry:
        """A message that only the schedule index knew of comes in, as a bare position."""
        entry = Entry(seq, lane, None, MESSAGE_OVERHEAD, State.DELAYED, now, not_before=due)
        lane.entries[seq] = entry
        self._life.born(State.DELAYED)
        self.far -= 1
        self.delay(entry)
        return entry

    # Expiry

    def _watch_expiry(self, entry: Entry) -> None:
        if entry.expires_at:
            self._expiring = True
            if self.next_expiry is None or entry.expires_at < self.next_expiry:
                self.next_expiry = entry.expires_at

    def take(self, lane: Lane, count: int, wall: int) -> tuple[list[Entry], list[Entry]]:
        """Ready messages to grant, and those that were found expired."""
        taken = lane.take(count)
        if not self._expiring:
            return taken, []
        expired = [entry for entry in taken if 0 < entry.expires_at <= wall]
        if expired:
            taken = [entry for entry in taken if not 0 < entry.expires_at <= wall]
        return taken, expired

    def sweep(self, wall: int) -> list[Entry]:
        """Take expired messages out of the ready ones, also when nobody consumes them."""
        if self.next_expiry is None or wall < self.next_expiry:
            return []
        expired, coming = [], []
        for lane in self.order:
            ready = [*lane.fresh, *(entry for _, entry in lane.again)]
            gone = [entry for entry in ready if 0 < entry.expires_at <= wall]
            coming += [entry.expires_at for entry in ready if entry.expires_at > wall]
            if gone:
                lane.remove(gone)
                expired += gone
        self.next_expiry = max(min(coming), wall + self._bounds.expiry_sweep_ms) if coming else None
        return expired

    # Going

    def purge(self) -> list[Entry]:
        """Take out everything that is not in flight, and skip the backlog."""
        purged = []
        for lane in self.order:
            lane.fresh.clear()
            lane.again.clear()
            lane.cursor = lane.stored
            lane.purged = lane.stored - 1
            purged += [entry for entry in lane.entries.values() if entry.state in PURGEABLE]
        self._delayed.clear()
        self._wanted.clear()
        self.keys.purge()
        self.far = 0
        return purged

    def oldest_ready(self) -> Entry | None:
        """The ready message that was published first, of any lane."""
        heads = [head for lane in self.order if (head := lane.head()) is not None]
        return min(heads, key=_published_at, default=None)


def _published_at(entry: Entry) -> int:
    assert entry.message is not None  # what is ready has its body
    return entry.message.published_at


def _plain_size(messages: list[Message]) -> int | None:
    """The size of messages that need no closer look; None when one of them does."""
    size = MESSAGE_OVERHEAD * len(messages)
    for message in messages:
        if (
            message.key is not None
            or message.headers is not None
            or message.not_before
            or message.expires_at
        ):
            return None
        size += len(message.body)
    return size
