"""The bounds of a cluster: how long nodes wait for each other, and how much they keep."""

import msgspec

KIB = 1024
MIB = 1024 * KIB


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    # This node
    listen: str = "127.0.0.1:0"
    """Where other nodes reach this one: `HOST:PORT`; port 0 takes any that is free. Only nodes of
    the cluster may reach it: let no firewall open it to others."""
    address: str | None = None
    """What they are told, where that differs from `listen`: behind NAT, or with `listen` on all
    addresses."""
    name: str | None = None
    """What people call this node, the same over restarts: it gets back the slots that it had.
    Unless given, the host's name and the client port."""
    cluster: str = "pushlane"
    """The cluster's name. A node of another one is refused."""
    weight: int = 100
    """Its share of the load, beside the others' weights. With 0 it owns no queues for as long as
    there is another node, and still serves clients."""
    key_file: str | None = None
    """A file with the cluster's key, which every node has to know. Unless given, they use one that
    stands in the keyspace. A key doesn't encrypt: on networks that others can read, use TLS."""
    certificate: str | None = None
    """File with this node's certificate for links, PEM. With it links are encrypted, and only nodes
    with a certificate of the same authority get one."""
    key: str | None = None
    """File with its private key, PEM."""
    authority: str | None = None
    """File with the authority's certificate, PEM. Use one that signs nothing else."""

    # Frames
    frame_bytes: int = 8 * MIB + 64 * KIB
    """One frame that a peer may send: a client's largest, with what surrounds it between nodes. A
    longer one ends the link. Each node says its own bound in its greeting; the lesser holds."""
    read_bytes: int = 128 * KIB
    """What one read of a link takes at most."""
    write_bytes: int = 256 * KIB
    """What one write takes at most, a frame that is longer excepted. The kernel may have as much
    that is not on its way yet."""
    outbox_bytes: int = 64 * MIB
    """What may wait to be written to one link. More ends it: `overrun`. Whoever sends much holds
    back long before that (`Link.room`)."""
    turn_frames: int = 256
    """Frames of one read that are handed over before other tasks have their turn."""

    # Time
    beat_ms: int = 1_000
    """A link on which nothing was sent for this long sends a beat …"""
    silence_ms: int = 3_000
    """… and one on which nothing came for this long has ended."""
    close_ms: int = 2_000
    """How long a link that closes may still write what waits, and take what the peer still has."""
    clock_ms: int = 60_000
    """Two nodes' clocks that are further apart than this are reported."""

    # Dialling and listening
    dial_ms: int = 2_000
    """How long dialling may take: connection, TLS and handshake."""
    handshake_ms: int = 5_000
    """How long a stranger who connected may take to become a peer, with TLS …"""
    stranger_bytes: int = 4 * KIB
    """… and how much is read from it until then, without what TLS needs for itself."""
    linger_ms: int = 1_000
    """How long a stranger that was refused may stay to hear it, within `handshake_ms`."""
    strangers: int = 64
    """Connections at once that are no peers yet; one more is `busy`."""
    links: int = 1_024
    """Links at once that others dialled; one more is `busy`. A node has two for each other node."""
    backlog: int = 256
    """Connections that the kernel keeps for us between two accepts."""
    accept_pause_ms: int = 200
    """The pause after an accept failed because there were no file descriptors or no memory left."""
    tell_ms: int = 10_000
    """How often the log says that handshakes fail for the same reason: strangers could fill it."""

    # Who is there
    look_ms: int = 250
    """How often a node looks who is there."""
    heart_ms: int = 1_000
    """How often the heart of a node beats: `cassandra.beat_ms` of all of them."""
    judge_ms: int = 10_000
    """How long a heart may stand still before its node is fenced, if nothing else says that it is
    dead."""
    haste_ms: int = 2_000
    """After a node was fenced for its silence alone, how long until that may befall another one."""

    # Keeping links up
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

    # Sessions
    yield_ms: int = 1_000
    """How long a node may take to leave a session to us whose client came here; then we go on
    without its word: what it still does with the session no longer counts."""

    # Routing
    publish_ms: int = 30_000
    """How long a request waits for a node that takes it."""
    reroute_ms: int = 50
    """The pause before a request looks again for its node."""
    hops: int = 3
    """How often a request is sent on before it pauses."""
    asks: int = 10_000
    """Openings of shards and questions that another node may have under way here; one more is
    `throttled`."""
    hold_bytes: int = 16 * MIB
    """When more than this waits to be written to a link, its node gets no more deliveries, and
    publishes to it wait, until half of it has left. A frame may come on top."""
    repeat_bytes: int = 64 << 20
    """Publishes that wait for the next owner of their shard, of all shards together."""

    # Placement
    tenure_ms: int = 30_000
    """How long a slot stays where it is, at least, when it belongs elsewhere by now."""
    moves: int = 8
    """Slots that a node gives up at once."""
    place_ms: int = 1_000
    """How often a node looks whether its slots belong elsewhere."""
    hand_ms: int = 3_000
    """How long the next owner of a slot may take to confirm what it was handed over of its leases;
    then it gets the slot without."""
    leave_ms: int = 20_000
    """How long a node that stops may take to give its slots to others."""

    # For operators
    report_ms: int = 2_000
    """How often nodes ask each other how they do, for `pushlane cluster status`; it is also how
    long an answer may take."""
    status_ms: int = 2_000
    """How long the status waits for the store to say who has which slot."""
    doubt_ms: int = 15_000
    """How long no other node reaches this one, or two have one name or address, until the log says
    so: a node that starts again is there twice for a while."""
    refused_ms: int = 60_000
    """How long the status shows that a link was refused: who is still not welcome tries again."""

    def __post_init__(self) -> None:
        given = [self.certificate is not None, self.key is not None, self.authority is not None]
        if any(given) and not all(given):
            raise ValueError("TLS of links needs certificate, key and authority")
        if self.silence_ms < 2 * self.beat_ms:
            raise ValueError(
                f"silence_ms is {self.silence_ms}: a peer that is well sends something only every "
                f"{self.beat_ms} ms (beat_ms), so wait at least twice as long"
            )
        if self.outbox_bytes < self.frame_bytes + KIB:
            raise ValueError(
                f"outbox_bytes is {self.outbox_bytes}: no frame of {self.frame_bytes} bytes "
                "(frame_bytes) would ever fit"
            )


DEFAULT_SETTINGS = ClusterSettings()
