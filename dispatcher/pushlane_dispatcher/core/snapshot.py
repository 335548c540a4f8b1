"""A snapshot: what a shard's owner alone knows of its consumers, for the next owner.

Messages and their ends are stored; who holds what, and for how long still, is not. An owner that
gives a shard up in good order hands this over, so consumers go on under the receipts that they
have. The next owner takes it from its very predecessor only: whoever served in between may have
granted the same messages again.

Times are durations: owners have clocks of their own. What a snapshot leaves out is as after a
crash without a lease cache: delivered again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pushlane_dispatcher.core.effects import Run
from pushlane_dispatcher.core.runs import held_runs
from pushlane_dispatcher.core.subscription import ANYBODY, Subscription
from pushlane_leases.interface import LeaseRun

if TYPE_CHECKING:
    from pushlane_dispatcher.core.shard import Shard

RECEIPT_EPOCH_BITS = 32
"""A subscription that outlives its owner goes on with receipt numbers from here times the epoch.

Nobody knows which numbers the old owner used last; a number that is used twice would let a stale
receipt settle another message.
"""


class HeldRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Leases or reservations that are alike and stand in a row (see `LeaseRun`)."""

    lane: int
    seq: int
    n: int
    count: int
    fence: int
    attempts: int
    deliveries: int
    started: bool
    left_ms: int


class Holder(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscription. A later version adds fields at the end."""

    prefix: str
    session: str
    term: int
    lease_ms: int
    failures: int
    away_ms: int | None
    """Its session is not there, and may resume for so long."""
    broken: bool
    """… because its client's connection broke."""
    settled: list[tuple[int, int]]
    """Receipt numbers of which a repeat is a duplicate."""
    penalties: list[tuple[int, int]]
    """Permits in backoff: for how long still, and how many."""
    runs: list[HeldRun]
    loose: list[tuple[int, int]] = []
    """What of `settled` somebody else settled, while its session was not back."""


class Snapshot(NamedTuple):
    epoch: int
    """The owner's that took it."""
    since: int
    """On our own wall clock: when its durations began."""
    holders: list[Holder]


# The owner that goes


def take_snapshot(shard: Shard, now: int) -> Snapshot:
    """Of a shard that does nothing any more."""
    holders = [
        _holder(subscription, now)
        for subscription in shard.consumers.subscriptions.values()
        if subscription.held or subscription.settled or subscription.penalties
    ]
    return Snapshot(shard.epoch, now + shard.offset, holders)


def _holder(subscription: Subscription, now: int) -> Holder:
    away = subscription.away_until
    if subscription.adopt_until is not None:  # it has not come since the last move: it still may
        away = None
    return Holder(
        subscription.prefix,
        subscription.session,
        subscription.term,
        subscription.lease_ms,
        subscription.failures,
        None if away is None else max(0, away - now),
        subscription.broken,
        list(subscription.settled),
        [(max(0, until - now), permits) for until, permits in subscription.penalties],
        [_held_run(run, now) for run in held_runs(subscription.held.values())],
        list(subscription.loose),
    )


def _held_run(run: Run, now: int) -> HeldRun:
    return HeldRun(
        run.lane, run.seq, run.n, len(run.messages), run.fence, run.attempt - 1, run.deliveries,
        run.started, max(0, run.deadline - now),
    )  # fmt: skip


# The owner that comes


def lease_runs(snapshot: Snapshot) -> Iterator[LeaseRun]:
    """What is out, as the lease cache would say it."""
    for holder in snapshot.holders:
        for run in holder.runs:
            yield LeaseRun(
                holder.prefix, run.n, run.count, run.lane, run.seq, run.fence, holder.session,
                run.attempts, run.deliveries, run.started, holder.lease_ms,
                snapshot.since + run.left_ms, snapshot.epoch,
            )  # fmt: skip


def outlive(
    shard: Shard, prefix: str, session: str, lease_ms: int, now: int
) -> Subscription | None:
    """A subscription of the last owner, until its session comes and says more; None: there is no
    place for it, and that can't keep a shard from opening."""
    consumers = shard.consumers
    if consumers.places.is_full:
        return None
    found = Subscription(prefix, session, 1, lease_ms, explicit=True, ack_none=False)
    found.generation = ANYBODY
    found.closed = found.brief
    shard.attach(found)
    shard.credit(found, 0)
    found.next_n = (shard.epoch << RECEIPT_EPOCH_BITS) + 1
    found.away_until = now
    found.adopt_until = now + shard.bounds.adopt_ms
    return found


def restore_holder(shard: Shard, holder: Holder, since: int, now: int) -> None:
    """What the last owner knew of a subscription, beside its leases: these are there already."""
    found = shard.consumers.subscriptions.get(holder.prefix)
    if found is None:
        found = outlive(shard, holder.prefix, holder.session, holder.lease_ms, now)
    if found is None:
        return
    passed = max(0, now + shard.offset - since)
    found.term, found.failures, found.broken = holder.term, holder.failures, holder.broken
    for low, high in holder.settled:
        found.remember(low, high, shard.bounds)
    for low, high in holder.loose:
        found.remember(low, high, shard.bounds, loose=True)
    for left_ms, permits in holder.penalties:
        found.penalize(now + max(0, left_ms - passed), permits)
    if holder.away_ms is None:
        assert found.away_until is not None
        assert found.adopt_until is not None
        found.away_until = max(found.away_until, found.adopt_until)
    else:  # it may have come back to its gateway while there was no owner who could be told
        found.adopt_until = None
        found.away_until = now + max(holder.away_ms - passed, shard.bounds.adopt_ms)
    check_at = found.next_check()
    assert check_at is not None
    shard.consumers.timers.watch(found, check_at)
