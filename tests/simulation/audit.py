"""The inner audit: what a shard counts must be what it has. A counter that drifts is a wedge."""

from __future__ import annotations

from pushlane_dispatcher.core.life import IN_FLIGHT, State
from pushlane_dispatcher.core.shard import Shard


def audit(shard: Shard) -> None:
    """Raise AssertionError where memory contradicts itself."""
    entries = [entry for lane in shard.window.order for entry in lane.entries.values()]
    counts = [0] * len(State)
    for entry in entries:
        counts[entry.state] += 1
    assert counts[: State.ACKED] == shard.life.counts[: State.ACKED], "states miscounted"
    bodies = [entry for entry in entries if entry.message is not None]
    assert len(bodies) == shard.window.bodies.resident, "resident miscounted"
    assert sum(entry.size for entry in bodies) == shard.window.bodies.resident_bytes
    unsettled = sum(
        bucket.count - bucket.state.settled.count
        for lane in shard.window.order
        for bucket in lane.buckets
    )
    assert unsettled == shard.overflow.messages, "stored miscounted"
    held = [entry for sub in shard.consumers.subscriptions.values() for entry in sub.held.values()]
    flying = [entry for entry in entries if entry.state in IN_FLIGHT]
    assert set(map(id, held)) == set(map(id, flying)), "held by nobody, or by two"
    hungry = shard.consumers._fair.takers
    for sub in shard.consumers.subscriptions.values():
        for n, entry in sub.held.items():
            assert entry.holder is sub
            assert entry.n == n
        assert (sub.free(shard.bounds) > 0) == (sub in hungry), "a permit is lost or invented"
        permits = sub.free(shard.bounds) + len(sub.held) + sub.waiting
        if not (sub.ack_none or sub.closed or sub.away_until is not None):
            assert permits == sub.credit, "permits don't add up to the credit"


def audit_window(shard: Shard) -> None:
    """Nothing that waits holds up others: what can come in does, higher lanes first.

    That is seen to whenever a shard's effects are taken.
    """
    window, bounds = shard.window, shard.bounds
    buckets = [bucket for lane in window.order for bucket in lane.buckets]
    assert window.delays.far == sum(bucket.far for bucket in buckets), "far miscounted"
    assert window.keys.passed == sum(bucket.passed for bucket in buckets), "passed miscounted"
    overflow = shard.overflow
    if shard.config.overflow != "reject" and overflow.allotted and not overflow.owing:
        # What was about to leave counts again when its queue takes nothing, or when it is back.
        most = max(overflow.limit, overflow.held)
        if shard.config.overflow == "dead_letter":
            most += bounds.leaving
        assert overflow.used <= most, "over its share"
    for place, lane in enumerate(window.order):
        waits = lane.unsettled_from(lane.cursor) if lane.backlogged else None
        if waits is None or lane.paging or lane.bare or window.purging or window.overdone:
            continue
        if lane.ready < 2 * bounds.page_messages:
            assert window.bodies.full, "a backlog is not read although there is room"
            below = sum(lower.ready for lower in window.order[place + 1 :])
            assert not below, "a lower lane has the room that a higher one needs"
