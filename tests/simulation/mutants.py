"""Planted bugs: each breaks the core on purpose, and a named rule must catch it.

They live here and nowhere in the product: a mutant patches a method for the time of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.core import consumers, opening, recovered, snapshot
from pushlane_dispatcher.core.bodies import Bodies
from pushlane_dispatcher.core.consumers import Consumers
from pushlane_dispatcher.core.dedup import Dedup
from pushlane_dispatcher.core.delays import Delays
from pushlane_dispatcher.core.departures import Departures
from pushlane_dispatcher.core.effects import Append, Deliver, Drop, Settle
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.hunger import Hunger
from pushlane_dispatcher.core.journal import Journal
from pushlane_dispatcher.core.keys import Key, Keys
from pushlane_dispatcher.core.life import Event, State
from pushlane_dispatcher.core.log import Log
from pushlane_dispatcher.core.notes import Notes
from pushlane_dispatcher.core.numbers import SOMEWHERE, Numbers, Place
from pushlane_dispatcher.core.overflow import Overflow
from pushlane_dispatcher.core.recovered import Recovered
from pushlane_dispatcher.core.runs import make_runs
from pushlane_dispatcher.core.seeking import Seeking
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.shared_credit import SharedCredit
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.core.verdicts import Verdicts
from pushlane_dispatcher.core.window import Window
from pushlane_leases.interface import LeaseRun
from pushlane_storage import seal
from pushlane_storage.bucket import Bucket
from pushlane_storage.seal import Seals
from pushlane_storage.settlement import BucketState, Checkpoint
from tests.simulation.node import Runner
from tests.simulation.profile import Profile
from tests.simulation.tables import StoreKind


class Mutant(NamedTuple):
    name: str
    caught_by: frozenset[str]
    patches: list[tuple[Any, str, Any]]
    store: StoreKind
    """The kind of store on which it shows."""
    seed: int = 0
    """The first to try: where it showed when somebody looked."""
    among: Callable[[Profile], bool] = lambda _: True
    """The kinds of worlds that are worth a try."""


class Planter:
    """Collects the mutants that show on one kind of store."""

    def __init__(self, store: StoreKind) -> None:
        self.store = store
        self.mutants: list[Mutant] = []

    def __call__(
        self, *caught_by: str, seed: int = 0, among: Callable[[Profile], bool] = lambda _: True
    ) -> Callable[[Callable[[], list[tuple[Any, str, Any]]]], None]:
        def add(make: Callable[[], list[tuple[Any, str, Any]]]) -> None:
            rules = frozenset(caught_by)
            self.mutants.append(Mutant(make.__name__, rules, make(), self.store, seed, among))

        return add


plant = Planter("memory")

PLACES = opening._places


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    with ExitStack() as stack:
        for target, name, new in mutant.patches:
            stack.enter_context(patch.object(target, name, new))
        yield


# Publishing


@plant("ack_before_durable", "lost", "phantom")
def acknowledged_before_durable() -> list[tuple[Any, str, Any]]:
    begin = Journal._begin

    def hasty(self: Journal, lane: Any, now: int, wall: int) -> Append:
        append = begin(self, lane, now, wall)
        tickets, append.tickets = append.tickets, []
        for ticket in tickets:
            self.release(ticket)
        return append

    return [(Journal, "_begin", hasty)]


@plant("ack_before_durable", "lost", "dedup", "phantom", seed=1)
def acknowledged_out_of_order() -> list[tuple[Any, str, Any]]:
    def unordered(self: Journal, append: Append) -> list[Append]:
        append.lane.flights.remove(append)
        return [self._count(append)]

    return [(Journal, "stored", unordered)]


@plant("key_order", "audit", "exception", "two_leases", seed=1)
def delivered_out_of_order() -> list[tuple[Any, str, Any]]:
    appended = Shard.appended

    def eager(self: Shard, append: Append, now: int) -> None:
        lane = append.lane
        if lane.flights[0] is not append and not lane.paging:
            segment, wall = append.segment, now + self.offset
            self.window.admission.mixed(
                lane, segment.first, segment.messages, append.bucket, False, now, wall
            )
        appended(self, append, now)

    return [(Shard, "appended", eager)]


@plant("ack_before_durable", "lost", "phantom", "dedup", seed=19)
def dedup_known_before_stored() -> list[tuple[Any, str, Any]]:
    return [(Dedup, "is_stored", lambda self, place: True)]


@plant("dedup", "unacked_unknown", "phantom")
def dedup_forgotten_at_restart() -> list[tuple[Any, str, Any]]:
    return [(Dedup, "restore", lambda self, mark, lane, now, wall: None)]


@plant("dedup", "unacked_unknown", "phantom", seed=38)
def old_numbers_are_new_after_a_restart() -> list[tuple[Any, str, Any]]:
    """Of a producer only the remembered numbers are known, not that lower ones were used."""
    original = recovered.restore

    def forgetful(shard: Shard, found: Any, now: int) -> None:
        original(shard, found, now)
        for numbers in shard.dedup.producers._own.values():
            numbers.floor = 0

    from pushlane_dispatcher.core import shard as shard_module

    return [(shard_module, "restore", forgetful)]


@plant("dedup", "unacked_unknown", "phantom")
def marks_dropped_with_their_bucket() -> list[tuple[Any, str, Any]]:
    def at_once(self: Shard, drained: Bucket, now: int) -> None:
        self._effects.append(Drop(drained.key))

    return [(Shard, "drop_later", at_once)]


@plant("dedup", "unacked_unknown", "phantom", seed=17)
def numbers_dropped_with_their_bucket() -> list[tuple[Any, str, Any]]:
    return [(Notes, "concerns", lambda self, bucket: False)]


@plant("dedup", "unacked_unknown", "phantom", seed=7)
def a_number_below_those_remembered_is_new() -> list[tuple[Any, str, Any]]:
    find = Numbers.find

    def forgetful(self: Numbers, number: int) -> Place | None:
        place = find(self, number)
        return None if place is SOMEWHERE and number <= self.floor else place

    return [(Numbers, "find", forgetful)]


@plant("audit", "phantom", "exception", "lost", "ack_before_durable", seed=1)
def unknown_commit_taken_for_a_failure() -> list[tuple[Any, str, Any]]:
    unknown = Runner._unknown

    def wrong(self: Runner, effect: Any) -> None:
        if isinstance(effect, Append) and self.shard.journal.refused(effect):
            self.perform(effect)
            self.node.flying.remove((self, effect))
            self.turn()
        else:
            unknown(self, effect)

    return [(Runner, "_unknown", wrong)]


# Leasing


@plant("two_leases")
def regrant_before_the_void_is_durable() -> list[tuple[Any, str, Any]]:
    retry = Verdicts._retry

    def hasty(self: Verdicts, entry: Entry, delay_ms: int, now: int, wall: int) -> None:
        retry(self, entry, delay_ms, now, wall)
        if entry.state is State.VOIDING:
            self._log.next.voided.remove(entry)
            self.voided(entry, now, wall)

    return [(Verdicts, "_retry", hasty)]


@plant("grant_after_ack", "two_leases", "confirmed_settle_lost", "lost", seed=21)
def settled_after_an_unacked_delivery() -> list[tuple[Any, str, Any]]:
    def deliver_first(
        self: Consumers, subscription: Subscription, entries: list[Entry], now: int
    ) -> None:
        for n, entry in enumerate(entries):
            entry.n = n
        subscription.taking += len(entries)
        self._effects.append(Deliver(subscription, make_runs(entries, 0)))
        self._life.move(entries, Event.TAKE, now)
        self._log.take(subscription, entries)
        self._fair.served(subscription)
        self._offer(subscription)

    def silent(self: Consumers, subscription: Subscription, entries: list[Entry]) -> None:
        subscription.taking -= len(entries)
        self._offer(subscription)

    return [(Consumers, "_take", deliver_first), (Consumers, "taken", silent)]


@plant("grant_after_ack", "grant_after_end", "confirmed_settle_lost", "ended_twice")
def checkpoint_forgets_a_row() -> list[tuple[Any, str, Any]]:
    checkpoint = BucketState.checkpoint

    def forgetful(self: BucketState) -> Checkpoint:
        whole = checkpoint(self)
        return Checkpoint(whole.acked[:-1], whole.gone, whole.voids, whole.leaving)

    return [(BucketState, "checkpoint", forgetful)]


@plant("stale_settle", "audit", "exception", seed=1)
def run_settles_anothers_grant() -> list[tuple[Any, str, Any]]:
    look = Consumers._look

    def trusting(
        self: Consumers, subscription: Subscription, generation: int, receipts: Any,
        ticket: Any, take: bool,
    ) -> tuple[list[Entry], list[ReceiptRun], list[int]]:  # fmt: skip
        found: list[Entry] = []
        runs: list[ReceiptRun] = []
        missing: list[int] = []
        for prefix, low, high in receipts:
            owner = self.subscriptions.get(prefix, subscription)
            current = generation if owner is subscription else owner.generation
            entries, held, numbers = look(self, owner, current, [(prefix, low, high)], ticket, take)
            found += entries
            runs += held
            missing += numbers
        return found, runs, missing

    return [(Consumers, "_look", trusting)]


@plant("stale_settle", "two_leases", "audit", "exception", seed=8)
def receipts_reused_after_a_takeover() -> list[tuple[Any, str, Any]]:
    return [(snapshot, "RECEIPT_EPOCH_BITS", 0)]


def anybodys_places(runs: Iterable[LeaseRun], found: Recovered) -> Iterator[Any]:
    """Of the leases that any owner vouched for."""
    vouched = [msgspec.structs.replace(run, owner=found.predecessor) for run in runs]
    yield from PLACES(vouched, found)


@plant("two_leases", "stale_settle", "lost", "attempts", seed=23)
def any_cached_lease_is_honoured() -> list[tuple[Any, str, Any]]:
    return [(opening, "_places", anybodys_places)]


@plant("two_leases", "stale_settle", "attempts", seed=41)
def cache_overrules_a_void() -> list[tuple[Any, str, Any]]:
    original = recovered._restore_lease

    def gullible(shard: Shard, lease: Any, now: int, wall: int) -> None:
        bucket = shard.window.lane(lease.run.lane).bucket_of(lease.seq)
        if bucket is not None:
            bucket.state.voids.pop(lease.seq, None)
        original(shard, lease, now, wall)

    return [(recovered, "_restore_lease", gullible)]


@plant("fence", "two_leases")
def fence_that_does_not_grow() -> list[tuple[Any, str, Any]]:
    grant = Consumers._grant

    def flat(self: Consumers, subscription: Subscription, entries: list[Entry], now: int) -> Any:
        runs = grant(self, subscription, entries, now)
        for run in runs:
            run.fence = (self._epoch << consumers.FENCE_BITS) + 1
        return runs

    return [(Consumers, "_grant", flat)]


@plant("credit", "audit")
def credit_is_ignored() -> list[tuple[Any, str, Any]]:
    free = Subscription.free

    def generous(self: Subscription, bounds: Any) -> int:
        found = free(self, bounds)
        return found + 1 if self.credit and not self.closed and self.away_until is None else found

    return [(Subscription, "free", generous)]


@plant("audit", "drain", seed=2)
def permit_lost_on_disconnect() -> list[tuple[Any, str, Any]]:
    resume, set_credit = Consumers.resume, Consumers.set_credit

    def forgetful(self: Consumers, subscription: Subscription, held: Any) -> Any:
        lost = resume(self, subscription, held)
        self._fair.takers.discard(subscription)
        subscription.stamp += 1
        return lost

    def quiet(self: Consumers, subscription: Subscription, credit: int) -> None:
        if credit < subscription.credit:  # else it would be asked for ever
            set_credit(self, subscription, credit)
        subscription.credit = credit

    return [(Consumers, "resume", forgetful), (Consumers, "set_credit", quiet)]


@plant("audit", seed=17)
def a_hot_key_fills_the_window() -> list[tuple[Any, str, Any]]:
    stored, page = Window.stored, Window._page

    def crowded(self: Window) -> bool:
        return self.keys.kept >= self._bounds.positions

    def hold_up(self: Window, append: Append, now: int, wall: int) -> None:
        if not crowded(self):
            stored(self, append, now, wall)

    def stop(self: Window, lane: Any) -> None:
        if not crowded(self):
            page(self, lane)

    return [(Window, "stored", hold_up), (Window, "_page", stop)]


@plant("key_order", "drain", "audit", seed=2)
def the_first_passed_message_is_forgotten() -> list[tuple[Any, str, Any]]:
    claim = Keys.claim

    def last(self: Keys, key: str, entry: Entry) -> State | None:
        state = claim(self, key, entry)
        if state is None:
            self.known[key].again = entry.seq
        return state

    return [(Keys, "claim", last)]


@plant("key_order", seed=7)
def a_key_skips_what_stands_before_the_read() -> list[tuple[Any, str, Any]]:
    claim = Seeking.claim

    def anywhere(self: Seeking, name: str, entry: Entry, start: int) -> State | None:
        return claim(self, name, entry, 0)

    return [(Seeking, "claim", anywhere)]


@plant("drain", seed=1)
def a_sought_key_is_given_up() -> list[tuple[Any, str, Any]]:
    return [(Seeking, "read", lambda self: None)]


@plant("stalled", "drain", "audit", seed=309, among=lambda world: world.quiet)
def delays_left_to_the_index_are_not_read_again() -> list[tuple[Any, str, Any]]:
    trim = Delays.trim

    def forgetful(self: Delays) -> None:
        until = self.read_until
        trim(self)
        self.read_until = until

    return [(Delays, "trim", forgetful)]


@plant("audit")
def a_higher_lane_finds_no_room() -> list[tuple[Any, str, Any]]:
    return [(Bodies, "room_for", lambda self, lane: not self.full)]


@plant("audit", seed=30)
def nothing_is_dropped_beyond_the_window() -> list[tuple[Any, str, Any]]:
    pay = Overflow.pay

    def once(self: Overflow, now: int, wall: int, count: int = 0, size: int = 0) -> None:
        pay(self, now, wall, count, size)
        self.owing = False

    return [(Overflow, "pay", once)]


@plant("drain", seed=10)
def key_lost_on_disconnect() -> list[tuple[Any, str, Any]]:
    release = Keys.release

    def forgetful(self: Keys, entry: Entry) -> Entry | None:
        return None if entry.error == "connection lost" else release(self, entry)

    return [(Keys, "release", forgetful)]


@plant("key_order", seed=73)
def key_freed_before_the_ack_is_durable() -> list[tuple[Any, str, Any]]:
    ack = Log.ack

    def hasty(self: Log, entries: list[Entry], hurried: bool) -> None:
        ack(self, entries, hurried)
        for entry in entries:
            WINDOWS[id(self)].free_key(entry, 0)

    created = Window.__init__
    log_created = Log.__init__
    WINDOWS: dict[int, Window] = {}
    latest: list[Window] = []

    def window_init(self: Window, *args: Any) -> None:
        created(self, *args)
        latest[:] = [self]

    def log_init(self: Log, *args: Any) -> None:
        log_created(self, *args)
        WINDOWS[id(self)] = latest[0]

    return [
        (Log, "ack", hasty),
        (Window, "__init__", window_init),
        (Log, "__init__", log_init),
    ]


@plant("key_order", seed=2)
def key_freed_before_a_departure_is_durable() -> list[tuple[Any, str, Any]]:
    leave = Departures.leave

    def hasty(self: Departures, entry: Entry, cause: str, to: str, now: int, wall: int) -> None:
        leave(self, entry, cause, to, now, wall)
        self._window.free_key(entry, now)

    return [(Departures, "leave", hasty)]


@plant("key_order", seed=3)
def order_taken_from_the_clock() -> list[tuple[Any, str, Any]]:
    claim = Keys.claim

    def by_time(self: Keys, key: str, entry: Entry) -> State | None:
        state = claim(self, key, entry)
        if state is State.BLOCKED:
            blocked = self.known[key].blocked
            ordered = sorted(blocked, key=lambda e: e.message.published_at if e.message else 0)
            blocked.clear()
            blocked.extend(ordered)
        return state

    return [(Keys, "claim", by_time)]


@plant("attempts", "dead_cause")
def a_reservation_that_time_or_a_thief_ended_counts() -> list[tuple[Any, str, Any]]:
    give_back = Verdicts.give_back

    def blaming(self: Verdicts, entry: Entry, now: int, wall: int) -> None:
        if entry.state is State.RESERVED:
            self.break_off(entry, now, wall)
        else:
            give_back(self, entry, now, wall)

    return [(Verdicts, "give_back", blaming)]


@plant("attempts", "dead_cause", seed=7)
def an_owner_that_died_counts_like_a_client() -> list[tuple[Any, str, Any]]:
    adopted = Consumers.adopted

    def blaming(self: Consumers, subscription: Subscription, entry: Entry) -> None:
        adopted(self, subscription, entry)
        subscription.broken = True

    return [(Consumers, "adopted", blaming)]


@plant("attempts", "dead_cause", seed=1)
def a_lease_that_expires_is_a_delivery_too() -> list[tuple[Any, str, Any]]:
    fail = Verdicts.fail

    def twice(self: Verdicts, entry: Entry, error: str, now: int, wall: int) -> None:
        entry.deliveries += 1
        fail(self, entry, error, now, wall)

    return [(Verdicts, "fail", twice)]


@plant("stalled", "drain", seed=82)
def permits_back_from_backoff_are_not_said() -> list[tuple[Any, str, Any]]:
    """A subscription over several shards stands still when all its permits were in backoff."""
    deal = SharedCredit.deal

    def stingy(self: SharedCredit, used: Any, down: Any = ()) -> list[int]:
        return deal(self, used, down) if sum(used) < self.total else [0] * len(used)

    return [
        (SharedCredit, "deal", stingy),
        (Hunger, "pardoned", lambda self, subscription: None),
    ]


@plant("stalled", "drain", seed=681, among=lambda world: world.shards > 1)
def a_permit_that_nobody_needs_stays_where_it_is() -> list[tuple[Any, str, Any]]:
    speak = Hunger.speak

    def greedy(self: Hunger, ready: int) -> None:
        self.fed.clear()
        speak(self, ready)

    return [(Hunger, "speak", greedy)]


@plant("stalled", "drain", seed=57)
def who_was_away_is_not_told_again_that_it_starves() -> list[tuple[Any, str, Any]]:
    """Its shards begin anew when it resumes, but this one thinks that it has spoken."""

    def remember(self: Hunger, subscription: Subscription) -> None:
        self.waiting.pop(subscription, None)

    return [(Hunger, "forget", remember)]


@plant("stalled", "drain", seed=7)
def a_blocked_key_blocks_all() -> list[tuple[Any, str, Any]]:
    """What is blocked is kept in memory, and at the bound nothing more comes in."""

    def keep(self: Keys, key: Key, entry: Entry) -> bool:
        key.blocked.append(entry)
        self.kept += 1
        return True

    def overdone(self: Window) -> bool:
        return self.keys.kept >= self._bounds.positions

    return [(Keys, "keep", keep), (Window, "overdone", property(overdone))]


# Ending


@plant("transfer", "lost")
def transfer_settles_before_it_appends() -> list[tuple[Any, str, Any]]:
    def hasty(self: Departures, entry: Entry, now: int) -> None:
        self._life.move((entry,), Event.MOVE, entry.since)
        entry.cause = f"dead:{entry.cause}"
        self._log.end(entry)

    return [(Departures, "decided", hasty)]


@plant("drain", seed=16)
def refused_messages_stay_on_their_way() -> list[tuple[Any, str, Any]]:
    return [(Departures, "_for_good", lambda self, entry, error, late: False)]


@plant("key_order", seed=32)
def those_behind_a_refused_transfer_pass_it() -> list[tuple[Any, str, Any]]:
    hold = Departures._hold

    def impatient(self: Departures, line: Any, error: Any, now: int) -> None:
        line.waiting.rotate(-1)
        hold(self, line, error, now)

    return [(Departures, "_hold", impatient)]


@plant("transfer")
def a_new_owner_numbers_transfers_anew() -> list[tuple[Any, str, Any]]:
    original = recovered._restore_leaving

    def anew(shard: Shard, found: Any, now: int) -> list[Entry]:
        entries = original(shard, found, now)
        for entry in entries:
            entry.number = shard.departures._next
            shard.departures._next += 1
        return entries

    return [(recovered, "_restore_leaving", anew)]


@plant("attempts", "dead_cause", seed=2)
def max_attempts_is_ignored() -> list[tuple[Any, str, Any]]:
    def endless(self: Verdicts, entry: Entry, delay_ms: int, now: int, wall: int) -> None:
        entry.holder = None
        entry.not_before = wall + delay_ms if delay_ms else 0
        self._life.move((entry,), Event.RETURN, now)
        self._log.void(entry)

    return [(Verdicts, "_retry", endless)]


@plant("attempts", "dead_cause")
def reservation_costs_an_attempt() -> list[tuple[Any, str, Any]]:
    give_back, fail = Verdicts.give_back, Verdicts.fail

    def greedy_back(self: Verdicts, entry: Entry, now: int, wall: int) -> None:
        entry.attempts += entry.state is State.RESERVED
        give_back(self, entry, now, wall)

    def greedy_fail(self: Verdicts, entry: Entry, error: str, now: int, wall: int) -> None:
        entry.attempts += entry.state is State.RESERVED
        fail(self, entry, error, now, wall)

    return [(Verdicts, "give_back", greedy_back), (Verdicts, "fail", greedy_fail)]


@plant("in_flight", "ended_twice", "confirmed_settle_lost", "audit", "lost", "exception", seed=10)
def purge_takes_what_is_in_flight() -> list[tuple[Any, str, Any]]:
    flush = Log.flush

    def greedy(self: Log, now: int, company: bool) -> None:
        for purge in self.next.purges:
            purge.spared.clear()
        flush(self, now, company)

    return [(Log, "flush", greedy)]


@plant("confirmed_settle_lost", "two_leases", "dedup", "phantom", "unacked_unknown", "key_order",
       "lost", "ended_twice", "transfer", "audit", "exception", "attempts", "stale_settle",
       "grant_after_end", "grant_after_ack", seed=8)  # fmt: skip
def seals_are_ignored() -> list[tuple[Any, str, Any]]:
    return [
        (Seals, "counters", lambda self, lane, epoch: None),
        (Seals, "flushes", lambda self, epoch: None),
    ]


@plant("confirmed_settle_lost", "lost", "ended_twice", "key_order", "two_leases", "audit",
       "grant_after_ack", "transfer", "exception", "grant_after_end")  # fmt: skip
def settlements_of_the_last_flush_are_lost() -> list[tuple[Any, str, Any]]:
    original = seal.count_flushes

    def short(*args: Any) -> dict[int, int]:
        return {owner: max(0, count - 1) for owner, count in original(*args).items()}

    return [(recovered, "count_flushes", short)]


@plant("confirmed_settle_lost", "grant_after_ack", "two_leases", "grant_after_end")
def settle_answered_before_durable() -> list[tuple[Any, str, Any]]:
    return [(Log, "wait", lambda self, ticket: False)]


@plant("audit", "drain", "exception")
def flush_that_forgets_its_entries() -> list[tuple[Any, str, Any]]:
    settled = Log.settled

    def forgetful(self: Log, settle: Settle) -> Any:
        batch = settled(self, settle)
        batch.voided = batch.voided[:-1]
        return batch

    return [(Log, "settled", forgetful)]


@plant("drain", "lost", "dead_cause", seed=15)
def wall_time_that_steps_with_the_systems_clock() -> list[tuple[Any, str, Any]]:
    """A delay of a second takes two hours, and what should live for ten minutes is gone."""
    return [(Clock, "wall", Clock.system)]
