"""A part: what one shard of a queue has to do with one feed.

It is the sink that the shard pushes into, and knows of the shard only what that says. A shard that
stops takes its part along: then the part is *down* until the dispatcher has opened the shard again.
What the client held meanwhile is its own if the next owner was handed it, or the lease cache
remembered it, and lost otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from pushlane.wire.errors import NotFound, PushlaneError, Unavailable
from pushlane.wire.receipts import ReceiptRun, count
from pushlane_dispatcher.core.act import START, Act
from pushlane_dispatcher.core.effects import Run, SettleTicket
from pushlane_dispatcher.core.runs import runs_of_numbers
from pushlane_dispatcher.shard.port import ShardPort
from pushlane_dispatcher.shard.sink import Attach, Attached, SettleAnswer

if TYPE_CHECKING:
    from pushlane_dispatcher.callers.feed import Feed

DOWN = Unavailable("the queue moves: try again", retry_ms=100)


class Part:
    __slots__ = (
        "_asked", "_feed", "_had", "_listed", "_most", "_resuming", "_started", "back", "credit",
        "generation", "lease_ms", "number", "orphans", "place", "prefix", "resting", "returning",
        "shard", "showing", "up", "waiting",
    )  # fmt: skip

    shard: ShardPort
    """There as soon as it was attached."""

    def __init__(self, feed: Feed, number: int, queue_id: str) -> None:
        self._feed = feed
        self.number = number
        self.place = f"{queue_id}-{number:x}-"
        """How ids of messages of this shard begin."""
        self.up = False
        self.prefix = ""
        """How its receipts begin."""
        self.generation = 0
        """What the shard last said: every settle carries it."""
        self.lease_ms = 0
        self.credit = 0
        """What the shard was last told …"""
        self._asked = 0
        """… and how often it has not said yet that it goes by it."""
        self._resuming = 0
        """Resumes without an answer: until then it is not known what settles carry."""
        self._most = 0
        """Of the credits that it may go by at the moment."""
        self.showing = 0
        """Unsettled messages of the client, as the shard last said."""
        self.waiting = 0
        """Permits in backoff, likewise."""
        self.resting = False
        """Of a request's: the shard said that nothing is left for it there."""
        self.orphans: list[ReceiptRun] = []
        """What the client has of a shard that stopped."""
        self._had = 0
        """So many messages it had when that stopped. A client that came back since may list fewer,
        but what it has started comes again."""
        self.back: dict[int, Run] = {}
        """What the shard sent again and its client has no permit for yet: by receipt number, one
        message each."""
        self.returning = False
        """Somebody sees to it that it is attached again."""
        self._listed: list[ReceiptRun] | None = None
        """The same, by a client that came back while the shard was being attached."""
        self._started: set[int] = set()
        """Receipt numbers: the client has begun with these, and no shard knows of it yet."""

    def attach(
        self, shard: ShardPort, credit: int, answer: Callable[[PushlaneError | None], None]
    ) -> None:
        """Subscribe, or go on with another owner of the same shard: what was lost with the old one
        is told."""
        feed, spec = self._feed, self._feed.spec
        wish = Attach(
            spec.session, credit, spec.lease_ms, spec.explicit, spec.ack_none, feed.shared,
            spec.client, feed.claims, self.prefix, self.orphans, spec.term,
        )  # fmt: skip
        self.shard = shard
        self._listed = None
        self.credit = self._most = credit
        self.showing = self.waiting = 0
        shard.attach(self, wish, partial(self._attached, answer))

    def _attached(
        self,
        answer: Callable[[PushlaneError | None], None],
        attached: Attached | None,
        error: PushlaneError | None,
    ) -> None:
        if attached is None:
            answer(error)
            return
        if attached.prefix != self.prefix:
            self._started.clear()
        self.prefix, self.generation = attached.prefix, attached.generation
        self.lease_ms = attached.lease_ms
        # Until the shard says what is held: others must not get the credit that this takes.
        self.showing = max(self.showing, self.used - count(attached.lost))
        if self._listed is None:
            self._come_up(attached.lost, answer)
        else:
            self._list(self._listed, answer)

    def _list(self, held: list[ReceiptRun], answer: Callable[[PushlaneError | None], None]) -> None:
        """Tell the shard what a client has that came back meanwhile."""

        def told(generation: int, lost: list[ReceiptRun], error: PushlaneError | None) -> None:
            if error is not None:
                answer(DOWN)
                return
            self.generation = generation
            if self._listed is held:
                self._come_up(lost, answer)
            elif self._listed is not None:  # it went away and came back once more
                self._list(self._listed, answer)

        self.shard.resume(self.prefix, held, self, told)

    def _come_up(
        self, lost: list[ReceiptRun], answer: Callable[[PushlaneError | None], None]
    ) -> None:
        feed = self._feed
        self.orphans = []
        self.up = True
        if feed.away_ms is not None:  # its client has gone meanwhile
            self.detach(feed.away_ms)
        if lost:
            feed.part_missed(lost)
        self._start_again()
        answer(None)

    # Credit

    @property
    def held(self) -> int:
        """Unsettled messages of a client that this shard knows of."""
        return self.showing if self.up else 0

    @property
    def used(self) -> int:
        """Permits that are held, also of a shard that stopped, or in backoff."""
        if self.up:
            return self.showing + self.waiting
        return max(self._had, count(self.orphans))

    @property
    def most(self) -> int:
        """So many permits it may use, until it says that it goes by another credit."""
        return max(self._most, self.used) if self.up else self.used

    @property
    def pushed(self) -> int:
        """The same, without what is kept back."""
        return max(self._most, self.used - len(self.back)) if self.up else self.used

    def set_credit(self, credit: int) -> None:
        if credit != self.credit:
            self.say_credit(credit)

    def say_credit(self, credit: int) -> None:
        if self.up:
            self.credit = credit
            self._most = max(self._most, credit)
            self._asked += 1
            self.shard.credit(self.prefix, self, credit, self._credited)

    def _credited(self) -> None:
        self._asked -= 1
        if not self._asked:
            self._most = self.credit
            self._feed.part_changed()

    # Receipts

    def settle(
        self, act: Act, receipts: list[ReceiptRun], answer: SettleAnswer, *, silently: bool
    ) -> None:
        if silently and act.verb == "start":
            answer = partial(self._begun, receipts, answer)
        if self.back and act.verb in ("ack", "nack"):
            self._forget(receipts)
        if self.up and not self._resuming:
            self.shard.settle(
                self.prefix, self.generation, act, receipts, answer, silently=silently
            )
        else:
            answer(SettleTicket(), DOWN)

    def _begun(
        self, receipts: list[ReceiptRun], answer: SettleAnswer, ticket: SettleTicket,
        error: PushlaneError | None,
    ) -> None:  # fmt: skip
        """Whoever has begun with a message does not say so twice: its shard is told once it is
        there again, or somebody else would get what was only reserved."""
        if not isinstance(error, Unavailable) or self._feed.closed:
            answer(ticket, error)
            return
        for prefix, low, high in receipts:
            if prefix == self.prefix and len(self._started) < self._feed.most_credit:
                self._started.update(range(low, high + 1))
        answer(SettleTicket(), None)
        if self.up and self.shard.running:  # it was there again before we heard of it
            self._start_again()

    def _start_again(self) -> None:
        numbers, self._started = sorted(self._started), set()
        if numbers:
            receipts = runs_of_numbers(self.prefix, numbers)
            self.settle(START, receipts, self._started_again, silently=True)

    def _started_again(self, ticket: SettleTicket, error: PushlaneError | None) -> None:
        if ticket.lost:
            self._feed.part_lost(ticket.lost)

    # Coming and going of the client

    def detach(self, resume_ms: int) -> None:
        self.back.clear()  # what its client does not list comes again
        if self.up:
            self.shard.detach(self.prefix, self, resume_ms)

    def resume(self, held: list[ReceiptRun], answer: Callable[[list[ReceiptRun]], None]) -> None:
        """What the client lists but no longer holds here; told later of a part that is down."""
        self.back.clear()
        if self.up:
            self._resuming += 1
            self.shard.resume(self.prefix, held, self, partial(self._resumed, held, answer))
        else:
            self.orphans = self._listed = held
            answer([])

    def _resumed(
        self,
        held: list[ReceiptRun],
        answer: Callable[[list[ReceiptRun]], None],
        generation: int,
        lost: list[ReceiptRun],
        error: PushlaneError | None,
    ) -> None:
        self._resuming -= 1
        if error is None:
            self.generation = generation
        elif isinstance(error, NotFound):
            self._go_down(held)
        answer(lost)  # of a shard that is closing: its next opening goes on with it

    def unsubscribe(self) -> None:
        if self.up:
            self.shard.unsubscribe(self.prefix, self)

    def leave(self, resume_ms: int) -> None:
        """The session goes on elsewhere."""
        if self.up:
            self._go_down([])
            self.shard.cut_off(self.prefix, self, resume_ms)

    def end(self) -> None:
        if self.up:
            self._go_down([])
            self.shard.end(self.prefix, self)

    def _go_down(self, held: list[ReceiptRun]) -> None:
        self.up = False
        if self.back:  # the next owner is to send it again
            held = runs_of_numbers(
                self.prefix,
                [n for _, low, high in held for n in range(low, high + 1) if n not in self.back],
            )
            self.back.clear()
        self.orphans = held
        self._had = count(held)
        self._asked = self.showing = self.waiting = 0

    # The sink

    def holds(self, held: int, waiting: int) -> None:
        self.showing, self.waiting = held, waiting
        feed = self._feed
        if feed.shared or feed.closed:  # else nobody goes by it
            feed.part_changed()

    def deliver(self, runs: list[Run], again: bool, held: int, waiting: int) -> None:
        if not self.up:
            return
        self.resting = False
        self.showing, self.waiting = held, waiting
        feed = self._feed
        if again and not feed.fits:
            self.back |= {one.n: one for run in runs for one in _singles(run)}
            feed.keeps_back = True
            feed.part_changed()
            return
        self._push(runs, again)
        if feed.shared and not again:  # what is sent again was no turn: it may still be hungry
            feed.part_delivered(self)

    def push_back(self) -> None:
        """Push one message that was kept back."""
        self._push([self.back.pop(next(iter(self.back)))], True)

    def _push(self, runs: list[Run], again: bool) -> None:
        feed = self._feed
        prefix: str | None = self.prefix
        lease_ms: int | None = self.lease_ms
        if again and runs[0].started:
            lease_ms = feed.lease_left(runs[0].deadline)
        if feed.spec.ack_none:
            prefix = lease_ms = None
        feed.sink.deliver(runs, self.place, prefix, lease_ms, again)

    def lost(self, receipts: list[ReceiptRun], held: int, waiting: int) -> None:
        if self.up:
            self.showing, self.waiting = held, waiting
            if self.back:
                self._forget(receipts)
            self._feed.part_lost(receipts)

    def _forget(self, receipts: list[ReceiptRun]) -> None:
        """It is settled or lost: it must not be pushed any more."""
        for prefix, low, high in receipts:
            if prefix == self.prefix:
                for n in range(low, high + 1):
                    self.back.pop(n, None)

    def hungry(self, hungry: bool, held: int, waiting: int) -> None:
        if self.up:
            self.showing, self.waiting = held, waiting
            self._feed.part_hungry(self, hungry)

    def ended(self, code: str, message: str, held: list[ReceiptRun]) -> None:
        if self.up:
            self._go_down(held)
            self._feed.part_ended(self, code, message)


def _singles(run: Run) -> Iterator[Run]:
    for index, message in enumerate(run.messages):
        yield msgspec.structs.replace(run, seq=run.seq + index, n=run.n + index, messages=[message])
