"""What must be true of a shard after every step, whatever happened before."""

from __future__ import annotations

from collections import Counter

from pushlane_dispatcher.core.life import IN_FLIGHT, State
from pushlane_dispatcher.core.shard import Shard


def check(shard: Shard) -> None:
    check_counts(shard)
    check_bodies(shard)
    check_holders(shard)
    check_ready(shard)
    check_keys(shard)
    check_aside(shard)
    check_buckets(shard)
    check_stats(shard)


def check_counts(shard: Shard) -> None:
    """The counts by state are those of the entries in memory."""
    found = Counter(entry.state for lane in shard.window.order for entry in lane.entries.values())
    counted = {state: shard.life.counts[state] for state in State if state < State.ACKED}
    assert counted == {state: found[state] for state in counted}
    assert all(state < State.ACKED for state in found), "what ended is forgotten"


def check_bodies(shard: Shard) -> None:
    """The window counts exactly the bodies in memory."""
    bodies = [
        entry.size
        for lane in shard.window.order
        for entry in lane.entries.values()
        if entry.message is not None
    ]
    assert shard.window.bodies.resident == len(bodies)
    assert shard.window.bodies.resident_bytes == sum(bodies)


def check_holders(shard: Shard) -> None:
    """Each message in flight has one holder, who knows it by its receipt number."""
    held = {}
    for subscription in shard.consumers.subscriptions.values():
        for n, entry in subscription.held.items():
            assert entry.holder is subscription
            assert entry.n == n < subscription.next_n
            assert entry not in held, "two receipts of one message"
            held[entry] = n
    assert shard.consumers.places.taken == len(shard.consumers.subscriptions)
    flying = {
        entry
        for lane in shard.window.order
        for entry in lane.entries.values()
        if entry.state in IN_FLIGHT
    }
    assert set(held) == flying


def check_ready(shard: Shard) -> None:
    """Ready messages stand in their lane once, in order, with their bodies."""
    for lane in shard.window.order:
        fresh = [entry.seq for entry in lane.fresh]
        assert fresh == sorted(fresh)
        standing = [*lane.fresh, *(entry for _, entry in lane.again)]
        assert len(standing) == len(set(standing))
        ready = {entry for entry in lane.entries.values() if entry.state is State.READY}
        assert set(standing) <= ready
        for entry in ready - set(standing):
            assert entry.message is None, "a ready message with its body that nobody can get"
        for entry in standing:
            assert entry.message is not None
        for seq, entry in lane.entries.items():
            assert entry.seq == seq < lane.stored


def check_keys(shard: Shard) -> None:
    """Of each key at most one message is not blocked: the first of them, but for what came back."""
    heads: dict[str, int] = {}
    for lane in shard.window.order:
        for entry in lane.entries.values():
            if entry.key is None or entry.state in (State.LEAVING, State.MOVED, State.ENDING):
                continue
            if entry.state is State.VOIDING and entry.to:
                continue  # refused by another queue: it is not back yet
            if entry.state is not State.BLOCKED:
                assert entry.key not in heads, "two messages of one key"
                heads[entry.key] = entry.seq
                assert shard.window.keys.head(entry.key) is entry
        for entry in lane.entries.values():
            if entry.state is State.BLOCKED:
                assert entry.key is not None
                head = shard.window.keys.head(entry.key)
                assert head is not None
                assert head.seq < entry.seq or (entry.error or "").startswith("one refused it")


def check_aside(shard: Shard) -> None:
    """What is below a cursor, unsettled and not in memory is far ahead, or passed over."""
    window = shard.window
    for lane in window.order:
        for bucket in lane.buckets:
            high = min(bucket.last, lane.cursor - 1)
            aside = sum(
                seq not in lane.entries
                for low, last in bucket.state.settled.gaps(bucket.first, high)
                for seq in range(max(low, lane.purged + 1), last + 1)
            )
            assert bucket.far >= 0
            assert bucket.passed >= 0
            assert bucket.far + bucket.passed == aside
    buckets = [bucket for lane in window.order for bucket in lane.buckets]
    assert window.delays.far == sum(bucket.far for bucket in buckets)
    assert window.keys.passed == sum(bucket.passed for bucket in buckets)
    kept = [entry for key in window.keys.known.values() for entry in key.blocked]
    assert window.keys.kept == len(kept)
    blocked = [entry for entry in kept if entry.state is State.BLOCKED]
    assert len(blocked) == shard.life.counts[State.BLOCKED]
    assert all(entry.state in (State.LEAVING, State.ENDING) for entry in set(kept) - set(blocked))
    assert window.bodies.bare == sum(len(lane.bare) for lane in window.order)
    for name, key in window.keys.known.items():
        assert (key.head is None) == (name in window.keys.sought)
        assert key.head is not None or (key.again is not None and not key.blocked)


def check_buckets(shard: Shard) -> None:
    """Nothing unsettled is without a bucket, and what the shard counts is in its buckets."""
    messages = 0
    for lane in shard.window.order:
        firsts = [bucket.first for bucket in lane.buckets]
        assert firsts == sorted(set(firsts))
        messages += sum(bucket.count - bucket.state.settled.count for bucket in lane.buckets)
        for seq in lane.entries:
            bucket = lane.bucket_of(seq)
            assert bucket is not None
            assert seq not in bucket.state.settled
        assert all(bucket.count <= bucket.assigned for bucket in lane.buckets)
    assert shard.overflow.messages == messages
    assert shard.overflow.bytes >= 0
    assert (shard.overflow.bytes == 0) == (messages == 0)


def check_stats(shard: Shard) -> None:
    """No number is negative, and the living add up to what is stored."""
    stats = shard.stats()
    names = ("ready", "reserved", "leased", "delayed", "retrying", "blocked", "leaving")
    numbers = {name: getattr(stats, name) for name in names}
    assert all(number >= 0 for number in numbers.values()), numbers
    assert sum(numbers.values()) == stats.stored, numbers
    assert shard.journal.pending_messages >= 0
    assert shard.journal.pending_size >= 0
