"""The tables. docs/cassandra.md says what is in them and why they are cut like this."""

from typing import Any

from pushlane_storage.cassandra.ring import Table

_HOUR = 3_600
_DAY = 24 * _HOUR
_REPAIRED = "read_repair = 'BLOCKING'"
"""What one quorum read has seen, every later one sees."""
PROMPT = "speculative_retry = '100MS'"
"""Ask another replica when one keeps a read waiting for so long, as the ones that died do until the
others have marked them down: some 20 seconds. It must be a plain time:

- of percentiles, also with `MIN`, Cassandra knows nothing as long as no such table was read through
  a node since that started. It waits for half of the read time-out then.
- `ALWAYS` asks all three at once, but only one of them for the row, the others for its digest. If
  that one died nobody has a row to answer with, and the read times out.

A node heeds it only some seconds after its start; meanwhile we ask a third one (connection.py)."""


def _grace(seconds: int) -> str:
    return f"gc_grace_seconds = {seconds}"


_DROPPED = f"{_REPAIRED} AND {PROMPT} AND {_grace(_DAY)}"
"""Data that goes with its bucket. A deletion that is forgotten after a day brings nothing back:
what says whether a bucket is there is its row in `buckets`."""
_TIMED = (
    f"{_DROPPED} AND compaction = {{"
    "'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS',"
    " 'compaction_window_size': '6', 'unchecked_tombstone_compaction': 'true'}"
)
"""Data that goes with its bucket, mostly within hours, and all at one time."""
_KEPT = f"{_REPAIRED} AND {PROMPT} AND {_grace(10 * _DAY)}"

