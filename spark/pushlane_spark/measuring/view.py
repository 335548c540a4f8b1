"""What one reader may see: an operator everything, a tenant its own queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pushlane_spark.measuring.anomalies import Anomaly
from pushlane_spark.measuring.series import Counted, Counters, together
from pushlane_spark.measuring.stored import HotKey, Stored
from pushlane_spark.period import Minutes

Place = tuple[str, str]
"""Tenant and queue."""


class Moment(NamedTuple):
    """A window of time."""

    window: int
    minutes: int
    """How much of it lies in the period."""
    counters: Counters


class View(NamedTuple):
    tenant: str | None
    """None: all of them."""
    period: Minutes
    step: int
    moments: list[Moment]
    """All windows of the period in order, also those in which nothing was counted."""
    total: Counters
    queues: dict[Place, Counters]
    shards: dict[Place, dict[int, int]]
    anomalies: list[Anomaly]
    keys: list[HotKey]
    states: dict[Place, dict[str, int]]
    sizes: dict[int, int]
    bytes: dict[Place, int]
    damaged: int

    def name(self, place: Place) -> str:
        """Of a queue: a tenant knows whose it is."""
        return "/".join(place) if self.tenant is None else place[1]


def make_view(
    tenant: str | None,
    period: Minutes,
    step: int,
    counted: Counted,
    anomalies: list[Anomaly],
    stored: Stored,
) -> View:
    def own(place: Place) -> bool:
        return tenant is None or place[0] == tenant

    by_window: dict[int, list[Counters]] = {}
    for (whose, window), counters in counted.windows.items():
        if tenant is None or whose == tenant:
            by_window.setdefault(window, []).append(counters)
    moments = [
        Moment(window, minutes, together(by_window.get(window, [])))
        for window, minutes in _windows(period, step)
    ]
    sizes: Counters = together(
        {str(number): n for number, n in bins.items()}
        for place, bins in stored.sizes.items()
        if own(place)
    )
    return View(
        tenant,
        period,
        step,
        moments,
        together(counters for place, counters in counted.queues.items() if own(place)),
        {place: found for place, found in counted.queues.items() if own(place) and place[1]},
        {place: found for place, found in counted.shards.items() if own(place)},
        [anomaly for anomaly in anomalies if own((anomaly.tenant, anomaly.queue))],
        [key for key in stored.keys if own((key.tenant, key.queue))],
        {place: states for place, states in stored.states.items() if own(place)},
        {int(number): n for number, n in sizes.items()},
        {place: size for place, size in stored.bytes.items() if own(place)},
        sum(n for place, n in stored.damaged.items() if own(place)),
    )


def _windows(period: Minutes, step: int) -> Iterator[tuple[int, int]]:
    for window in range(period.first - period.first % step, period.end, step):
        yield window, min(window + step, period.end) - max(window, period.first)
