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
    assert len(bodies) == shard.window.resident, "resident miscounted"
    assert sum(entry.size for entry in bodies) == shard.window.resident_bytes
    unsettled = sum(
        bucket.count - bucket.state.settled.count
        for lane in shard.window.order
        for bucket in lane.buckets
    )
    assert unsettled == shard.overflow.messages, "stored miscounted"
    held = [entry for sub in shard.consumers.subscriptions.values() for entry in sub.held.values()]
    flying = [entry for entry in entries if entry.state in IN_FLIGHT]
    assert set(map(id, held)) == set(map(id, flying)), "held by nobody, or by two"
    hungry = shard.consumers._fair.hungry
    for sub in shard.consumers.subscriptions.values():
        for n, entry in sub.held.items():
            assert entry.holder is sub
            assert entry.n == n
        assert (sub.free(shard.bounds) > 0) == (sub in hungry), "a permit is lost or invented"
        permits = sub.free(shard.bounds) + len(sub.held) + sub.waiting
        if not (sub.ack_none or sub.closed or sub.away_until is not None):
            assert permits == sub.credit, "permits don't add up to the credit"
