"""A feed: one subscription, over all shards of its queue.

Shards come and go (one that stops is asked for again), the subscriber's connection comes and goes:
the feed keeps its options and its credit. After an unsubscribe it is *closed*: it gets nothing
more, but what is leased can be settled until it ends.

Whoever subscribes sees one stream: which shard a message or a receipt is of, how the credit is
dealt out to shards, and when they stop and come back is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
import trio

from pushlane.wire.errors import BadRequest, Conflict, NotFound, PushlaneError
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.callers.loose import settle_loose
from pushlane_dispatcher.callers.part import Part
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.core.shared_credit import SharedCredit
from pushlane_dispatcher.core.subscription import REQUEST
from pushlane_dispatcher.queues.queues import Elsewhere
from pushlane_dispatcher.shard.port import ShardPort
from pushlane_dispatcher.waiter import Waiter

if TYPE_CHECKING:
    from pushlane_dispatcher.dispatcher import Dispatcher

DELETED = "the queue was deleted"
UNSHARED = 1 << 40
"""More than any credit."""


class Spec(msgspec.Struct, frozen=True):
    """Who subscribes to what, and how."""

    tenant: str
    queue: str
    session: str
    """How consumers and `explain` name the subscriber."""
    client: str = ""
    """What the subscriber calls itself."""
    credit: int = 1
    lease_ms: int | None = None
    """None: as the queue has it."""
    explicit: bool = False
    """Leases begin with `start`, not with the delivery."""
    ack_none: bool = False
    term: int = 1
    """Of the session: one more with every gateway that takes it over."""
    reattach_base_ms: int = 50
    """The first pause before a shard that stopped is asked for again; it doubles …"""
    reattach_max_ms: int = 5_000
    """… up to this."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """What another gateway needs to go on with a feed."""

    queue: str
    queue_id: str
    credit: int
    lease_ms: int | None
    explicit: bool
    ack_none: bool
    closed: bool
    prefixes: list[str]
    """How receipts begin, by shard; empty: it never got there."""


class FeedSink(Protocol):
    """What a feed says. Plain calls that must not block or raise; they may call the feed again."""

    def deliver(
        self,
        runs: list[Run],
        place: str,
        prefix: str | None,
        lease_ms: int | None,
        again: bool,
    ) -> None:
        """Push these. `place` is how their ids begin, `prefix` how their receipts do (None: they
        have none, and no lease). `again`: a resumed client did not list them."""
        ...

    def lost(self, receipts: list[ReceiptRun]) -> None:
        """These receipts are void."""
        ...

    def quiet(self) -> None:
        """Nothing is left for it in any shard. Said to requests only."""
        ...

    def settled(self) -> None:
        """Something was lost, the feed was closed, or something of a closed one was settled."""
        ...

    def ended(self, code: str, message: str) -> None:
        """It is over without the subscriber's asking: the queue was deleted. To a request it is
        said of each shard that stops."""
        ...

    def elsewhere(self) -> None:
        """Another server has the queue."""
        ...

    def reattached(self) -> None:
        """To a shard that had stopped: how its receipts begin may be another now."""
        ...

    def superseded(self) -> None:
        """The session goes on at another gateway."""
        ...


class Feed:
    def __init__(
        self,
        dispatcher: Dispatcher,
        queue_id: str,
        shards: int,
        spec: Spec,
        sink: FeedSink,
        claims: Claims,
    ) -> None:
        self.spec = spec
        self.sink = sink
        self.claims = claims
        self.closed = False
        self._dispatcher = dispatcher
        self._brief = spec.session.startswith(REQUEST)
        """It is a request's: when a shard stops it is not attached again."""
        self._queue_id = queue_id
        self.away_ms: int | None = None
        """The subscriber's connection is lost; what it has waits so long for it."""
        self._credit = 1 if spec.ack_none else spec.credit
        self._paused = False
        self.shared = shards > 1 and not spec.ack_none
        """The shards share its credit."""
        self._shares = SharedCredit(spec.credit, int(dispatcher.chance() * shards))
        self._dealing = True
        """Shares are being dealt out, or it is not answered yet: what shards say changes none."""
        self._parts = [Part(self, number, queue_id) for number in range(shards)]
        self.keeps_back = False
        """Something that was sent again waits for a permit."""
        self._failed: list[PushlaneError] | None = None
        """While nobody has the feed yet, because not all shards have answered: what is wrong."""
        self._unknown = False
        """It was another gateway's, and has not been attached here yet."""
        self._left_ms: int | None = None
        """Its session has gone on elsewhere; what it has waits so long for that."""
        self._closing = False
        """It is to be closed once it is attached."""
        self._missed: list[ReceiptRun] | None = None
        """What a client that came back lists and has no longer, while …"""
        self._restored: Callable[[list[ReceiptRun]], None] | None = None
        """… somebody waits to be told."""
        self._turn = 0
        """How often its client came or went: only the last resume counts."""
        self._unheard = 0
        """Shards that have not answered that."""

    @classmethod
    def of_kept(
        cls, dispatcher: Dispatcher, kept: Kept, spec: Spec, sink: FeedSink, claims: Claims
    ) -> Feed:
        """What another gateway had. It goes on with a `resume`."""
        feed = cls(dispatcher, kept.queue_id, len(kept.prefixes), spec, sink, claims)
        for part, prefix in zip(feed._parts, kept.prefixes, strict=True):
            part.prefix = prefix
        feed._dealing = False
        feed._unknown = True
        feed._closing = kept.closed
        feed._credit = 1 if spec.ack_none else kept.credit
        feed._shares.total = kept.credit
        return feed

    def kept(self) -> Kept:
        """What another gateway would need to go on with it."""
        spec = self.spec
        return Kept(
            spec.queue, self._queue_id, self._credit, spec.lease_ms, spec.explicit, spec.ack_none,
            self.closed or self._closing, [part.prefix for part in self._parts],
        )  # fmt: skip

    def attach(
        self,
        shards: Sequence[ShardPort],
        answer: Callable[[Feed | None, PushlaneError | None], None],
    ) -> None:
        """To all shards, or to none: then it answers why."""
        most = self._dispatcher.most_credit
        if not 1 <= self._credit <= most:  # of each shard, too: one may get it all
            answer(None, BadRequest(f"credit must be 1 to {most}"))
            return
        waits, parts = len(self._parts), self._parts
        failed: list[PushlaneError] = []
        self._failed = failed

        def told(error: PushlaneError | None) -> None:
            nonlocal waits
            waits -= 1
            if error is not None:
                failed.append(error)
            if waits:
                return
            self._failed = None
            if failed:
                self.end()
                answer(None, failed[0])
            else:
                self._dealing = False
                answer(self, None)
                self._rebalance()

        for part, shard in zip(parts, shards, strict=True):
            part.attach(shard, self._first_credit, told)

    @property
    def _first_credit(self) -> int:
        """Of one that attaches: shares are dealt out to those that have."""
        return 0 if len(self._parts) > 1 or self._silent else self._credit

    @property
    def _silent(self) -> bool:
        """It is to get nothing for now."""
        return self._paused or self._closing

    @property
    def most_credit(self) -> int:
        """That any subscription may have."""
        return self._dispatcher.most_credit

    @property
    def held(self) -> int:
        """Unsettled messages."""
        return sum(part.held for part in self._parts)

    # Credit

    def set_credit(self, credit: int) -> None:
        if not self.spec.ack_none:
            self._credit = credit
            self._rebalance()

    def pause(self, paused: bool) -> None:
        """The client can't take any more for now: what would be its own goes to others."""
        if paused is not self._paused:
            self._paused = paused
            self._rebalance()

    def _deal(self, used: list[int]) -> list[int]:
        credit = 0 if self._silent else self._credit
        if not self.shared:
            return [credit] * len(used)
        self._shares.total = credit
        down = [part.number for part in self._parts if not part.up]
        if self._brief:  # it needs no credit where nothing is left, if there may be elsewhere
            resting = [part.number for part in self._parts if part.resting or not part.up]
            down = resting if len(resting) < len(used) else down
        return self._shares.deal(used, down)

    def _rebalance(self) -> None:
        """Deal out the credit again: something was delivered, settled, lost or paused."""
        if self.closed or self._dealing:
            return
        self._dealing = True
        parts = self._parts
        credits = self._deal([part.used for part in parts])
        for part, credit in zip(parts, credits, strict=True):
            if credit < part.credit:
                part.set_credit(credit)
        room = self._room
        if room >= 0:
            self._raise(credits, room)
        self._dealing = False
        if self.keeps_back:
            self._push_back(room)

    def _raise(self, credits: list[int], room: int) -> None:
        """There is never more than the credit: nobody gets what another may still use."""
        for part, credit in zip(self._parts, credits, strict=True):
            if credit > part.credit:
                most = part.most
                part.set_credit(min(credit, most + room))
                room -= max(0, part.credit - most)

    @property
    def _room(self) -> int:
        """How many of its permits no shard can use as things are. Negative: what shards hold for it
        and may grant is more than its credit, so no share is raised."""
        if not self.shared:
            return UNSHARED
        return self._shares.total - sum([part.most for part in self._parts])

    @property
    def fits(self) -> bool:
        """What a shard sends again may be pushed at once. Else its permit may be in use elsewhere:
        nobody knew of it while the session moved."""
        return self.closed or self._closing or self._room >= 0

    def _push_back(self, room: int) -> None:
        """What was kept back, as far as the credit goes."""
        count = UNSHARED
        if room < 0:
            count = self._shares.total - sum([part.pushed for part in self._parts])
        for part in self._parts:
            while part.back and count > 0:
                count -= 1
                part.push_back()
        self.keeps_back = any(part.back for part in self._parts)

    # What shards say

    def part_changed(self) -> None:
        """What is held there is another number, or it goes by another credit."""
        if not self._dealing:
            if self.shared:
                self._rebalance()
            self.sink.settled()

    def part_hungry(self, part: Part, hungry: bool) -> None:
        part.resting = self._brief and not hungry
        self._shares.hungry(part.number, hungry)
        self._rebalance()
        if hungry:
            part.say_credit(part.credit)
        elif self._brief and all(each.resting or not each.up for each in self._parts):
            self.sink.quiet()

    def part_delivered(self, part: Part) -> None:
        """Of a feed whose shards share its credit."""
        if self.away_ms is None:
            self._shares.delivered(part.number)
            self._rebalance()

    def lease_left(self, deadline: int) -> int:
        return max(0, deadline - self._dispatcher.clock.now())

    def part_lost(self, receipts: list[ReceiptRun]) -> None:
        self._tell_lost(receipts)
        self.part_changed()

    def part_missed(self, receipts: list[ReceiptRun]) -> None:
        """What its client lists and has no longer there."""
        if self._missed is None:
            self._tell_lost(receipts)
        else:
            self._missed += receipts

    def part_ended(self, part: Part, code: str, message: str) -> None:
        if self.closed:
            self.sink.settled()
            return
        if self._brief:  # it may get something of the other shards
            self._tell_lost(part.orphans)
            self.sink.ended(code, message)
        elif code != "not_found":
            self._reattach_soon()
        elif self._failed is not None:
            self._failed.append(NotFound(message))
        else:
            self._over(code, message)

    def _tell_lost(self, receipts: list[ReceiptRun]) -> None:
        if receipts:
            self.sink.lost(receipts)

    def _over(self, code: str, message: str) -> None:
        if self._missed is not None:
            self._missed += [run for part in self._parts if not part.up for run in part.orphans]
        self.end()
        self._turn += 1
        self.answer_now()
        self.sink.ended(code, message)

    def answer_now(self) -> None:
        """Whoever resumed it waits no longer: what is not known to be lost yet `lost` tells later.

        What is known must be told before anything else: its permits may be in use again.
        """
        restored, self._restored = self._restored, None
        missed, self._missed = self._missed, None
        if restored is not None:
            restored(missed or [])

    # The subscriber

    def detach(self, resume_ms: int) -> None:
        """Its connection is lost; it may resume for a while."""
        self.away_ms = resume_ms
        self._turn += 1
        self._restored = self._missed = None
        for part in self._parts:
            part.detach(resume_ms)

    def leave(self, resume_ms: int) -> None:
        """Its session goes on elsewhere, if it does: what it has waits so long for it."""
        self.closed = True
        self._left_ms = resume_ms
        for part in self._parts:
            part.leave(resume_ms)

    def resume(
        self, held: list[ReceiptRun], claims: Claims, answer: Callable[[list[ReceiptRun]], None]
    ) -> None:
        """It is back. Answers what it lists but no longer holds, once all shards have said it; of
        one that is down `lost` tells it later, unless nobody here has known the feed yet."""
        self.away_ms = None
        self.claims = claims
        by_part, lost = self._split(held)
        self._shares.resumed()
        self._restored, self._missed = answer, lost
        self._turn += 1
        self._unheard = len(self._parts)
        told = partial(self._told, self._turn)
        for part in self._parts:
            part.resume(by_part.get(part, []), told)

    def _told(self, turn: int, lost: list[ReceiptRun]) -> None:
        """A shard knows that the client is back."""
        if turn != self._turn:  # it has gone again
            return
        self.part_missed(lost)
        self._unheard -= 1
        if not self._unheard:
            if not self.closed:
                self._reattach_soon()
                self._rebalance()
            self._answer_if_all_said()

    def _answer_if_all_said(self) -> None:
        if not self._unheard and not self._unknown:
            self.answer_now()

    def unsubscribe(self) -> None:
        """It gets nothing more; what it has leased stays its own."""
        self.closed = True
        for part in self._parts:
            part.unsubscribe()
        self.sink.settled()

    def abandon(self) -> None:
        """Its client did not come back: what it holds has failed."""
        self.closed = True
        self.detach(0)

    def end(self) -> None:
        """Everything goes back at once."""
        self.closed = True
        for part in self._parts:
            part.end()

    # Settling

    def settle(
        self,
        act: Act,
        receipts: list[ReceiptRun],
        answer: Callable[[Gather], None],
        *,
        silently: bool = False,
    ) -> None:
        """Answers when all of it is durable; `silently`: as soon as it is known what is lost."""
        mine, foreign = self._split(receipts)
        if len(mine) == 1 and not foreign:
            [(part, own)] = mine.items()
            part.settle(act, own, Gather(1, answer), silently=silently)
            return
        gather = Gather(len(mine) + 1, answer)
        for part, own in mine.items():
            part.settle(act, own, gather, silently=silently)
        if foreign:
            shards = [part.shard if part.up else None for part in self._parts]
            settle_loose(shards, act, foreign, gather, silently=silently)
        gather.one_less()

    def _split(
        self, receipts: list[ReceiptRun]
    ) -> tuple[dict[Part, list[ReceiptRun]], list[ReceiptRun]]:
        """Receipts by part, and those that are nobody's here."""
        parts = self._parts
        only = parts[0]
        if len(parts) == 1 and only.up:
            for run in receipts:  # asked with every settle
                if run[0] != only.prefix:
                    break
            else:
                return {only: receipts}, []
        by_prefix = {part.prefix: part for part in parts}
        found: dict[Part, list[ReceiptRun]] = {}
        foreign: list[ReceiptRun] = []
        for run in receipts:
            owner = by_prefix.get(run[0])
            if owner is None or (self.closed and not owner.up):
                foreign.append(run)
            else:
                found.setdefault(owner, []).append(run)
        return found, foreign

    # Shards that stopped

    def _reattach_soon(self) -> None:
        """Each shard that is down by itself: one that can't be had keeps no other one away."""
        for part in self._parts:
            if not part.up and not part.returning and self._wanted:
                part.returning = True
                self._dispatcher.start_soon(self._reattach, part)

    @property
    def _wanted(self) -> bool:
        return not self.closed and self.away_ms is None

    async def _reattach(self, part: Part) -> None:
        pause, chance = self.spec.reattach_base_ms, self._dispatcher.chance
        try:
            while self._wanted:
                if await self._try_reattach(part):
                    return
                await trio.sleep(pause * (0.5 + chance() / 2) / 1000)
                pause = min(2 * pause, self.spec.reattach_max_ms)
        finally:
            part.returning = False

    def _is_back(self) -> None:
        """A shard is there again."""
        if all(part.up for part in self._parts):
            self._unknown = False
            if self._closing:
                self._closing = False
                self.unsubscribe()
            self._answer_if_all_said()
        self.sink.reattached()

    async def _try_reattach(self, part: Part) -> bool:
        spec, number = self.spec, part.number
        try:
            shard = await self._dispatcher.open_shard(
                spec.tenant, spec.queue, self._queue_id, number, self.claims
            )
            if not self._wanted:
                return True
            self._shares.hungry(number, False)
            await self._attach_again(part, shard)
        except NotFound:
            if self._wanted:
                self._over("not_found", DELETED)
        except Elsewhere:
            self.sink.elsewhere()
            return not self._wanted
        except Conflict:
            self.sink.superseded()
            return True
        except PushlaneError:
            self._rebalance()
            return False
        else:
            self._is_back()
        self._rebalance()
        return part.up or not self._wanted  # it may have stopped again by now

    async def _attach_again(self, part: Part, shard: ShardPort) -> None:
        waiter: Waiter[None] = Waiter()
        part.attach(shard, self._first_credit, partial(waiter, None))
        await waiter.wait()
        if self._left_ms is not None:  # meanwhile
            part.leave(self._left_ms)
        elif self.closed:
            part.end()
