"""The bounds of a cluster: how long nodes wait for each other, and how much they keep."""

import msgspec


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    # Who is there
    look_ms: int = 250
    """How often a node looks who is there."""
    beat_ms: int = 1_000
    """How often the heart of a node beats (`cassandra.beat_ms`)."""
    judge_ms: int = 10_000
    """How long a heart may stand still before its node is fenced, if nothing else says that it is
    dead."""
    haste_ms: int = 2_000
    """After a node was fenced for its silence alone, how long until that may befall another one."""

    # Links
    redial_base_ms: int = 50
    """The first pause before a node that can't be reached is dialled again; it doubles …"""
    redial_max_ms: int = 1_000
    """… up to this."""
    shard_bytes: int = 8 << 20
    """Bytes of publishes under way to one shard of another node; more wait here."""
    pairs: int = 1_000
    """Nodes that may have links to this one."""
    pair_ms: int = 5_000
    """How long the second link of a pair may take."""

    # Routing
    publish_ms: int = 30_000
    """How long a request waits for a node that takes it."""
    reroute_ms: int = 50
    """The pause before a request looks again for its node."""
    hops: int = 3
    """How often a request is sent on before it pauses."""
    repeat_bytes: int = 64 << 20
    """Publishes that wait for the next owner of their shard, of all shards together."""

    # Placement
    tenure_ms: int = 30_000
    """How long a slot stays where it is, at least, when it belongs elsewhere by now."""
    moves: int = 8
    """Slots that a node gives up at once."""
    place_ms: int = 1_000
    """How often a node looks whether its slots belong elsewhere."""
