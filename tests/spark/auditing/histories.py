"""Histories for the audit: of several queues that know nothing of each other, or a little."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from pushlane_history.checker import check
from pushlane_history.event import Begin, Event
from pushlane_history.rule import Report
from pushlane_spark.auditing.lines import LINES
from pushlane_spark.auditing.report import audit_lines
from tests.history.model import Model, as_clients_saw_it

History = list[Event]
LABELS = ("queue", "to", "uid", "receipt", "sub", "session", "node")
OPS = 1_000_000


def lines_of(spark: SparkSession, histories: dict[str, History]) -> DataFrame:
    rows = [
        (name, "f", 0, row, msgspec.json.encode(event).decode())
        for name, history in histories.items()
        for row, event in enumerate(history)
    ]
    return spark.createDataFrame(rows, LINES)


def agree(spark: SparkSession, histories: dict[str, History]) -> dict[str, Report]:
    """The reports of the audit, which are those of the checker."""
    found = audit_lines(lines_of(spark, histories).coalesce(1))
    for name, history in histories.items():
        expected, report = check(history), found[name]
        assert report.broken == expected.broken, (name, str(report), str(expected))
        assert (report.events, report.notes) == (expected.events, expected.notes), name
        assert report.faults == expected.faults, name
        told = sorted((one.rule, one.message) for one in report.violations)
        assert told == sorted((one.rule, one.message) for one in expected.violations), name
        assert all(one.evidence for one in report.violations), name
    return found


def renamed(history: History, number: int) -> History:
    """The same of other queues: nothing in it is named as in another's."""
    return [_renamed(event, number) for event in history]


def _renamed(event: Event, number: int) -> Event:
    changes: dict[str, Any] = {}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name in LABELS and value:
            changes[name] = f"{number}.{value}"
        elif name == "op":
            changes[name] = value + number * OPS
        elif name in ("uids", "queues"):
            changes[name] = [f"{number}.{one}" for one in value]
    return msgspec.structs.replace(event, **changes)


def mixed(random: Random, histories: list[History]) -> History:
    """Several histories as one, each in its own order."""
    left = [list(reversed(history[1:])) for history in histories]
    found: History = [histories[0][0]]
    while any(left):
        found.append(random.choice([one for one in left if one]).pop())
    assert isinstance(found[0], Begin)
    return found


def strange(random: Random, history: History, changes: int) -> History:
    """Some events missing, doubled, swapped, or about what another one is about."""
    history = list(history)
    for _ in range(changes):
        at = random.randrange(1, len(history) - 1)
        match random.choice(("drop", "double", "swap", "confuse", "confuse")):
            case "drop":
                del history[at]
            case "double":
                history.insert(at, history[at])
            case "swap":
                history[at], history[at + 1] = history[at + 1], history[at]
            case _:
                history[at] = _confused(history[at], random.choice(history))
    return history


def _confused(event: Event, other: Event) -> Event:
    """With one label of another event."""
    names = ("queue", "to", "uid", "receipt", "sub", "session", "op", "id")
    fields = set(event.__struct_fields__) & set(other.__struct_fields__)
    shared = [name for name in names if name in fields]
    changes = {name: getattr(other, name) for name in shared[:1]}
    return msgspec.structs.replace(event, **changes)


def random_history(seed: int) -> History:
    random = Random(seed)
    count = random.choice((1, 3, 3))
    gaps = random.random() < 0.2
    models = [Model(seed * 10 + n, gaps=gaps).run(random.randrange(5, 60)) for n in range(count)]
    history = mixed(random, [renamed(model, n) for n, model in enumerate(models)])
    history = strange(random, history, random.choice((0, 0, 1, 4)))
    return as_clients_saw_it(history) if random.random() < 0.4 else history
