"""Histories in parts that can be judged apart.

Rules speak of messages, and messages of queues: so a family is queues between which messages,
receipts, uids, requests or subscriptions pass, and everything of a family comes together. Who its
members are is found by Spark and put together here; there are far fewer queues than events.

An event that names no queue belongs where what it names (its request, receipt, subscription) was
made. What belongs nowhere comes to `HOME`, and what is said to all comes to all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from pushlane_spark.auditing.lines import LINES
from pushlane_spark.errors import HistoryUnfit
from pushlane_spark.frames import FLAG, LONG, TEXT, struct

PARTS = struct(LINES, family=TEXT, copy=FLAG)
"""Lines with the family that judges them. A line may come to several: then all but one are copies,
which are judged and not counted."""
HOME = ""
MOST_QUEUES = 1_000_000
"""Queues of all histories together, which are put together in one place."""

_FIELDS = struct(
    struct(event=TEXT, queue=TEXT, to=TEXT, dead_letter=TEXT, what=TEXT, uid=TEXT, op=LONG),
    struct(receipt=TEXT, sub=TEXT, session=TEXT, ack_none=FLAG, uids=ArrayType(TEXT)),
)
_HELD = ("start", "lease_lost", "settle")
_SUBSCRIBED = ("credit", "detach", "resume", "unsubscribe")
_ANSWERS = ("published", "publish_failed")
_ABOUT_OTHERS = (*_HELD, *_SUBSCRIBED, *_ANSWERS, "verdict")
_TO_ALL = ("begin", "gap", "crash", "open", "fault", "quiesce", "drained")
_Names = dict[tuple[str, str], str]


def parse(lines: DataFrame) -> DataFrame:
    """`LINES` with the fields that say where a line belongs."""
    return lines.withColumn("fields", F.from_json("line", _FIELDS)).select(*LINES.names, "fields.*")


def cut(events: DataFrame) -> DataFrame:
    """`PARTS` of what `parse` gave. It runs several jobs: what it is given should be kept."""
    queues = [tuple(row) for row in _queues(events).limit(MOST_QUEUES + 1).collect()]
    if len(queues) > MOST_QUEUES:
        raise HistoryUnfit(f"the histories speak of more than {MOST_QUEUES} queues: audit fewer")
    names: _Names = {(history, queue): queue for history, queue in queues}
    _join(names, _pairs(_passages(events)))
    if _is_whole(names):
        parts = events.withColumns({"family": F.lit(HOME), "copy": F.lit(False)})
        return parts.select(PARTS.names)
    placed = _Placed(events)
    _join(names, _pairs(placed.meetings()))
    return _deal(placed, names)


# Who belongs together


def _queues(events: DataFrame) -> DataFrame:
    """(history, queue). Every history has a `HOME`, also one that speaks of no queue."""
    there = F.explode(F.array("queue", "to", F.lit(HOME)))
    found = events.select("history", there.alias("queue")).where(F.col("queue").isNotNull())
    return found.distinct()


def _passages(events: DataFrame) -> DataFrame:
    """Queues between which messages pass: (history, queue, other)."""
    others = F.array("to", "dead_letter", F.concat("queue", F.lit(".dead")))
    found = events.where(F.col("queue").isNotNull()).select("history", "queue", others.alias("to"))
    return found.distinct().select("history", "queue", F.explode("to").alias("other"))


def _pairs(found: DataFrame) -> list[tuple[str, str, str]]:
    # No dead letters is an empty name, and no queue's.
    there = F.col("other").isNotNull() & (F.col("other") != HOME)
    whole = found.where(there & (F.col("other") != F.col("queue"))).distinct()
    return [(row.history, row.queue, row.other) for row in whole.collect()]


def _join(names: _Names, pairs: Iterable[tuple[str, str, str]]) -> None:
    """Give queues that belong together one name. `names` is a forest: a root names itself."""
    for history, queue, other in pairs:
        one, two = _root(names, history, queue), _root(names, history, other)
        names[history, max(one, two)] = min(one, two)


def _root(names: _Names, history: str, queue: str) -> str:
    name = queue
    while (above := names.setdefault((history, name), name)) != name:
        name = above
    while names[history, queue] != name:  # the way is shorter next time
        names[history, queue], queue = name, names[history, queue]
    return name


def _is_whole(names: _Names) -> bool:
    """Whether no history has more than one family, and what belongs nowhere."""
    keys = [key for key in names if key[1] != HOME]
    roots = {(history, _root(names, history, queue)) for history, queue in keys}
    return len(roots) == len({history for history, _ in roots})


# Where events belong


class _Placed:
    """Events with the queue that they belong to."""

    def __init__(self, events: DataFrame) -> None:
        self.spark = events.sparkSession
        self._named = events.where(F.col("queue").isNotNull())
        self._publishes = self._of("publish")
        self._grants = self._of("grant").where(~F.coalesce("ack_none", F.lit(False)))
        self.subscribes = self._of("subscribe")
        held = _by(_where(events, *_HELD), self._grants, "receipt")
        self._settles = held.where(F.col("event") == "settle")
        self._others = [
            held,
            _by(_where(events, *_SUBSCRIBED), self.subscribes, "sub"),
            _by(_where(events, *_ANSWERS), self._publishes, "op"),
            _by(_where(events, "verdict"), self._settles, "op"),
            _homeless(events),
        ]

    def events(self) -> DataFrame:
        """Each event once. What belongs to no queue, or to all, is at `HOME`."""
        columns = [*LINES.names, "queue", "event", "what", "session"]
        found = [part.select(columns) for part in (self._named, *self._others)]
        return reduce(DataFrame.unionByName, found)

    def meetings(self) -> DataFrame:
        """Queues in which the same thing was met: (history, queue, other)."""
        subscribed = self.subscribes.select("history", "sub")
        holders = self._grants.join(subscribed, ["history", "sub"], "left_semi")
        stored = self._of("stored").withColumn("uid", F.explode("uids"))
        named = self._named.where(F.col("uid").isNotNull())
        found = [
            _met(self._grants, "receipt"),
            _met(self._publishes, "op"),
            _met(self._settles, "op"),
            _met(_both(self.subscribes, holders, "sub"), "sub"),
            _met(_both(named, stored, "uid"), "uid"),
        ]
        return reduce(DataFrame.unionByName, found)

    def _of(self, kind: str) -> DataFrame:
        return self._named.where(F.col("event") == kind)


def _where(events: DataFrame, *kinds: str) -> DataFrame:
    return events.where(F.col("event").isin(*kinds) & F.col("queue").isNull())


def _homeless(events: DataFrame) -> DataFrame:
    """What belongs to no queue, or to all, and what is no event at all."""
    strange = F.col("event").isNull() | ~F.col("event").isin(*_ABOUT_OTHERS)
    return events.where(strange & F.col("queue").isNull()).withColumn("queue", F.lit(HOME))


def _by(events: DataFrame, made: DataFrame, token: str) -> DataFrame:
    """Events at a queue where what they name was made."""
    found = made.where(F.col(token).isNotNull()).groupBy("history", token)
    places = found.agg(F.min("queue").alias("at"))
    placed = events.join(places, ["history", token], "left")
    return placed.withColumn("queue", F.coalesce("at", F.lit(HOME)))


def _both(one: DataFrame, two: DataFrame, token: str) -> DataFrame:
    columns = ["history", token, "queue"]
    return one.select(columns).unionByName(two.select(columns))


def _met(events: DataFrame, token: str) -> DataFrame:
    found = events.where(F.col(token).isNotNull()).groupBy("history", token)
    queues = found.agg(F.collect_set("queue").alias("queues")).where(F.size("queues") > 1)
    lowest = F.array_min("queues").alias("queue")
    return queues.select("history", lowest, F.explode("queues").alias("other"))


# To whom they come


def _deal(placed: _Placed, names: _Names) -> DataFrame:
    families = _frame(placed.spark, names)
    own = placed.events().join(F.broadcast(families), ["history", "queue"])
    copies = _to_all(own, families).unionByName(_to_sessions(own, placed, families))
    there = own.withColumn("copy", F.lit(False)).select(PARTS.names)
    return there.unionByName(copies.withColumn("copy", F.lit(True)).select(PARTS.names))


def _frame(spark: SparkSession, names: _Names) -> DataFrame:
    rows = [(history, queue, _root(names, history, queue)) for history, queue in list(names)]
    return spark.createDataFrame(rows, struct(history=TEXT, queue=TEXT, family=TEXT))


def _to_all(own: DataFrame, families: DataFrame) -> DataFrame:
    """What is said to all: that a queue may be redriven, too, for clients can't see where to."""
    said = F.col("event").isin(*_TO_ALL)
    said |= (F.col("event") == "allow") & (F.col("what") == "redriven")
    return _elsewhere(own.where(said), families.select("history", "family"), ["history"])


def _to_sessions(own: DataFrame, placed: _Placed, families: DataFrame) -> DataFrame:
    """The end of a session concerns wherever it had subscribed."""
    sessions = placed.subscribes.join(F.broadcast(families), ["history", "queue"])
    where = sessions.select("history", "session", "family")
    return _elsewhere(own.where(F.col("event") == "session_end"), where, ["history", "session"])


def _elsewhere(events: DataFrame, where: DataFrame, keys: list[str]) -> DataFrame:
    """Events for families other than their own."""
    others = where.withColumnRenamed("family", "other").distinct()
    found = events.join(others, keys).where(F.col("other") != F.col("family"))
    return found.withColumn("family", F.col("other"))
