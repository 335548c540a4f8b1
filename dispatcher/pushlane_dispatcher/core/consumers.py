"""Consumers: who gets which message, and what they say of it.

Grants take runs of ready messages, the highest lane first, to the subscription with the most
free permits. Everything that a consumer says comes with receipts: only those that it holds
count, the others are reported lost, or duplicate when they were settled before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

from pushlane.wire.errors import BadRequest
from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.core.act import Act
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.effects import (
    Deliver,
    Effect,
    Forget,
    Lost,
    Remember,
    Resumed,
    Run,
    SettleTicket,
)
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.hunger import Hunger
from pushlane_dispatcher.core.idle import Idle
from pushlane_dispatcher.core.lane import Lane
from pushlane_dispatcher.core.life import IN_FLIGHT, Event, Life, State
from pushlane_dispatcher.core.log import Log
from pushlane_dispatcher.core.meter import Meter
from pushlane_dispatcher.core.places import Claims, Places
from pushlane_dispatcher.core.runs import (
    make_fresh_runs,
    make_runs,
    receipts_of,
    runs_of_numbers,
)
from pushlane_dispatcher.core.settled import Numbers, Settled
from pushlane_dispatcher.core.subscription import ANYBODY, Fair, Subscription, Timers
from pushlane_dispatcher.core.verdicts import Verdicts
from pushlane_dispatcher.core.window import Window
from pushlane_storage.bucket import ShardKey

FENCE_BITS = 20

Grant = tuple[int, int]
"""A fence, and the generation of the holder."""


class Consumers:
    __slots__ = (
        "_bounds", "_cached", "_effects", "_epoch", "_fair", "_life", "_log", "_meter",
        "_name", "_resend", "_verdicts", "_window", "again", "hunger", "idle", "places", "settled",
        "subscriptions", "timers",
    )  # fmt: skip

    def __init__(
        self,
        bounds: Bounds,
        epoch: int,
        effects: list[Effect],
        life: Life,
        log: Log,
        window: Window,
        verdicts: Verdicts,
        cached: bool,
        meter: Meter | None,
        name: ShardKey,
    ) -> None:
        self._bounds = bounds
        self._epoch = epoch
        self._effects = effects
        self._life = life
        self._log = log
        self._window = window
        self._verdicts = verdicts
        self._cached = cached
        """A lease cache wants to know what is out."""
        self._meter = meter
        self._name = name, epoch
        self.settled = Settled()
        """Of requests that are over; shards may share one."""
        self._fair = Fair()
        self.timers = Timers()
        self.again: dict[Entry, Grant] = {}
        """What to send again to clients that resumed …"""
        self._resend: dict[Entry, Grant] = {}
        """… and what of it waits for its body."""
        self.subscriptions: dict[str, Subscription] = {}
        """By the prefix of their receipts."""
        self.places = Places("subscriptions", bounds.subscriptions, "subscriptions on this queue")
        self.idle = Idle(bounds, life, window, self)
        self.hunger = Hunger(effects)

    # Coming and going

    def attach(self, subscription: Subscription) -> None:
        if not 1 <= subscription.credit <= self._bounds.credit:
            raise BadRequest(f"credit must be 1 to {self._bounds.credit}")
        refusal = self.places.refusal(subscription.claims)
        if refusal is not None:
            raise refusal
        assert subscription.prefix not in self.subscriptions
        self.subscriptions[subscription.prefix] = subscription
        self.places.take(subscription.claims)
        if subscription.brief:
            self.hunger.ask(subscription)
        self._offer(subscription)

    def claim(self, subscription: Subscription, claims: Claims) -> None:
        """It counts for these from now on: what is there already is refused to nobody."""
        self.places.give_back(subscription.claims)
        self.places.take(claims)
        subscription.claims = claims

    def set_credit(self, subscription: Subscription, credit: int) -> None:
        if not 0 <= credit <= self._bounds.credit:
            raise BadRequest(f"credit must be 0 to {self._bounds.credit}")
        if subscription.brief and credit > subscription.credit:
            self.hunger.ask(subscription)
        subscription.credit = credit
        self.hunger.answered(subscription)
        self._offer(subscription)

    def detach(self, subscription: Subscription, resume_until: int, broken: bool = True) -> None:
        """Its connection is lost; leases run on while it is away."""
        subscription.away_until = resume_until
        subscription.broken = broken
        subscription.generation += 1
        subscription.untold = 0
        self._offer(subscription)
        self.timers.watch(subscription, resume_until)

    def resume(self, subscription: Subscription, held: Iterable[ReceiptRun]) -> Resumed:
        """It is back and lists what it has; the rest is sent again."""
        resumed, missed = self._come_back(subscription, held)
        self._send_again(subscription, missed)
        return resumed

    def adopt(
        self, subscription: Subscription, held: Iterable[ReceiptRun], now: int, wall: int
    ) -> Resumed:
        """The same, over a new way to its gateway, which lists all that came over the old one.

        The rest may never have come, and its permits may be in use in other shards. So it goes
        back as if it had not been granted; what the client itself has started is sent again.
        """
        resumed, missed = self._come_back(subscription, held)
        started: list[Entry] = []
        pushed: list[Entry] = []
        for entry in missed:
            by_client = subscription.explicit and entry.state is State.LEASED
            (started if by_client else pushed).append(entry)
        self._send_again(subscription, started)
        self._release(subscription, pushed)
        for entry in pushed:
            entry.attempts -= entry.state is State.LEASED
            self._verdicts.give_back(entry, now, wall)
        return resumed

    def _come_back(
        self, subscription: Subscription, held: Iterable[ReceiptRun]
    ) -> tuple[Resumed, list[Entry]]:
        """From now on it has this; and what it holds and did not list."""
        listed: set[int] = set()
        lost: list[ReceiptRun] = []
        for prefix, low, high in held:
            if prefix == subscription.prefix:
                listed.update(range(low, high + 1))  # the wire bounds runs
            else:
                lost.append((prefix, low, high))
        settled, loose = subscription.settled, subscription.loose
        missing = [n for n in listed if n not in subscription.held]
        gone = [n for n in missing if n not in settled or n in loose]
        lost += runs_of_numbers(subscription.prefix, sorted(gone))
        subscription.away_until = subscription.adopt_until = None
        subscription.broken = False
        subscription.generation += 1
        subscription.untold = 0
        self.hunger.forget(subscription)
        self._offer(subscription)
        missed = [entry for n, entry in subscription.held.items() if n not in listed]
        return Resumed(subscription.generation, lost), missed

    def _send_again(self, subscription: Subscription, entries: list[Entry]) -> None:
        """With the next effects: by then its client may have gone or come once more."""
        for entry in entries:
            self.again[entry] = entry.fence, subscription.generation

    def resend(self) -> None:
        """Send again what resumed clients did not list, or first have its body read."""
        again, self.again = self.again, {}
        for entry, grant in again.items():
            if not self._is_out(entry, grant):
                continue
            if entry.message is None:
                self._resend[entry] = grant
                self._window.bodies.want(entry)
            else:
                self._deliver_again(entry)

    @staticmethod
    def _is_out(entry: Entry, grant: Grant | None) -> bool:
        """It is still the same holder's, who has neither gone nor come since."""
        holder = entry.holder
        return (
            holder is not None
            and (entry.fence, holder.generation) == grant
            and entry.state in IN_FLIGHT
        )

    def _deliver_again(self, entry: Entry) -> None:
        """Under the same receipt."""
        assert entry.holder is not None
        runs = make_runs([entry], entry.deadline)
        self._effects.append(Deliver(entry.holder, runs, again=True))

    def fetched(self, entry: Entry) -> None:
        """A body was read again: perhaps for a resuming client that still waits for it."""
        grant = self._resend.pop(entry, None)
        if self._is_out(entry, grant) and entry.message is not None:
            self._deliver_again(entry)

    def unsubscribe(self, subscription: Subscription, now: int, wall: int) -> None:
        """It gets nothing more; what it has leased stays its own until settled or expired."""
        subscription.closed = True
        reserved = [e for e in subscription.held.values() if e.state is State.RESERVED]
        self._release(subscription, reserved)
        for entry in reserved:
            self._verdicts.give_back(entry, now, wall)
        if subscription.brief:
            self._rest(subscription, now, wall)

    def _rest(self, subscription: Subscription, now: int, wall: int) -> None:
        """What a request has is settled or lost: its subscription ends with the last of it."""
        if subscription.closed and not subscription.held:
            self.end(subscription, True, now, wall)

    def end(self, subscription: Subscription, graceful: bool, now: int, wall: int) -> None:
        """Its session ended: everything it holds goes back."""
        held = list(subscription.held.values())
        subscription.closed = True
        self._release(subscription, held)
        for entry in held:
            if graceful:
                self._verdicts.give_back(entry, now, wall)
            elif entry.state is State.LEASED:
                self._verdicts.fail(entry, "connection lost", now, wall)
            elif subscription.broken:
                self._verdicts.break_off(entry, now, wall)
            else:
                self._verdicts.give_back(entry, now, wall)
        if self.subscriptions.pop(subscription.prefix, None) is not None:
            self.places.give_back(subscription.claims)
            if subscription.generation == ANYBODY and subscription.settled:
                self.settled.keep(self._name, subscription.prefix, subscription.settled, now)
        self.hunger.forget(subscription)
        self.timers.forget(subscription)

    # Granting

    def pump(self, now: int, wall: int) -> None:
        """Grant what is ready as far as credit goes; one delivery per subscription."""
        fair, order = self._fair, self._window.order
        deliveries: dict[Subscription, list[Run]] = {}
        granted = False
        if self.idle.promised:
            for thief, promised in self.idle.kept(wall).items():
                self._give(thief, promised, deliveries, now)
        subscription = fair.best()
        while subscription is not None:
            ready = 0
            top: Lane | None = None
            for lane in order:
                if lane.fresh or lane.again:
                    ready += len(lane.fresh) + len(lane.again)
                    top = top or lane
            if top is None:
                break
            share = -(-ready // len(fair.takers))
            count = min(share, subscription.free(self._bounds))
            taken, expired = self._window.expiry.take(top, count, wall)
            for entry in expired:
                self._verdicts.expire(entry, now, wall)
            if taken:
                self._give(subscription, taken, deliveries, now)
                granted = True
            subscription = fair.best()
        for receiver, runs in deliveries.items():
            self._effects.append(Deliver(receiver, runs))
        self.idle.note(subscription, granted, now)
        if self.hunger.waiting or self.hunger.fed:
            scarce = subscription is None
            self.hunger.speak(sum(lane.ready for lane in order) if scarce else 0)

    def pause(self) -> None:
        """Nothing is granted for now: nobody is idle, and nobody is waited for."""
        self.idle.since = None
        self.hunger.speak(0)

    def _give(
        self, subscription: Subscription, entries: list[Entry],
        deliveries: dict[Subscription, list[Run]], now: int,
    ) -> None:  # fmt: skip
        if subscription.ack_none:
            self._take(subscription, entries, now)
            return
        runs = self._grant(subscription, entries, now)
        deliveries.setdefault(subscription, []).extend(runs)
        if self._window.bodies.tight:
            self._window.bodies.thin_all(entries)

    def _grant(self, subscription: Subscription, entries: list[Entry], now: int) -> list[Run]:
        started = not subscription.explicit
        duration = subscription.lease_ms if started else self._verdicts.config.reserve_ms
        deadline = now + duration
        base = self._epoch << FENCE_BITS
        held, n = subscription.held, subscription.next_n
        past = 0
        for entry in entries:
            fence = entry.fence
            past |= entry.attempts | entry.deliveries | fence
            entry.fence = (fence if fence > base else base) + 1
            entry.holder = subscription
            entry.n = n
            entry.deadline = deadline
            entry.attempts += started
            held[n] = entry
            n += 1
        subscription.next_n = n
        if self._meter is not None:
            self._meter.delivered(entries, not past, now)
            if started:
                self._meter.started(len(entries))
        self._life.move(entries, Event.LEASE if started else Event.RESERVE, now)
        self._fair.served(subscription)
        if subscription.shared:
            self.hunger.served(subscription)
        if subscription.brief:
            self.hunger.ask(subscription)
        self.timers.watch(subscription, deadline)
        self._offer(subscription)
        return (make_runs if past else make_fresh_runs)(entries, deadline)

    def _take(self, subscription: Subscription, entries: list[Entry], now: int) -> None:
        """For `ack: "none"`: settle first, deliver then."""
        for n, entry in enumerate(entries):
            entry.n = n  # no receipt, but a place in its run
        subscription.taking += len(entries)
        if self._meter is not None:
            self._meter.delivered(entries, not entries[0].attempts, now)
        self._life.move(entries, Event.TAKE, now)
        self._log.take(subscription, entries)
        self._fair.served(subscription)
        self._offer(subscription)

    def taken(self, subscription: Subscription, entries: list[Entry]) -> None:
        """An `ack: "none"` settlement is durable: now the messages may leave."""
        subscription.taking -= len(entries)
        self._effects.append(Deliver(subscription, make_runs(entries, 0)))
        self._offer(subscription)

    def _offer(self, subscription: Subscription) -> None:
        free = subscription.free(self._bounds)
        self._fair.offer(subscription, free)
        if subscription.shared:
            self.hunger.offered(subscription, free)

    # What consumers say

    def settle(
        self, subscription: Subscription, generation: int, act: Act,
        receipts: Iterable[ReceiptRun], ticket: SettleTicket, now: int, wall: int,
    ) -> None:  # fmt: skip
        """`generation` is that of the holder's attach or resume: an older holder has no say."""
        if act.verb == "ack":
            if entries := self._give_up(subscription, generation, receipts, ticket, True):
                self._ack(subscription, entries, now)
        elif act.verb == "nack":
            entries = self._give_up(subscription, generation, receipts, ticket, act.dead)
            self._nack(subscription, entries, act, now, wall)
        elif entries := self._find(subscription, generation, receipts, ticket):
            if act.verb == "start":
                self._start(subscription, entries, now)
            else:
                self._prolong(subscription, entries, now + act.lease_ms)
        if subscription.brief:
            self._rest(subscription, now, wall)

    def settle_lost(
        self, prefix: str, receipts: Iterable[ReceiptRun], ticket: SettleTicket, now: int
    ) -> None:
        """Receipts that no subscription has: those of a request that is over may be repeats."""
        settled = self.settled.of(self._name, prefix, now)
        for _, low, high in receipts:
            self._report(prefix, settled, range(low, high + 1), ticket)

    def _start(self, subscription: Subscription, entries: list[Entry], now: int) -> None:
        reserved = [entry for entry in entries if entry.state is State.RESERVED]
        if not reserved:
            return
        subscription.lazy = False
        for entry in reserved:
            entry.attempts += 1
        if self._meter is not None:
            self._meter.started(len(reserved))
        self._life.move(reserved, Event.START, now)
        self._prolong(subscription, reserved, now + subscription.lease_ms)

    def _prolong(self, subscription: Subscription, entries: list[Entry], deadline: int) -> None:
        for entry in entries:
            entry.deadline = deadline
        self.timers.watch(subscription, deadline)
        if subscription.away_until is not None:  # adopted: it waits for its last lease
            subscription.away_until = max(subscription.away_until, deadline)
        if self._cached:
            self._effects.append(Remember(subscription, make_runs(entries, deadline)))

    def adopted(self, subscription: Subscription, entry: Entry) -> None:
        """A lease outlived its owner; from now on this one vouches for it."""
        assert subscription.adopt_until is not None
        self._prolong(subscription, [entry], entry.deadline)
        self.timers.watch(subscription, subscription.adopt_until)

    def _ack(self, subscription: Subscription, entries: list[Entry], now: int) -> None:
        subscription.failures = 0
        if self._meter is not None:
            self._meter.acked(entries, now)
        if subscription.explicit:  # some may not be started
            self._life.move_mixed(entries, Event.ACK, now)
        else:
            self._life.move(entries, Event.ACK, now)
        # What a key blocks waits for the ack to be durable.
        self._log.ack(entries, hurried=bool(self._window.keys.known))
        self._offer(subscription)

    def _nack(
        self, subscription: Subscription, entries: list[Entry], act: Act, now: int, wall: int
    ) -> None:
        failed = 0
        for entry in entries:
            if act.dead:
                self._verdicts.reject(entry, act.error, now, wall)
            else:
                failed += act.delay_ms is None and entry.state is State.LEASED
                self._verdicts.nack(entry, act.delay_ms, act.error, now, wall)
        self._penalize(subscription, failed, now)

    def _find(
        self, subscription: Subscription, generation: int, receipts: Iterable[ReceiptRun],
        ticket: SettleTicket,
    ) -> list[Entry]:  # fmt: skip
        """What these receipts stand for, still held."""
        found, _, missing = self._look(subscription, generation, receipts, ticket, False)
        if missing:
            self._report(subscription.prefix, subscription.settled, missing, ticket)
        return list(dict.fromkeys(found))  # somebody may list a receipt twice

    def _look(
        self, subscription: Subscription, generation: int, receipts: Iterable[ReceiptRun],
        ticket: SettleTicket, take: bool,
    ) -> tuple[list[Entry], list[ReceiptRun], list[int]]:  # fmt: skip
        """What is held of these receipts, which those are, and the numbers of those that are not.

        `take`: no longer held after this.
        """
        found: list[Entry] = []
        runs: list[ReceiptRun] = []
        missing: list[int] = []
        look = subscription.held.pop if take else subscription.held.get
        for prefix, low, high in receipts:
            if prefix != subscription.prefix or generation != subscription.generation:
                ticket.lost.append((prefix, low, high))
                continue
            before, numbers = len(found), range(low, high + 1)
            found += filter(None, map(look, numbers, repeat(None)))
            if len(found) - before == len(numbers):  # nearly always
                if runs and runs[-1][2] == low - 1:
                    low = runs.pop()[1]
                runs.append((prefix, low, high))
            else:
                held = [entry.n for entry in found[before:]]
                runs += runs_of_numbers(prefix, held)
                missing += sorted(set(numbers).difference(held))
        return found, runs, missing

    def _give_up(
        self, subscription: Subscription, generation: int, receipts: Iterable[ReceiptRun],
        ticket: SettleTicket, settles: bool,
    ) -> list[Entry]:  # fmt: skip
        """What these receipts stand for, for good. `settles`: a repeat will be a duplicate."""
        found, runs, missing = self._look(subscription, generation, receipts, ticket, True)
        if found:
            subscription.lazy = False
            if settles:
                loose = generation == ANYBODY and not subscription.brief
                for _, low, high in runs:
                    subscription.remember(low, high, self._bounds, loose=loose)
            if self._cached:
                self._effects.append(Forget(runs))
        if missing:
            self._report(subscription.prefix, subscription.settled, missing, ticket)
        return found

    @staticmethod
    def _report(
        prefix: str, settled: Numbers, missing: Sequence[int], ticket: SettleTicket
    ) -> None:
        ticket.duplicate += runs_of_numbers(prefix, [n for n in missing if n in settled])
        ticket.lost += runs_of_numbers(prefix, [n for n in missing if n not in settled])

    # What time does

    def tick(self, now: int, wall: int) -> None:
        """Look at the subscriptions of which something may have run out."""
        for subscription in self.timers.due(now):
            if subscription.away_until is not None and subscription.away_until <= now:
                self.end(subscription, False, now, wall)
                continue
            if subscription.pardon(now) and subscription.shared:
                self.hunger.pardoned(subscription)
            late = subscription.late(now)
            if late:
                self._expire(subscription, late, now, wall)
            self._offer(subscription)
            again = subscription.next_check()
            if again is not None:
                self.timers.watch(subscription, again)
            if subscription.brief:
                self._rest(subscription, now, wall)
        self.idle.steal(now, wall)

    def _expire(self, subscription: Subscription, late: list[Entry], now: int, wall: int) -> None:
        self._lose(subscription, late)
        failed = 0
        for entry in late:
            if entry.state is State.LEASED:
                failed += 1
                self._verdicts.fail(entry, "lease expired", now, wall)
            else:
                subscription.lazy = True
                self._verdicts.give_back(entry, now, wall)
        self._penalize(subscription, failed, now)

    def take_back(self, stolen: list[Entry], now: int, wall: int) -> None:
        """Take reservations of one subscription back, for an idle one."""
        holder = stolen[0].holder
        assert holder is not None
        holder.lazy = True
        self._lose(holder, stolen)
        for entry in stolen:
            self._verdicts.give_back(entry, now, wall)

    def _lose(self, subscription: Subscription, entries: list[Entry]) -> None:
        """Tell a holder that these are no longer its own."""
        self._effects.append(Lost(subscription, receipts_of(subscription.prefix, entries)))
        self._release(subscription, entries)

    def _release(self, subscription: Subscription, entries: list[Entry]) -> None:
        for entry in entries:
            del subscription.held[entry.n]
        if entries and self._cached:
            self._effects.append(Forget(receipts_of(subscription.prefix, entries)))
        self._offer(subscription)

    def _penalize(self, subscription: Subscription, permits: int, now: int) -> None:
        """Permits of deliveries that failed come back after the consumer's own backoff."""
        if permits:
            subscription.failures += 1
            config = self._verdicts.config
            until = now + self._verdicts.jitter(
                subscription.failures,
                config.consumer_backoff_base_ms,
                config.consumer_backoff_max_ms,
            )
            if until > now:
                subscription.penalize(until, permits)
                self.timers.watch(subscription, until)
        self._offer(subscription)
