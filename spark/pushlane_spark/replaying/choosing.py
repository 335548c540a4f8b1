"""Which messages are replayed, in which order, and as what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from pushlane.wire.limits import DEFAULTS
from pushlane_spark.frames import LONG
from pushlane_spark.messages import message_of
from pushlane_spark.sending import Outgoing

ENDED = ("acked", "dead", "expired", "dropped", "purged", "redriven")
"""What has not ended is still to be delivered anyway."""
FROM = "pushlane-replayed-from"
ID = "pushlane-replayed-id"
"""Headers of what was replayed: the queue that it was in, and its id there."""
PLACE = ("at", "queue_id", "shard", "lane", "seq")
_CONTENT = ("id", "key", "headers", "body", "data", "event_at")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """All of it must be true of a message."""

    keys: Sequence[str] | None = None
    """One of these; None is whatever key, or no key."""
    headers: Mapping[str, str] = {}
    states: Sequence[str] = ENDED

    def __post_init__(self) -> None:
        if unknown := [state for state in self.states if state not in ENDED]:
            raise ValueError(f"no state to replay: {', '.join(unknown)}; {', '.join(ENDED)} are")


def chosen(messages: DataFrame, choice: Choice) -> DataFrame:
    found = messages.where(F.col("state").isin(*choice.states))
    if choice.keys is not None:
        found = found.where(F.col("key").isin(*choice.keys))
    for name, value in choice.headers.items():
        found = found.where(F.col("headers")[name] == value)
    return found


def ordered(messages: DataFrame) -> DataFrame:
    """In the order of their publish, with `PLACE`. In a shard that is the order of seq: `at`
    doesn't go back there where a clock did, so keys keep their order."""
    lane = Window.partitionBy("queue_id", "shard", "lane").orderBy("seq")
    at = F.max(F.unix_micros("published_at")).over(lane).cast(LONG)
    event_at = F.unix_millis("event_at").alias("event_at")
    columns = [event_at if name == "event_at" else F.col(name) for name in _CONTENT]
    places = [F.col(name) for name in PLACE[1:]]
    return messages.select(*columns, *places, at.alias("at")).orderBy(*PLACE)


def message_from(row: Row, queue: str, name: str) -> Outgoing:
    """As it was published first, but for `ttl_ms` and `delay_ms`, whose time is over."""
    found = row.asDict()
    headers = dict(found["headers"] or {}) | {FROM: queue, ID: row.id}
    usual = row.key is not None or row.lane == DEFAULTS.priority_default
    priority = None if usual else row.lane
    return message_of(
        {**found, "headers": headers, "priority": priority}, row.id, f"{name}:{row.id}"
    )
