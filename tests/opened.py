"""Openings without trio, on plain tables: what `core.opening` wants is done on the spot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from pushlane_dispatcher.core import opening as steps
from pushlane_dispatcher.core.opening import Opening, Table
from pushlane_dispatcher.core.shard import Moment
from pushlane_storage.bucket import ShardKey
from pushlane_storage.memory import MemoryTables
from pushlane_storage.seal import ShardRows

if TYPE_CHECKING:
    from tests.simulation.tables import SimulatedTables

T = TypeVar("T")


def reading(
    tables: MemoryTables | SimulatedTables, key: ShardKey, moment: Callable[[], Moment]
) -> Table:
    """Of an owner that has its slot to itself, counts no usage, and caches no marks."""
    return {
        steps.ReadOutline: lambda _: tables.outline(key),
        steps.ReadHeads: lambda step: tables.heads(key, step.bucket),
        steps.ReadSettlements: lambda step: tables.settlements(key, step.bucket),
        steps.ReadMessages: lambda step: tables.messages(key, step.bucket, step.seqs),
        steps.AskTime: lambda _: moment(),
        steps.SpendEpoch: lambda _: True,
        steps.ReadTally: lambda _: None,
        steps.RecallMarks: lambda _: None,
    }


def carry_out(opening: Opening[T], table: Table) -> T:
    answer = None
    while True:
        try:
            step = opening.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        if type(step) is steps.Together:
            answer = None
            for part in step.openings:
                carry_out(part, table)
        else:
            answer = table[type(step)](step)


def rows_of(table: Table) -> ShardRows:
    return carry_out(steps.read_rows(), table)