SCHEMA = Table(
    "schema_version",
    ("id",),
    (),
    {"id": "text", "version": "int", "nonce": "text"},
    lightweight=True,
    options=f"{_REPAIRED} AND {PROMPT}",
)
QUEUES = Table(
    "queues",
    ("tenant",),
    ("name",),
    {
        "tenant": "text",
        "name": "text",
        "id": "text",
        "version": "bigint",
        "deleting": "boolean",
        "config": "text",
        "nonce": "text",
    },
    lightweight=True,
    options=_KEPT,
)
SLOTS = Table(
    "slots",
    ("slot",),
    (),
    {
        "slot": "int",
        "epoch": "bigint",
        "process": "text",
        "owner": "text",
        "dc": "text",
        "nonce": "text",
    },
    lightweight=True,
    options=_KEPT,
)
NODES = Table(
    "nodes",
    ("process",),
    (),
    {
        "process": "text",
        "address": "text",
        "dc": "text",
        "fenced": "boolean",
        "draining": "boolean",
    },
    lightweight=True,
    options=_KEPT,
)
HEARTBEATS = Table(
    "heartbeats",
    ("process",),
    (),
    {"process": "text", "beat": "bigint"},
    options=_DROPPED,
)
EVERYBODY = "everybody"
"""The one partition of the roster."""
ROSTER = Table(
    "roster",
    ("part",),
    ("process",),
    {
        "part": "text",
        "process": "text",
        "beat": "bigint",
        "member": "text",
    },
    # Everybody reads it all the time, so the tombstones of those who left must not gather: they go
    # after an hour. A row that a replica brings back then is looked up, and removed, once more.
    options=(
        f"{_REPAIRED} AND {PROMPT} AND {_grace(_HOUR)}"
        f" AND memtable_flush_period_in_ms = {_HOUR * 1000}"
    ),
)
LANES = Table(
    "lanes",
    ("queue_id",),
    ("shard", "lane"),
    {"queue_id": "text", "shard": "int", "lane": "int", "known": "boolean"},
    options=_KEPT,
)
BUCKETS = Table(
    "buckets",
    ("queue_id", "shard", "lane"),
    ("epoch", "start"),
    {
        "queue_id": "text",
        "shard": "int",
        "lane": "int",
        "epoch": "bigint",
        "start": "bigint",
        "first": "bigint",
        "closed": "frozen<tuple<bigint, bigint, bigint, bigint, blob, bigint>>",
        "drained": "boolean",
    },
    options=_KEPT,
)
SKIPS = Table(
    "skips",
    ("queue_id", "shard"),
    ("lane", "epoch", "start"),
    {
        "queue_id": "text",
        "shard": "int",
        "lane": "int",
        "epoch": "bigint",
        "start": "bigint",
        "next": "frozen<tuple<bigint, bigint>>",
    },
    options=_KEPT,
)
_BUCKET_COLUMNS = {
    "queue_id": "text",
    "shard": "int",
    "lane": "int",
    "epoch": "bigint",
    "start": "bigint",
}
SEGMENTS = Table(
    "segments",
    ("queue_id", "shard", "lane", "epoch", "start"),
    ("first",),
    {
        **_BUCKET_COLUMNS,
        "first": "bigint",
        "count": "int",
        "size": "bigint",
        "last_at": "bigint",
        "format": "int",
        "checksum": "bigint",
        "head": "bigint",
        "marks": "blob",
        "payload": "blob",
    },
    options=_TIMED,
)
SETTLEMENTS = Table(
    "settlements",
    ("queue_id", "shard", "lane", "epoch", "start"),
    ("owner", "n"),
    {**_BUCKET_COLUMNS, "owner": "bigint", "n": "bigint", "checksum": "bigint", "body": "blob"},
    options=_DROPPED,
)
SEALS = Table(
    "seals",
    ("queue_id", "shard"),
    ("owner",),
    {
        "queue_id": "text",
        "shard": "int",
        "owner": "bigint",
        "checksum": "bigint",
        "body": "blob",
    },
    options=_KEPT,
)
SLICES = Table(
    "schedule_slices",
    ("queue_id", "shard"),
    ("slice",),
    {"queue_id": "text", "shard": "int", "slice": "bigint", "known": "boolean"},
    options=_KEPT,
)
SCHEDULED = Table(
    "scheduled",
    ("queue_id", "shard", "slice"),
    ("due", "lane", "epoch", "start", "seq"),
    {
        "queue_id": "text",
        "shard": "int",
        "slice": "bigint",
        "due": "bigint",
        "lane": "int",
        "epoch": "bigint",
        "start": "bigint",
        "seq": "bigint",
        "known": "boolean",
    },
    options=_DROPPED,
)
USAGE = Table(
    "usage_minutes",
    ("tenant", "day"),
    ("queue", "minute", "node"),
    {
        "tenant": "text",
        "day": "bigint",
        "queue": "text",
        "minute": "bigint",
        "node": "text",
        "counters": "blob",
    },
    options=_KEPT,
)

NOTES = Table(
    "notes",
    ("slot",),
    ("queue_id", "shard"),
    {
        "slot": "int",
        "queue_id": "text",
        "shard": "int",
        "due": "bigint",
        "tenant": "text",
        "queue": "text",
        "owner": "bigint",
        "n": "bigint",
        "checksum": "bigint",
        "body": "blob",
    },
    options=_KEPT,
)

TABLES = (
    QUEUES,
    SLOTS,
    NODES,
    HEARTBEATS,
    LANES,
    BUCKETS,
    SKIPS,
    SEGMENTS,
    SETTLEMENTS,
    SEALS,
    SLICES,
    SCHEDULED,
)
"""Version 1, without `schema_version`. Version 2 adds `USAGE`, version 3 `NOTES`, 5 `ROSTER` and
`DRAINING`."""
PROMPTED = tuple(table.name for table in (SCHEMA, *TABLES, USAGE, NOTES, ROSTER))
"""Tables to which version 6 gave `PROMPT`; one that is made since has it from the start."""
DRAINING = "draining"
"""The column that version 5 gave `NODES`; one that is made since has it from the start."""


def keyed(table: Table, key: tuple[Any, ...], **values: Any) -> dict[str, Any]:
    """A row from its key and its other columns."""
    return {**dict(zip(table.key, key, strict=True)), **values}
