"""Explain: where a message stands, since when, until when, and why; and a shard's statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pushlane_dispatcher.core.entry import Entry
from pushlane_dispatcher.core.ident import make_id
from pushlane_dispatcher.core.life import ENDS, IN_FLIGHT, State
from pushlane_storage.message import Message
from pushlane_storage.settlement import BucketState

if TYPE_CHECKING:
    from pushlane_dispatcher.core.lane import LiveBucket
    from pushlane_dispatcher.core.shard import Shard


class Explanation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `explain` answers. Times are wall-clock milliseconds."""

    state: str
    why: str
    since: int | None = None
    until: int | None = None
    session: str | None = None
    """Of the consumer that has it, and what its client calls itself."""
    client: str | None = None
    blocked_by: str | None = None
    attempts: int = 0
    deliveries: int = 0
    error: str | None = None


class Stats(msgspec.Struct, frozen=True):
    """A shard in numbers. Ended ones are counted since the shard was opened."""

    ready: int
    reserved: int
    leased: int
    delayed: int
    retrying: int
    blocked: int
    leaving: int
    stuck: int
    """Of those that leave: how many no queue takes now."""
    stored: int
    bytes: int
    pending: int
    subscriptions: int
    oldest_at: int | None
    """When the oldest ready message in memory was published (wall clock)."""
    acked: int
    dead: int
    expired: int
    retention: int
    """Those that retention ended: of the expired ones, or with `retention_end: "dead_letter"` of
    the dead ones."""
    dropped: int
    purged: int


_NAMES = {
    State.SETTLING: "leased",
    State.VOIDING: "retrying",
    State.MOVED: "leaving",
    State.ENDING: "leaving",
}
"""What users call the states in which something is only being written."""


BEHIND = "others are before it"
DELAYED = "its delay is not over"
RETRYING = "it waits for its next attempt"
BLOCKED = "an earlier message with its key has not ended"


def explain(
    shard: Shard, lane_number: int, seq: int, now: int, message: Message | None = None
) -> Explanation:
    """Where a message stands. An end that the memory no longer knows is `unknown`.

    `message` is the stored one: of what is not in memory, it says what it waits for.
    """
    lane = shard.window.lanes.get(lane_number)
    if lane is None or seq >= lane.stored:
        return Explanation("unknown", "it is not stored")
    entry = lane.entries.get(seq)
    if entry is not None:
        return _explain_entry(shard, entry)
    ended = shard.retention.find(lane_number, seq)
    if ended is not None:
        return _past_retention(shard, ended)
    bucket = lane.bucket_of(seq)
    if bucket is None:
        return Explanation("unknown", "everything of its time has ended and was cleared away")
    found = explain_end(bucket.state, seq)
    return found or _behind_the_window(shard, bucket, seq, now + shard.offset, message)


def _past_retention(shard: Shard, dead: bool) -> Explanation:
    why = f"nobody took it within the queue's retention_ms ({shard.config.retention_ms})"
    if dead:
        return Explanation("dead", f"{why}: it went to the dead letters")
    return Explanation("expired", why)


def explain_end(state: BucketState, seq: int) -> Explanation | None:
    """How a message ended, by its bucket's state; None when it has not."""
    cause = state.cause_of(seq)
    if cause is None:
        return None
    if cause == "expired":
        return Explanation(cause, "its ttl_ms, or the queue's retention_ms, was over")
    if cause == "acked" or cause in ENDS:
        return Explanation(cause, f"it was {cause}")
    if cause == "redriven":
        return Explanation("acked", "it was redriven to another queue")
    return Explanation("dead", f"it went to the dead letters: {cause.removeprefix('dead:')}")


def _behind_the_window(
    shard: Shard, bucket: LiveBucket, seq: int, wall: int, message: Message | None
) -> Explanation:
    lane = shard.window.lanes[bucket.key.lane]
    if seq <= lane.purged:
        return Explanation("leaving", "it leaves: purged")
    if seq >= lane.cursor:
        return _in_the_backlog(bucket, seq, wall, message)
    key = None if message is None else message.key
    if key is None and (message is not None or bucket.far):
        until = None if message is None else message.not_before
        return Explanation("delayed", "its time is far ahead", until=until)
    return Explanation("blocked", BLOCKED, blocked_by=None if key is None else _head(shard, key))


