"""The bounds of sessions: how long they wait, how much they keep, and why.

`pushlane.wire.limits` has what a client may send; these are the server's own.
"""

import msgspec

from pushlane.wire.limits import KIB, MIB


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    # Slow readers
    outbox_bytes: int = 1 * MIB
    """What may wait to be written to one socket before its session gets nothing more. One
    delivery may go beyond: at most what a shard keeps in memory (`window_bytes`)."""
    slow_ms: int = 10_000
    """How long a socket may take to get below half of that; then `goaway slow_consumer`."""
    deliver_bytes: int = 512 * KIB
    """A deliver frame is cut when it has this much, and never beyond half of `frame_bytes`."""

    hurry_messages: int = 64
    """Before a frame of this many messages is made, answers that others wait for are written, so
    that they can go on meanwhile."""

    # Sessions
    sessions: int = 100_000
    """Sessions, with and without a connection. One more is turned away with `overload`. Shared:
    see `[shares]`."""
    detached: int = 10_000
    """Sessions that wait for their client to resume; the one that waited longest ends early.
    Shared: a client over its share loses its session that waited longest."""
    known_names: int = 1_024
    """Names that a session is known to have a right to, so that each is checked once."""

    # Going on at another server of a cluster
    record_ms: int = 120_000
    """How long the lease cache keeps what another server needs to go on with a session, at least;
    it is written again after a third to half of that."""
    record_pause_ms: int = 100
    """The least time between two writes of one session."""
    takeover_ms: int = 2_000
    """How long a client that resumes waits for shards; of those that take longer it hears later
    what it lost."""

    # Several shards
    reattach_base_ms: int = 50
    """The first pause before a shard that stopped is asked for again; it doubles …"""
    reattach_max_ms: int = 5_000
    """… up to this."""

    # Leaving
    reconnect_ms: int = 500
    """`goaway` tells clients to come back after this to twice as much, at random."""
    goaway_ms: int = 5_000
    """From `goaway` to the close when a token has expired, or when another server has taken over:
    time to settle."""
    drain_ms: int = 20_000
    """How long a server that stops waits for its sessions to settle."""
    close_ms: int = 2_000
    """How long it then waits for sockets to close before it cuts them."""
