"""What the embedded store has done since it was opened, and how big it is."""

import msgspec


class Stats(msgspec.Struct, kw_only=True):
    epoch: int
    """Of this opening."""
    commits: int = 0
    calls: int = 0
    """Writes in those commits: `calls / commits` is the mean size of a group."""
    largest_group: int = 0
    alone: int = 0
    """Groups that were run call by call, because one of their calls could not be carried out."""
    refused_full: int = 0
    """Appends refused because the disk was full, or nearly."""
    refused_log: int = 0
    """Appends refused because the write-ahead log was over its limit."""
    damaged: int = 0
    """Damaged segments found."""
    sweeps: int = 0
    vacuums: int = 0
    checkpoints: int = 0
    checkpoints_hindered: int = 0
    """Checkpoints that left something in the log because of a reader."""
    waiting: int = 0
    """Writes that wait for a transaction."""
    database_bytes: int = 0
    log_bytes: int = 0
    free_disk_bytes: int = 0
