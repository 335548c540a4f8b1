"""A sub: one subscription of a session, over all shards of its queue.

Shards come and go (one that stops is asked for again), the client's connection comes and goes: the
sub keeps its number, its options and its credit. After an unsubscribe it is *closed*: it gets
nothing more, but what is leased can be settled until it is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from pushlane.wire.errors import NotFound, PushlaneError
from pushlane.wire.frames import Ended, LeaseLostFrame
from pushlane.wire.receipts import Span
from pushlane_dispatcher.core.effects import Receipts, Run
from pushlane_dispatcher.core.shared_credit import SharedCredit
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_dispatcher.queues import Elsewhere
from pushlane_gateway.session.delivery import deliver_frames
from pushlane_gateway.session.part import Adopted, Part
from pushlane_gateway.session.receipts import render_all

if TYPE_CHECKING:
    from pushlane_gateway.session.session import Session

DELETED = "the queue was deleted"


class SubOptions(msgspec.Struct, frozen=True):
    lease_ms: int | None
    explicit: bool
    ack_none: bool


class Sub:
    def __init__(
        self, session: Session, number: int, queue: OpenQueue, credit: int, options: SubOptions
    ) -> None:
        """Attaches to all shards, or to none and raises."""
        self.session = session
        self.number = number
        self.queue = queue.row.name
        self.options = options
        self.closed = False
        self.forgetting = False
        """Somebody will look whether it can be forgotten."""
        self._queue_id = queue.row.id
        self._credit = 1 if options.ack_none else credit
        self._paused = session.paused
        self.shared = len(queue.runners) > 1 and not options.ack_none
        """The shards share its credit."""
        self._shares = SharedCredit(credit, int(session.tools.chance() * len(queue.runners)))
        self._reattaching = False
        self.parts: list[Part] = []
        self._attach(queue)

    def _attach(self, queue: OpenQueue) -> None:
        credits = self._deal([0] * len(queue.runners))
        try:
            for number, runner in enumerate(queue.runners):
                self.parts.append(Part(self, number, runner, credits[number]))
        except PushlaneError:
            self.end()
            raise

    @property
    def held(self) -> int:
        """Unsettled messages."""
        return sum(part.held for part in self.parts)

    # Credit

    def set_credit(self, credit: int) -> None:
        if not self.options.ack_none:
            self._credit = credit
            self.rebalance()

    def pause(self, paused: bool) -> None:
        """The client can't take any more for now: what would be its own goes to others."""
        if paused is not self._paused:
            self._paused = paused
            self.rebalance()

    def _deal(self, used: list[int]) -> list[int]:
        credit = 0 if self._paused else self._credit
        if not self.shared:
            return [credit] * len(used)
        self._shares.total = credit
        return self._shares.deal(used, [part.number for part in self.parts if not part.up])

    def rebalance(self) -> None:
        """Deal out the credit again: something was delivered, settled, lost or paused."""
        if self.closed:
            return
        parts = self.parts
        credits = self._deal([part.used for part in parts])
        # Those that get less come first, so that at no time there is more than the credit.
        for part, credit in sorted(
            zip(parts, credits, strict=True), key=lambda item: item[1] - item[0].subscription.credit
        ):
            part.set_credit(credit)

    # What shards say

    def starved(self, part: Part, starving: bool) -> None:
        self._shares.starved(part.number, starving)
        self.rebalance()
        part.say_credit(part.subscription.credit)

    def deliver(self, part: Part, runs: list[Run], again: bool) -> None:
        connection = self.session.connection
        if connection is None:  # a resume sends again what was not listed
            return
        tools = self.session.tools
        options, subscription = self.options, part.subscription
        lease_ms: int | None = subscription.lease_ms
        if again and runs[0].started:
            lease_ms = max(0, runs[0].deadline - tools.clock.now())
        prefix: str | None = subscription.prefix
        if options.ack_none:
            prefix = lease_ms = None
        most = min(tools.settings.deliver_bytes, tools.limits.frame_bytes // 2)
        codec = connection.socket.codec
        count = sum([len(run.messages) for run in runs])
        if count >= tools.settings.hurry_messages:
            connection.socket.hurry()
        for frame in deliver_frames(codec, self.number, runs, part.place, prefix, lease_ms, most):
            connection.send_encoded("deliver", frame)
        if again:
            tools.metrics.redelivered += count
        else:
            tools.metrics.delivered += count
        connection.watch_outbox()
        if self.shared:
            self._shares.delivered(part.number)
            self.rebalance()

    def lost(self, receipts: list[Receipts]) -> None:
        self.tell_lost(receipts)
        self.settled()

    def tell_lost(self, spans: list[Span]) -> None:
        if spans:
            self.session.send(LeaseLostFrame(self.number, render_all(spans)))

    def settled(self) -> None:
        """Permits came back."""
        if self.closed:
            self.session.forget_later(self)
        elif self.shared:
            self.rebalance()

    def part_ended(self, code: str, message: str) -> None:
        if self.closed:
            return
        if code == "not_found":
            self.over(code, message)
        else:
            self.reattach_soon()

    def over(self, code: str, message: str) -> None:
        """It ends without the client's asking."""
        self.closed = True
        self.session.sub_over(self, Ended(self.number, code, message))

    # The client

    def detach(self, resume_ms: int) -> None:
        for part in self.parts:
            part.detach(resume_ms)

    def resume(self, held: list[Span]) -> list[Span]:
        """The client is back. Answers what it lists but no longer holds."""
        by_part, lost = self.split(held)
        self._shares.resumed()
        for part in self.parts:
            lost += part.resume(by_part.get(part, []))
        if not self.closed:
            self.reattach_soon()
            self.rebalance()
        return lost

    def unsubscribe(self) -> None:
        self.closed = True
        for part in self.parts:
            part.unsubscribe()
        self.session.forget_later(self)

    def end(self) -> None:
        """Everything goes back at once."""
        self.closed = True
        for part in self.parts:
            part.end()

    def split(self, spans: list[Span]) -> tuple[dict[Part, list[Span]], list[Span]]:
        """Receipts by part, and those that are nobody's here."""
        parts = self.parts
        if self.closed:  # nobody says when its shard stops
            for part in parts:
                part.up = part.up and part.runner.stopped_by is None
        if len(parts) == 1 and parts[0].up and parts[0].has_all(spans):
            return {parts[0]: spans}, []
        by_prefix = {part.subscription.prefix: part for part in parts}
        found: dict[Part, list[Span]] = {}
        foreign: list[Span] = []
        for span in spans:
            owner = by_prefix.get(span[0])
            if owner is None or (self.closed and not owner.up):
                foreign.append(span)
            else:
                found.setdefault(owner, []).append(span)
        return found, foreign

    def find_adopted(self, spans: list[Span]) -> tuple[dict[Adopted, list[Span]], list[Span]]:
        """Receipts of sessions that a crash cut off, by whose they are; and all others."""
        known: dict[str, Adopted | None] = {}
        found: dict[Adopted, list[Span]] = {}
        foreign: list[Span] = []
        for span in spans:
            prefix = span[0]
            if prefix not in known:
                there = (part.find_adopted(prefix) for part in self.parts)
                known[prefix] = next(filter(None, there), None)
            adopted = known[prefix]
            if adopted is None:
                foreign.append(span)
            else:
                found.setdefault(adopted, []).append(span)
        return found, foreign

    # Shards that stopped

    def reattach_soon(self) -> None:
        down = any(not part.up for part in self.parts)
        if down and not self._reattaching and self._wanted():
            self._reattaching = True
            self.session.tools.nursery.start_soon(self._reattach)

    async def _reattach(self) -> None:
        tools = self.session.tools
        pause = tools.settings.reattach_base_ms
        try:
            while self._wanted():
                if await self._try_reattach():
                    return
                await trio.sleep(pause * (0.5 + tools.chance() / 2) / 1000)
                pause = min(2 * pause, tools.settings.reattach_max_ms)
        finally:
            self._reattaching = False

    def _wanted(self) -> bool:
        return not self.closed and self.session.connection is not None

    async def _try_reattach(self) -> bool:
        try:
            tools, identity = self.session.tools, self.session.identity
            queue = await tools.dispatcher.open(
                identity.tenant, self.queue, claims=self.session.claims
            )
            if not self._wanted():
                return True
            if queue.row.id != self._queue_id:
                raise NotFound(DELETED)
            for part in self.parts:
                if not part.up:
                    self._shares.starved(part.number, False)
                    self.tell_lost(part.reattach(queue.runners[part.number], 0))
        except NotFound:
            if self._wanted():
                self.over("not_found", DELETED)
        except Elsewhere:
            self.session.send_away()
            return not self._wanted()
        except PushlaneError:
            return False
        self.rebalance()
        return True