def _in_the_backlog(
    bucket: LiveBucket, seq: int, wall: int, message: Message | None
) -> Explanation:
    """Of what nobody has read in yet: whether its time has come."""
    void = bucket.state.voids.get(seq)
    if void is not None:
        waits = void.not_before > wall
        return Explanation(
            "retrying" if waits else "ready",
            RETRYING if waits else BEHIND,
            until=void.not_before if waits else None,
            attempts=void.attempts,
            deliveries=void.deliveries,
            error=void.error,
        )
    if message is not None and message.not_before > wall:
        return Explanation("delayed", DELAYED, until=message.not_before)
    return Explanation("ready", BEHIND)


def _head(shard: Shard, key: str) -> str | None:
    """The id of the message for which others with its key wait."""
    head = shard.window.keys.head(key)
    return None if head is None else make_id(*shard.key, head.lane.number, head.seq)


def _explain_entry(shard: Shard, entry: Entry) -> Explanation:
    blocked_by = None
    until: int | None = None
    state = entry.state
    holder = entry.holder
    if state is State.SETTLING:
        why = "its ack is being stored"
    elif state in IN_FLIGHT:
        why = "its consumer has it"
        until = entry.deadline + shard.offset
    elif state in (State.DELAYED, State.RETRYING):
        why = DELAYED if state is State.DELAYED else RETRYING
        until = entry.not_before
    elif state is State.BLOCKED:
        assert entry.key is not None
        why, blocked_by = BLOCKED, _head(shard, entry.key)
    elif state is State.READY:
        why = _why_ready(shard)
    elif state is State.VOIDING:
        why = "its return is being stored"
    elif state is State.LEAVING:
        why, until = shard.departures.explain(entry)
        until = None if until is None else until + shard.offset
    else:
        why = f"it leaves: {entry.cause}"
    if entry.deliveries:
        most = shard.config.max_deliveries
        why += f"; {entry.deliveries} of {most} deliveries: connections broke before it was started"
    return Explanation(
        _NAMES.get(state, state.name.lower()),
        why,
        entry.since + shard.offset,
        until,
        holder.session if holder is not None else None,
        (holder.client or None) if holder is not None else None,
        blocked_by,
        entry.attempts,
        entry.deliveries,
        entry.error,
    )


def _why_ready(shard: Shard) -> str:
    if shard.config.paused:
        return "the queue is paused"
    subscriptions = shard.consumers.subscriptions.values()
    if not any(not sub.closed and sub.away_until is None for sub in subscriptions):
        return "no consumer"
    if not any(sub.free(shard.bounds) > 0 for sub in subscriptions):
        return "no consumer has credit"
    return "its turn is next"


def stats(shard: Shard) -> Stats:
    """What is only being written counts as `explain` calls it, so the living add up to `stored`."""
    counts, far, passed = shard.life.counts, shard.window.delays.far, shard.window.keys.passed
    leased = counts[State.LEASED] + counts[State.SETTLING]
    retrying = counts[State.RETRYING] + counts[State.VOIDING]
    leaving = counts[State.LEAVING] + counts[State.MOVED] + counts[State.ENDING]
    blocked = counts[State.BLOCKED] + passed
    waiting = counts[State.DELAYED] + far + retrying + blocked
    stored = shard.overflow.messages
    return Stats(
        stored - counts[State.RESERVED] - leased - waiting - leaving,  # with the backlog
        counts[State.RESERVED],
        leased,
        counts[State.DELAYED] + far,
        retrying,
        blocked,
        leaving,
        shard.departures.stuck,
        stored,
        shard.overflow.bytes,
        shard.journal.pending_messages,
        len(shard.consumers.subscriptions),
        shard.window.oldest_at(),
        counts[State.ACKED],
        counts[State.DEAD],
        counts[State.EXPIRED],
        shard.retention.ended,
        counts[State.DROPPED],
        counts[State.PURGED],
    )
