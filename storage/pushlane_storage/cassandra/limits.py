"""The bounds of the Cassandra store: all that could grow or wait has one, with its reason."""

import msgspec

MIB = 1 << 20
DAY_SECONDS = 86_400
CASSANDRA_TTL = 20 * 365 * DAY_SECONDS
"""More than this Cassandra refuses."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    # Requests
    in_flight: int = 512
    """Requests under way at once; more wait their turn. Many more only fill Cassandra's queues."""
    urgent: int = 32
    """As many more for what says who is alive and who owns what (heartbeats, roster, node and slot
    rows): it waits behind no data, so that load never looks like death."""
    waiting: int = 100_000
    """Requests that wait their turn; one more is refused."""
    request_ms: int = 10_000
    """How long a request may take once it was sent: longer than Cassandra's own time-outs, which
    say more."""
    change_ms: int = 3_000
    """How long a lightweight transaction may take. It can't be sent to a second node meanwhile;
    what became of it is read there, and that ends a wait for a node that hangs."""
    tries: int = 3
    """How often a read or a plain write is sent, when its outcome is unknown."""
    connect_ms: int = 5_000
    """How long connecting to one node may take: who starts may have to wait for one that hangs."""
    row_bytes: int = 8 * MIB
    """The most a segment's row may hold: Cassandra takes up to half a commit log segment (16 MiB).
    A flush is 1 MiB, or one message if that is larger."""
    page_rows: int = 1_000
    """Small rows in one answer."""
    page_bytes: int = 2 * MIB
    """Segments in one answer, about."""
    batch_rows: int = 50
    """Schedule entries in one write: Cassandra warns of large batches."""
    reads: int = 16
    """Reads under way at once for one call."""

    # Lightweight transactions
    decisions: int = 8
    """How often a lightweight transaction is tried and read again before its outcome stays
    unknown."""

    # Owners
    beat_ms: int = 1_000
    """How often a process shows that it is alive."""
    judge_ms: int = 10_000
    """How long its heartbeat stands still before another process may fence it: at least twice
    `beat_ms`. A server that was killed is missed for this long; one that stands still for longer
    loses its slots. The same for all servers of a keyspace."""
    poll_ms: int = 100
    """How often a heartbeat is looked at meanwhile, and whether the owner left or gave back."""
    alive_ms: int = 1_000
    """How long a process whose heartbeat was just seen counts as alive: whoever asks for its slots
    is refused without a wait, unless it has left."""
    close_ms: int = 10_000
    """How long closing waits for what is under way, and for giving the slots back."""

    # Memory
    places: int = 100_000
    """Lanes and schedule slices that are known to be written down; others are written again."""
    shards: int = 20_000
    """Shards whose live buckets are remembered; those of others are read again when needed."""
    traits: int = 1_000_000
    """Queues whose durability or retention is not the default one and is remembered. One that is
    forgotten is written at QUORUM until its row is read again."""
    damaged: int = 1_000
    """Damaged segments that are reported. Beyond it they are only left out."""

    # Time to live
    least_ttl: int = DAY_SECONDS
    """Seconds that a row is kept at least, however short the retention: it is for cleaning only."""
    most_ttl: int = 10 * 365 * DAY_SECONDS
    """Seconds that a row is kept at the most. Cassandra's own limit is 20 years."""
    usage_kept_days: int = 400
    """Days that usage is kept: a year, and time to look back on it."""
    usage_days: int = 400
    """Days that one read of usage may span."""

    def __post_init__(self) -> None:
        if self.judge_ms < 2 * self.beat_ms:
            raise ValueError("judge_ms is less than twice beat_ms: it would fence who is alive")
        if not self.least_ttl <= self.most_ttl <= CASSANDRA_TTL:
            raise ValueError(f"it must be least_ttl <= most_ttl <= {CASSANDRA_TTL} (20 years)")
        if not 1 <= self.usage_kept_days <= CASSANDRA_TTL // DAY_SECONDS:
            raise ValueError("usage_kept_days must be from 1 to 7300 (20 years)")

    @property
    def usage_ttl(self) -> int:
        """In seconds."""
        return self.usage_kept_days * DAY_SECONDS
