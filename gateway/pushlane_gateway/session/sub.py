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
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_gateway.session.credit import scarce, share
from pushlane_gateway.session.delivery import deliver_frames
from pushlane_gateway.session.part import Part
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
        self._turn = 0
        self._looking = False
        self._reattaching = False
        self.parts: list[Part] = []
        self._attach(queue)

    def _attach(self, queue: OpenQueue) -> None:
        none = [0] * len(queue.runners)
        credits = self._shares(none, [False] * len(none))
        try:
            for number, runner in enumerate(queue.runners):
                self.parts.append(Part(self, number, runner, credits[number]))
        except PushlaneError:
            self.end()
            raise
        self.rebalance()

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

    def _shares(self, used: list[int], ready: list[bool]) -> list[int]:
        if self._paused:
            return [0] * len(used)
        if self.options.ack_none or len(used) == 1:
            return [self._credit] * len(used)
        return share(self._credit, used, ready, self._turn)

    def rebalance(self) -> None:
        """Deal out the credit again: something was delivered, settled, lost or paused."""
        if self.closed:
            return
        parts = self.parts
        if len(parts) == 1:
            parts[0].set_credit(0 if self._paused else self._credit)
            return
        self._turn += 1
        used = [part.used for part in parts]
        credits = self._shares(used, [part.ready for part in parts])
        # Those that get less come first, so that at no time there is more than the credit.
        for part, credit in sorted(
            zip(parts, credits, strict=True), key=lambda item: item[1] - item[0].subscription.credit
        ):
            part.set_credit(credit)
        if not self._paused and not self.options.ack_none and scarce(self._credit, used):
            self._look_later()

    def _look_later(self) -> None:
        if not self._looking and self.session.connection is not None:
            self._looking = True
            tools = self.session.tools
            tools.timers.at(trio.current_time() + tools.settings.share_ms / 1000, self._look)

    def _look(self) -> None:
        self._looking = False
        if self.session.connection is not None:
            if any(part.ready for part in self.parts):
                self.rebalance()
            else:
                self._look_later()

    # What shards say

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
        if len(self.parts) > 1:
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
        elif len(self.parts) > 1:
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
        if len(parts) == 1 and parts[0].up:  # the shard itself sorts out what is foreign
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
            queue = await self.session.tools.dispatcher.open(
                self.session.identity.tenant, self.queue
            )
            if not self._wanted():
                return True
            if queue.row.id != self._queue_id:
                raise NotFound(DELETED)
            for part in self.parts:
                if not part.up:
                    self.tell_lost(part.reattach(queue.runners[part.number], 0))
        except NotFound:
            if self._wanted():
                self.over("not_found", DELETED)
        except PushlaneError:
            return False
        self.rebalance()
        return True
