"""Usage as people ask for it: summed up over nodes and minutes, latencies as percentiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from pushlane_storage.usage import TALLY_MINUTE, Usage, bounds_of, merge

MINUTE_MS = 60_000
LATENCIES = ("publish_ms", "delivery_ms", "ack_ms")
SHARES = (50, 90, 99)


class Latency(msgspec.Struct, frozen=True):
    """Percentiles in milliseconds, at most a fifth above the true ones."""

    count: int
    p50: int
    p90: int
    p99: int


class UsagePoint(msgspec.Struct, frozen=True):
    """What one queue did in one stretch of time; without a queue's name, what the tenant did."""

    queue: str
    at: int
    """When the stretch begins: Unix milliseconds."""
    counters: dict[str, int]
    latencies: dict[str, Latency] = {}
    """By name: publish_ms, delivery_ms, ack_ms."""


class Report:
    """Rows in, points out."""

    def __init__(self, step: int) -> None:
        """`step`: minutes in a stretch."""
        self._step = step
        self._sums: dict[tuple[str, int], dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def add(self, rows: Iterable[Usage]) -> None:
        for row in rows:
            if row.key.minute != TALLY_MINUTE:
                at = row.key.minute // self._step * self._step * MINUTE_MS
                merge(self._sums.setdefault((row.key.queue, at), {}), row.counters)

    def points(self) -> list[UsagePoint]:
        """By queue and time."""
        return [_point(queue, at, sums) for (queue, at), sums in sorted(self._sums.items())]


def _point(queue: str, at: int, sums: Mapping[str, int]) -> UsagePoint:
    counters: dict[str, int] = {}
    bins: dict[str, dict[int, int]] = {}
    for name, value in sorted(sums.items()):
        kind, _, number = name.partition(".")
        if kind in LATENCIES:
            bins.setdefault(kind, {})[int(number)] = value
        else:
            counters[name] = value
    return UsagePoint(queue, at, counters, {kind: latency_of(bins[kind]) for kind in bins})


def latency_of(bins: Mapping[int, int]) -> Latency:
    """Of a histogram that is not empty; each percentile is the longest of its bin."""
    count = sum(bins.values())
    found: list[int] = []
    passed = 0
    for number in sorted(bins):
        passed += bins[number]
        while len(found) < len(SHARES) and passed * 100 >= SHARES[len(found)] * count:
            found.append(bounds_of(number)[1] - 1)
    return Latency(count, *found)
