"""Bugs that the simulator once found, planted anew where no other planted bug is the same.

The worlds that a seed stands for change with the simulator; a bug stays what it was. So none is
kept as a seed that must pass, but as the undoing of its fix, which must be found again. Where that
takes too many worlds, a test of its own has it: what comes in behind a redrive or a purge that is
not durable (core/test_redriving.py, core/test_restore.py), a publish that is refused in part
(core/test_journal.py), what is sent again after a resume (test_feed.py), a row that is not read
again after a claim (test_two_servers.py), and delays by another node's clock (test_serving.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pushlane_dispatcher.core import recovered, window
from pushlane_dispatcher.core.consumers import Consumers
from pushlane_dispatcher.core.departures import Departures
from pushlane_dispatcher.core.effects import (
    Confirm,
    Done,
    Page,
    SettleTicket,
)
from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.life import State
from pushlane_dispatcher.core.notes import Notes
from pushlane_dispatcher.core.shard import Shard
from pushlane_dispatcher.core.subscription import Subscription
from pushlane_dispatcher.shard.shares import ALWAYS, FAR, Range, Shares
from pushlane_storage import seal
from pushlane_storage.bucket import Bucket
from pushlane_storage.cassandra.schedule import Schedule
from pushlane_storage.message import Message
from pushlane_storage.note import Note
from pushlane_storage.seal import Seals, ShardRows
from pushlane_storage.segment import Segment
from pushlane_storage.seq import counter_of
from tests.powerloss.witness import Witness
from tests.simulation.mutants import Planter
from tests.simulation.replicated.witness import ProcessWitness

plant, plant_replicated = Planter("memory"), Planter("cassandra")

Patches = list[tuple[Any, str, Any]]

FOUND = {
    "a permit that was taken away rested in a shard that had nothing for it, for ever":
        "a_permit_that_nobody_needs_stays_where_it_is",
    "a hot key kept everything else out of the window":
        "a_hot_key_fills_the_window",
    "a producer's old numbers were stored again when their buckets had been dropped":
        "numbers_dropped_with_their_bucket",
    "a number that its bucket took along was stored again by the next owner but one":
        "what_the_last_note_kept_is_not_in_the_next",
    "a queue of several shards above its lowered limit took what others had acked":
        "a_queue_above_its_limit_lets_shards_fill_up_again",
    "a page beyond a seal was cut from its wrong end":
        "a_page_beyond_a_seal_is_cut_from_its_wrong_end",
    "receipt numbers were reused after a takeover":
        "receipts_reused_after_a_takeover",
    "a lease from before the last owner was honoured":
        "any_cached_lease_is_honoured",
    "a leaver whose body came early went before its row was durable":
        "a_leaver_whose_body_comes_early_goes_before_its_row_is_durable",
    "a message being settled for delivery lost its body to paging":
        "a_message_being_settled_for_delivery_loses_its_body",
    "an extend of an ack under way was answered as a duplicate before the ack was durable":
        "an_extend_of_an_ack_under_way_is_a_duplicate_at_once",
    "a drained bucket that was dropped hid those behind it from recovery":
        "a_bucket_that_was_dropped_hides_those_behind_it",
    "a delayed message stood for ever: its segment was stored, its schedule entry was not":
        "a_delayed_message_is_stored_without_its_schedule_entry",
    "who was paused while a queue was deleted answered repeats from memory when it was back":
        "a_repeat_is_answered_by_whoever_remembers_it",
    "a share of a credit was raised beside one that had not been given back":
        "a_share_is_raised_beside_one_that_was_not_given_back",
    "a shard of a session that had moved sent again what its credit was used for elsewhere":
        "what_comes_again_needs_no_permit",
    "grants that no client had heard of counted as its own when their shard ended":
        "what_is_on_its_way_counts_as_what_the_client_has",
    "the witness told of a segment behind a gap, which never counted":
        "the_witness_tells_of_what_is_stored_behind_a_gap",
}  # fmt: skip
"""What it found, and the planted bug that is the same: here, or among the others."""

PIECES, COUNT_STORED = window._pieces, seal.count_stored


# The core


@plant("bounds", seed=886, among=lambda world: world.shards > 1 and world.changing_limits)
def a_queue_above_its_limit_lets_shards_fill_up_again() -> Patches:
    """What others have acked meanwhile makes room for nobody: the queue is still too full."""
    deal = Shares._deal

    def once(self: Shares, need: Any) -> None:
        deal(self, need)
        self._ranges = [
            Range(0, runner.use.messages, FAR) if range is ALWAYS else range
            for range, runner in zip(self._ranges, self._runners, strict=True)
        ]

    return [(Shares, "_deal", once)]


@plant("phantom", "lost", "dedup", "audit", seed=13)
def a_page_beyond_a_seal_is_cut_from_its_wrong_end() -> Patches:
    """So much of a segment is taken as the seal is before its begin: all but its last ones."""

    def wrong(
        page: Page, segments: Iterable[Segment], start: int, last: int
    ) -> Iterator[tuple[int, int, list[Message] | None]]:
        found = list(segments)
        yield from PIECES(page, found, start, last)
        for segment in found:
            if segment.first > page.last and (cut := segment.messages[: last - segment.first + 1]):
                yield segment.first, segment.first + len(cut) - 1, cut

    return [(window, "_pieces", wrong)]


@plant("dedup", "unacked_unknown", "phantom", seed=257)
def what_the_last_note_kept_is_not_in_the_next() -> Patches:
    """A number that its bucket took along is known to the next owner, but not to the one after."""
    restore = Notes.restore

    def forgetful(self: Notes, note: Note, now: int, wall: int) -> None:
        restore(self, note, now, wall)
        self._kept.clear()

    return [(Notes, "restore", forgetful)]


@plant("dead_cause", "transfer", seed=54)
def a_leaver_whose_body_comes_early_goes_before_its_row_is_durable() -> Patches:
    """It goes once more when that is."""
    fetched, decided = Departures.fetched, Departures.decided

    def hasty(self: Departures, entries: Sequence[Entry]) -> set[Entry]:
        mine = fetched(self, entries)
        for entry in entries:
            if entry.state is State.LEAVING and entry.message is not None and entry not in mine:
                decided(self, entry, 0)
        return mine

    def once(self: Departures, entry: Entry, now: int) -> None:
        line = self.lines.get(entry.to)
        if line is None or entry not in line.waiting:
            decided(self, entry, now)

    return [(Departures, "fetched", hasty), (Departures, "decided", once)]


@plant("exception", seed=21)
def a_message_being_settled_for_delivery_loses_its_body() -> Patches:
    take = Consumers._take

    def careless(
        self: Consumers, subscription: Subscription, entries: list[Entry], now: int
    ) -> None:
        take(self, subscription, entries, now)
        if self._window.bodies.tight:
            self._window.bodies.thin_all(entries)

    return [(Consumers, "_take", careless)]


@plant("confirmed_settle_lost", "grant_after_ack", seed=377, among=lambda world: world.late)
def an_extend_of_an_ack_under_way_is_a_duplicate_at_once() -> Patches:
    def hasty(self: Shard, ticket: SettleTicket, effect: Confirm | Done) -> None:
        self._effects.append(effect)

    return [(Shard, "_confirm", hasty)]


@plant("lost", "ack_before_durable", "dedup", seed=60)
def a_bucket_that_was_dropped_hides_those_behind_it() -> Patches:
    """A gap between two buckets of an epoch is taken for one in what is stored."""

    def gapless(
        rows: ShardRows, seals: Seals, buckets: Iterable[Bucket]
    ) -> Iterator[tuple[Bucket, int]]:
        ends: dict[tuple[int, int], int] = {}
        for bucket, count in COUNT_STORED(rows, seals, buckets):
            place, first = bucket.key[:2], counter_of(bucket.first)
            if ends.get(place, 0) == first:
                ends[place] = first + count
                yield bucket, count

    return [(seal, "count_stored", gapless), (recovered, "count_stored", gapless)]


# Several processes


@plant_replicated("stalled", "drain", seed=1)
def a_delayed_message_is_stored_without_its_schedule_entry() -> Patches:
    """It stands for ever. Once that happened where the write was cut off; here it always does."""

    def nothing(*_: object) -> tuple[list[Any], list[Any]]:
        return [], []

    return [(Schedule, "writes", nothing)]


# The simulator itself: what was wrong in it raised a false alarm


@plant_replicated("key_order", "transfer", seed=1185)
def the_witness_tells_of_what_is_stored_behind_a_gap() -> Patches:
    return [(ProcessWitness, "_appended", Witness._appended)]


# Whoever was succeeded


@plant("stale_settle", "credit", "lost", seed=98, among=lambda world: world.late)
def an_older_holder_has_a_say() -> Patches:
    """What it said before its session resumed elsewhere counts when it comes after that."""
    settle = Consumers.settle

    def trusting(self: Consumers, subscription: Subscription, generation: int, *rest: Any) -> None:
        settle(self, subscription, subscription.generation, *rest)

    return [(Consumers, "settle", trusting)]
