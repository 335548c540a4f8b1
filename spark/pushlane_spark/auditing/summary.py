"""What an audit found, as one report on all histories."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from pushlane_storage.history.event import Event
from pushlane_storage.history.rule import Report


class Judged(msgspec.Struct, frozen=True):
    history: str
    events: int
    violations: int


class Found(msgspec.Struct, frozen=True):
    history: str
    rule: str
    message: str
    evidence: tuple[Event, ...]


class AuditReport(msgspec.Struct):
    ok: bool
    broken: dict[str, int]
    """How often each rule was broken."""
    histories: list[Judged]
    violations: list[Found]
    """The first ones of each history, with their evidence."""


def summary(reports: Mapping[str, Report]) -> AuditReport:
    broken: dict[str, int] = {}
    found = AuditReport(all(report.ok for report in reports.values()), broken, [], [])
    for path, report in reports.items():
        counts = sum(report.events.values()), sum(report.broken.values())
        found.histories.append(Judged(path, *counts))
        for rule, count in report.broken.items():
            broken[rule] = broken.get(rule, 0) + count
        found.violations += [
            Found(path, one.rule, one.message, one.evidence) for one in report.violations
        ]
    return found
