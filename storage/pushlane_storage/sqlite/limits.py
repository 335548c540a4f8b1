"""The bounds of the embedded store: everything that could grow has one, with its reason."""

import msgspec

KIB = 1 << 10
MIB = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    # Writing
    group_calls: int = 4_096
    """Calls in one transaction. What is beyond waits for the next one."""
    group_bytes: int = 8 * MIB
    """Packed segments in one transaction: bounds its memory, and how long its calls wait."""
    waiting_calls: int = 100_000
    """Writes that wait for a transaction; one more is refused."""
    busy_ms: int = 5_000
    """How long a transaction waits for the file, should another program have it locked."""

    # Reading
    readers: int = 2
    """Reader threads: one that waits for the disk doesn't hold up the other."""
    waiting_reads: int = 100_000
    """Reads that wait for a reader; one more is refused."""

    # Memory
    writer_cache_bytes: int = 8 * MIB
    """SQLite's page cache of the writer: a group's pages, and the inner pages of its tables."""
    reader_cache_bytes: int = 2 * MIB
    """SQLite's page cache of each reader: the operating system caches the file anyway."""
    places: int = 10_000
    """Buckets, and shards, whose row number the writer remembers; others are looked up."""

    # Disk
    reserve_bytes: int = 64 * MIB
    """Free disk below which appends are refused: settles and drops need room, too."""
    wal_bytes: int = 64 * MIB
    """Size of the write-ahead log above which appends are refused until it was copied away."""
    push_back_ms: int = 100
    """How long they are refused before the log is looked at again."""
    checkpoint_bytes: int = 16 * MIB
    """Size of the write-ahead log at which it is copied. Less means more fsyncs."""
    finish_bytes: int = 2 * MIB
    """What may be left of it for the writer to copy itself: a few milliseconds' work."""
    passes: int = 4
    """Background passes before the writer copies the rest, whatever it is."""
    gate_ms: int = 50
    """How long the writer waits for readers to step aside, so that the log starts over."""

    # Tidying
    idle_ms: int = 5
    """How long nothing was written before the writer tidies up."""
    tidy_ms: int = 1_000
    """The longest time between two steps of tidying when it is never idle."""
    sweep_bytes: int = 1 * MIB
    """What one step deletes of dropped buckets: a few milliseconds' work."""
    sweep_share_bytes: int = 64 * KIB
    """What a transaction deletes at least besides its own work, when there is garbage."""
    sweep_rows: int = 1_000
    """Rows that one step deletes of dropped buckets."""
    vacuum_bytes: int = 1 * MIB
    """What one step gives back to the file system."""
    rebuild_free_bytes: int = 256 * MIB
    """Free space at which steps get slow. Then, if no more than …"""
    rebuild_bytes: int = 32 * MIB
    """… this is left, it is rewritten at once: a fraction of a second's work."""
    spare_bytes: int = 8 * MIB
    """Free space kept inside the file: what is dropped now makes room for what comes next."""

    # Usage
    usage_kept_days: int = 400
    """Days that usage is kept: a year, and time to look back on it."""

    # Damage
    quarantine_rows: int = 1_000
    """Damaged segments kept for inspection. Beyond it they are counted and reported only."""
