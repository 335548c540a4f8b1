"""All producers that a shard remembers, the one that was silent longest first.

A producer is remembered for a day after its last message, and inside the queue's window whatever
comes: at the bound those make room that were silent for longer, and when there are none, new ones
are `throttled`. Both bounds are on memory: some 450 bytes for a producer, 24 for a run of numbers.
Shards that number what they transfer are producers, too: these are remembered for the day.

Of both bounds the producers of one owner (an API key) may have a share only, so that nobody fills a
queue with names and shuts the others out. A name says whose it is, also after a restart.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from itertools import chain

from pushlane.wire.errors import Throttled
from pushlane_dispatcher.core.bounds import TRANSFER_WINDOW_MS, Bounds
from pushlane_dispatcher.core.numbers import Numbers, Place, Run
from pushlane_dispatcher.core.places import Claim
from pushlane_storage.message import TRANSFER, owner_of
from pushlane_storage.note import KeptNumbers, Note

PRODUCER_MS = TRANSFER_WINDOW_MS
"""How long a silent producer is remembered while there is room, if the window is not longer."""
_AT_ONCE = 64
"""Producers that are forgotten together: a publish is to be quick."""


class Producers:
    __slots__ = (
        "_bounds", "_enough", "_names_of", "_own", "_runs_of", "_share", "_share_of_runs",
        "_stored_before", "_transfers", "runs", "window_ms",
    )  # fmt: skip

    def __init__(self, bounds: Bounds, window_ms: int, stored_before: Callable[[int], int]) -> None:
        self._bounds = bounds
        self.window_ms = window_ms
        self._stored_before = stored_before
        self._own: OrderedDict[str, Numbers] = OrderedDict()
        self._transfers: OrderedDict[str, Numbers] = OrderedDict()
        self.runs = 0
        """Of all of them together."""
        self._names_of: Counter[str] = Counter()
        self._runs_of: Counter[str] = Counter()
        """By owner, of those that have one."""
        share = Claim("", bounds.producer_percent)
        self._share = share.share_of(bounds.producers)
        self._share_of_runs = share.share_of(bounds.producer_runs)
        self._enough = bounds.producer_seqs + bounds.producer_seqs // 4
        """Numbers of a producer before they are sorted out, some together."""

    def __len__(self) -> int:
        return len(self._own) + len(self._transfers)

    def _kind(self, name: str) -> OrderedDict[str, Numbers]:
        return self._transfers if name.startswith(TRANSFER) else self._own

    def get(self, name: str) -> Numbers | None:
        numbers = self._own.get(name)
        return numbers if numbers is not None else self._transfers.get(name)

    def by_last_use(self) -> Iterator[tuple[str, Numbers]]:
        """The one that was used last first, and transfers before all."""
        return chain(reversed(self._transfers.items()), reversed(self._own.items()))

    # Looking for the first one

    def find(self, name: str, number: int, now: int) -> Place | Throttled | None:
        """Where the message with a number stands; None: it is new, and there is room for it."""
        numbers = self.get(name)
        first = None if numbers is None else numbers.find(number)
        return first if first is not None else self._full(name, numbers, now)

    def all_new(self, name: str, low: int, now: int) -> bool:
        """Whether a producer certainly never used the numbers from `low` on, and there is room."""
        numbers = self._own.get(name)
        if numbers is None:
            numbers = self._transfers.get(name)
            if numbers is None:
                return self._full(name, None, now) is None
        if low < numbers.end:
            return False
        return self.runs < self._share_of_runs or self._full(name, numbers, now) is None

    def _full(self, name: str, numbers: Numbers | None, now: int) -> Throttled | None:
        """Why there is no room for one more number of a producer; None: there is."""
        owner = owner_of(name)
        if numbers is None:
            self.forget(now)
            if self._lacks_producers(owner):
                self._make_room(now)
            limit = self._lacks_producers(owner)
            if limit:
                return self._throttled("producers", limit, now)
        if self._lacks_runs(owner):
            self._make_room(now)
            limit = self._lacks_runs(owner)
            if limit and not self._coalesce(numbers):
                return self._throttled("runs of producers' numbers", limit, now)
        return None

    def _lacks_producers(self, owner: str) -> str | None:
        """The limit at which there is no room for one more; None: there is room."""
        if len(self) >= self._bounds.producers:
            return "producers"
        full = owner and self._names_of[owner] >= self._share
        return "producers_share" if full else None

    def _lacks_runs(self, owner: str) -> str | None:
        if self.runs >= self._bounds.producer_runs:
            return "producer_runs"
        full = owner and self._runs_of[owner] >= self._share_of_runs
        return "producer_runs_share" if full else None

    def _throttled(self, what: str, limit: str, now: int) -> Throttled:
        """Until the one that was silent longest is out of its window."""
        silent_since = next((numbers.last_at for numbers in self._own.values()), now)
        wait = min(max(100, silent_since + self.window_ms - now), 10_000)
        return Throttled(f"too many {what} are remembered", retry_ms=wait, limit=limit)

    def _count_runs(self, numbers: Numbers, more: int) -> None:
        self.runs += more
        if numbers.owner:
            self._runs_of[numbers.owner] += more

    def _coalesce(self, numbers: Numbers | None) -> bool:
        if numbers is None:
            return False
        before = len(numbers)
        if not numbers.coalesce(self.stored):
            return False
        self._count_runs(numbers, len(numbers) - before)
        return True

    # Entering and leaving

    def add(self, name: str, low: int, count: int, lane: int, seq: int, at: int) -> None:
        """Enter numbers that are not there yet."""
        numbers = self._use(name, at)
        more = numbers.add(low, count, lane, seq)
        if more:
            self._count_runs(numbers, more)
        if numbers.count > self._enough:
            before = len(numbers)
            self._trim(numbers)
            self._count_runs(numbers, len(numbers) - before)

    def remove(self, name: str, low: int, count: int = 1) -> None:
        """Take numbers out: their messages were never stored, or are not the newest of them."""
        numbers = self.get(name)
        if numbers is not None:
            before = len(numbers)
            for number in range(low, low + count):
                numbers.remove(number)
            self._count_runs(numbers, len(numbers) - before)

    def _use(self, name: str, at: int) -> Numbers:
        kind = self._own
        numbers = kind.get(name)
        if numbers is None:
            kind = self._kind(name)
            numbers = kind.get(name)
            if numbers is None:
                numbers = kind[name] = Numbers(at, owner_of(name))
                if numbers.owner:
                    self._names_of[numbers.owner] += 1
        if at > numbers.last_at:
            numbers.last_at = at
            kind.move_to_end(name)
        return numbers

    def _trim(self, numbers: Numbers) -> None:
        """Keep the highest numbers."""
        keep = self._bounds.producer_seqs
        while numbers.count > keep:
            stored = self.stored(numbers.run(0))
            if not stored:
                return  # its flush is under way: numbers from here on wait for the next time
            numbers.forget_lowest(min(stored, numbers.count - keep))

    def forget(self, now: int) -> None:
        """Forget some that were silent for a day."""
        day = max(PRODUCER_MS, self.window_ms)
        self._forget(self._own, now - day, now)
        self._forget(self._transfers, now - day, now)

    def _make_room(self, now: int) -> None:
        """Forget some that are out of the window."""
        self._forget(self._own, now - self.window_ms, now)

    def _forget(self, kind: OrderedDict[str, Numbers], horizon: int, now: int) -> None:
        for _ in range(_AT_ONCE):
            if not kind:
                return
            name, numbers = next(iter(kind.items()))
            if numbers.last_at > horizon:
                return
            if self._has_pending(numbers):
                self._use(name, now)
            else:
                del kind[name]
                self._count_runs(numbers, -len(numbers))
                self._let_go(numbers.owner)

    def _let_go(self, owner: str) -> None:
        """One producer of theirs is forgotten."""
        if owner:
            self._names_of[owner] -= 1
            if not self._names_of[owner]:
                del self._names_of[owner], self._runs_of[owner]

    def _has_pending(self, numbers: Numbers) -> bool:
        return any(self.stored(run) < run.count for run in numbers.runs())

    # What is stored

    def stored(self, run: Run) -> int:
        """How many of a run's messages are."""
        if run.lane < 0:
            return run.count
        return max(0, min(run.count, self._stored_before(run.lane) - run.seq))

    def newest(self, numbers: Numbers) -> int | None:
        """Where the numbers to keep begin, of those that are stored; None: they are too few."""
        left = self._bounds.producer_seqs
        for run in numbers.newest_runs():
            stored = self.stored(run)
            if stored >= left:
                return run.low + stored - left
            left -= stored
        return None

    def passed(self, name: str, number: int) -> bool:
        """Whether the next owner forgets a producer's numbers up to this one anyway.

        Our own floor says nothing of that: it may come from a bucket that was not looked at.
        """
        numbers = self.get(name)
        if numbers is None:
            return True
        if numbers.end - 1 - number < self._bounds.producer_seqs:
            return False
        newest = self.newest(numbers)
        return newest is not None and number < newest

    # Across owners

    def restore(self, kept: KeptNumbers, at: int, now: int) -> None:
        """Recovery: what a predecessor kept of a producer."""
        self._use(kept.producer, at)
        for run in kept.runs:
            self.restore_run(kept.producer, *run, at, now)
        self.restore_floor(kept.producer, kept.floor)

    def restore_run(
        self, name: str, low: int, count: int, lane: int, seq: int, at: int, now: int
    ) -> None:
        """Recovery: numbers that were stored at that time. Later ones of the same count."""
        if len(self) >= self._bounds.producers and self.get(name) is None:
            self._make_room(now)
        self.remove(name, low, count)
        self.add(name, low, count, lane, seq, at)
        numbers = self._kind(name)[name]
        if self.runs > self._bounds.producer_runs:
            self._coalesce(numbers)

    def restore_floor(self, name: str, number: int) -> None:
        """Recovery: up to this number a producer's messages were not looked at."""
        numbers = self.get(name)
        if numbers is not None:
            numbers.floor = max(numbers.floor, number)

    def restored(self, note: Note | None) -> None:
        """Recovery is through. Below its newest numbers a producer may have had others, in buckets
        that were dropped because they were forgotten: so they are forgotten here, too. Likewise
        below what is known at all, when the note has not all that it should."""
        partly = note is not None and not note.whole
        listed = {kept.producer for kept in note.kept} if note is not None else set()
        for kind in (self._own, self._transfers):
            for name, numbers in sorted(kind.items(), key=_last_at):
                kind.move_to_end(name)
                newest = self.newest(numbers)
                if newest is None and partly and name not in listed and len(numbers):
                    newest = numbers.run(0).low
                if newest is not None:
                    numbers.floor = max(numbers.floor, newest - 1)

    def keep(self, name: str, wall: int, now: int) -> KeptNumbers:
        """What the next owner has to know of a producer, whatever buckets are dropped."""
        numbers = self._kind(name)[name]
        runs = [
            (run.low, stored, run.lane, run.seq)
            for run in numbers.runs()
            if (stored := self.stored(run))
        ]
        return KeptNumbers(name, wall - (now - numbers.last_at), numbers.floor, runs)


def _last_at(item: tuple[str, Numbers]) -> int:
    return item[1].last_at
