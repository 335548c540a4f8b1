"""What the gateway counts, for `/metrics`.

One `Metrics` is made by the server and handed down; nothing is registered globally, so a process
(a test, say) can have several. The hot path only adds to plain integers: a counter of
prometheus-client takes a lock each time, which would cost as much as a small message. They become
metric families when somebody asks (`collect`).

Labels are bounded: ops, error codes, limits and reasons are words of the protocol or of this
package; whatever else comes in is counted as `other`. Names of queues are never labels.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from pushlane.wire.errors import PushlaneError
from pushlane_gateway.listener.counters import Counters

LABELS = 128
"""The most values of one label; the words of the protocol, and all limits, are fewer."""

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency histogram: a commit takes from half a millisecond on."""


class Words:
    """A counter with one label of few values."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Added to as it is where the words are the protocol's own."""

    def add(self, word: str, count: int = 1) -> None:
        counts = self.counts
        if word not in counts and len(counts) >= LABELS:
            word = "other"
        counts[word] += count


class Histogram:
    """Observations by upper bound."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as the text format wants them."""
        seen = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, SECONDS), "+Inf"], self.counts, strict=True):
            seen += count
            found.append((bound, seen))
        return found


class Metrics(Collector):
    def __init__(self) -> None:
        self.frames_in = Words()
        self.frames_out = Words()
        self.errors = Words()
        self.limits = Words()
        """Limits that were reached, by name."""
        self.goaways = Words()
        self.http_requests = Words()
        self.http_answers = Words()
        self.resumes = Words()
        self.pipe_closes = Words()
        self.pipes_opened = 0
        self.published = 0
        self.delivered = 0
        self.redelivered = 0
        """Sent again to a resumed session, under the same receipts."""
        self.settled = Words()
        """Receipts that succeeded, by op."""
        self.failed_logins = 0
        self.refused_origins = 0
        self.faults = 0
        """Bugs of ours that ended a session."""
        self.publish_seconds = Histogram()
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._groups: dict[str, tuple[str, Callable[[], Mapping[str, float]]]] = {}
        self._labelled: dict[str, tuple[str, str, Callable[[], Mapping[str, float]]]] = {}
        self._counters: dict[str, tuple[str, str, Callable[[], Mapping[str, float]]]] = {}
        self._listeners: list[Counters] = []

    def refused(self, error: PushlaneError) -> None:
        """A client is told of an error."""
        self.errors.add(error.code)
        if error.limit is not None:
            self.limits.add(error.limit)

    def refused_limit(self, error: PushlaneError) -> None:
        """A limit was reached, and nobody is told."""
        assert error.limit is not None
        self.limits.add(error.limit)

    def gauge(self, name: str, help: str, value: Callable[[], float]) -> None:
        """Something that is asked for its value when it is needed."""
        self._gauges[name] = help, value

    def gauges(self, name: str, help: str, values: Callable[[], Mapping[str, float]]) -> None:
        """Several at once, each under this name and its own."""
        self._groups[name] = help, values

    def gauges_by(
        self, name: str, help: str, label: str, values: Callable[[], Mapping[str, float]]
    ) -> None:
        """Several at once, told apart by a label."""
        self._labelled[name] = help, label, values

    def counter(
        self, name: str, help: str, label: str, values: Callable[[], Mapping[str, float]]
    ) -> None:
        """What somebody else counts, by one label."""
        self._counters[name] = help, label, values

    def listener(self, counters: Counters) -> None:
        """Show what a listener counts, too."""
        self._listeners.append(counters)

    def registry(self) -> CollectorRegistry:
        """A registry of its own with all of this in it."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def collect(self) -> Iterator[Metric]:
        for name, (help, value) in self._gauges.items():
            yield GaugeMetricFamily(f"pushlane_{name}", help, value())
        for name, (help, values) in self._groups.items():
            for part, number in values().items():
                yield GaugeMetricFamily(
                    f"pushlane_{name}_{part}", f"{help}: {part.replace('_', ' ')}.", number
                )
        for name, (help, label, values) in self._labelled.items():
            gauge = GaugeMetricFamily(f"pushlane_{name}", help, labels=[label])
            for word, number in values().items():
                gauge.add_metric([word], number)
            yield gauge
        for name, (help, label, values) in self._counters.items():
            yield _labelled(name, help, label, values())
        for name, help, label, words in (
            ("frames_received", "Frames from clients.", "op", self.frames_in),
            ("frames_sent", "Frames to clients.", "op", self.frames_out),
            ("errors", "Errors that clients were told.", "code", self.errors),
            ("limits_reached", "Limits that were reached.", "limit", self.limits),
            ("http_requests", "Requests of the HTTP API.", "operation", self.http_requests),
            ("http_answers", "Answers of the HTTP API.", "status", self.http_answers),
            ("goaways", "Sessions that were told to go away.", "reason", self.goaways),
            ("resumes", "Resumes that clients asked for.", "outcome", self.resumes),
            ("pipe_closes", "Pipes that ended, by close code.", "code", self.pipe_closes),
            ("messages_settled", "Receipts that were settled.", "op", self.settled),
        ):
            yield _labelled(name, help, label, words.counts)
        for name, help, number in (
            ("pipes_opened", "Pipes that were opened.", self.pipes_opened),
            ("messages_published", "Messages stored for publishers.", self.published),
            ("messages_delivered", "Messages pushed to consumers.", self.delivered),
            ("messages_redelivered", "Messages sent again on resume.", self.redelivered),
            ("refused_origins", "Requests of pages that may not.", self.refused_origins),
            ("failed_logins", "Credentials that were refused.", self.failed_logins),
            ("session_faults", "Sessions that ended by a bug.", self.faults),
        ):
            yield CounterMetricFamily(f"pushlane_{name}", help, number)
        for counters in self._listeners:
            yield from _listener_families(counters)
        yield HistogramMetricFamily(
            "pushlane_publish_seconds",
            "From a publish frame to its answer.",
            self.publish_seconds.buckets(),
            self.publish_seconds.total,
        )


def _labelled(name: str, help: str, label: str, counts: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(f"pushlane_{name}", help, labels=[label])
    for word, count in counts.items():
        family.add_metric([word], count)
    return family


def _listener_families(counters: Counters) -> Iterator[Metric]:
    """Plain counters, and those by HTTP status or close code."""
    for name, value in vars(counters).items():
        metric = f"pushlane_listener_{name}"
        if isinstance(value, int):
            yield CounterMetricFamily(metric, f"Listener: {name.replace('_', ' ')}.", value)
            continue
        family = CounterMetricFamily(metric, f"Listener: {name}, by code.", labels=["code"])
        for code, count in value.items():
            family.add_metric([str(code)], count)
        yield family
