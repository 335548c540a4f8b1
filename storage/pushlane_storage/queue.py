"""A queue's configuration and its row.

Rows change by compare-and-set on `version` only. The id is fresh with every creation, so what
belongs to a deleted queue of the same name (receipts, message ids, dedup marks) can't touch it.
"""

from typing import Literal

import msgspec

Overflow = Literal["reject", "drop_oldest", "dead_letter"]
Archive = Literal["none", "parquet"]
RetentionEnd = Literal["drop", "dead_letter"]
DAY_MS = 24 * 60 * 60 * 1000


class QueueConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What users may set on a queue; every field has a default."""

    lease_ms: int = 30_000
    max_attempts: int = 5
    max_deliveries: int = 20
    reserve_ms: int = 300_000
    backoff_base_ms: int = 1_000
    backoff_max_ms: int = 300_000
    consumer_backoff_base_ms: int = 100
    consumer_backoff_max_ms: int = 10_000
    dedup_window_ms: int = 300_000
    max_message_bytes: int = 262_144
    max_messages: int = 10_000_000
    max_bytes: int | None = None
    overflow: Overflow = "reject"
    auto_expand: bool = False
    retention_ms: int = 14 * DAY_MS
    retention_end: RetentionEnd = "drop"
    """What becomes of messages that nobody took for `retention_ms`."""
    archive: Archive = "none"
    """With "parquet", drained buckets wait for the retention job instead of being dropped."""
    ordering: Literal["best_effort", "sequence", "timestamp"] = "best_effort"
    reorder_window_ms: int | None = None
    late_queue: str | None = None
    late_to_head: bool = False
    dead_letter: str | None = None
    """Where dead letters go; None is NAME.dead, the empty string is nowhere."""
    shards: int = 1
    encrypted: bool = False
    durability: Literal["quorum", "all", "one"] = "quorum"
    paused: bool = False


class QueueRow(msgspec.Struct, frozen=True):
    tenant: str
    name: str
    id: str
    config: QueueConfig
    version: int
    deleting: bool = False
