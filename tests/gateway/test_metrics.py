"""Metrics: conventional text, bounded labels, nothing global."""

from __future__ import annotations

import prometheus_client
from prometheus_client.parser import text_string_to_metric_families

from pushlane_gateway.listener.counters import Counters
from pushlane_gateway.metrics import LABELS, SECONDS, Metrics


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    """By name and the values of all labels."""
    text = prometheus_client.generate_latest(metrics.registry()).decode()
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_everything_is_shown() -> None:
    metrics = Metrics()
    metrics.frames_in.add("publish", 3)
    metrics.errors.add("throttled")
    metrics.limits.add("outbox_bytes")
    metrics.published += 64
    metrics.gauge("sessions", "Sessions.", lambda: 7)
    metrics.gauges("store", "Store", lambda: {"commits": 5, "log_bytes": 6})
    found = samples(metrics)
    assert found["pushlane_frames_received_total", "publish"] == 3
    assert found["pushlane_errors_total", "throttled"] == 1
    assert found["pushlane_limits_reached_total", "outbox_bytes"] == 1
    assert found["pushlane_messages_published_total", ""] == 64
    assert found["pushlane_sessions", ""] == 7
    assert found["pushlane_store_commits", ""] == 5
    assert found["pushlane_store_log_bytes", ""] == 6
    assert found["pushlane_messages_delivered_total", ""] == 0


def test_two_servers_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.delivered += 1
    assert samples(one)["pushlane_messages_delivered_total", ""] == 1
    assert samples(other)["pushlane_messages_delivered_total", ""] == 0


def test_the_latency_histogram_is_cumulative() -> None:
    metrics = Metrics()
    for seconds in (0.0001, 0.0005, 0.003, 99.0):
        metrics.publish_seconds.observe(seconds)
    found = samples(metrics)
    name = "pushlane_publish_seconds_bucket"
    assert found[name, "0.0005"] == 2
    assert found[name, "0.005"] == 3
    assert found[name, str(SECONDS[-1])] == 3
    assert found[name, "+Inf"] == 4
    assert found["pushlane_publish_seconds_count", ""] == 4
    assert round(found["pushlane_publish_seconds_sum", ""], 4) == 99.0036


def test_what_the_listener_counts() -> None:
    metrics, counters = Metrics(), Counters()
    metrics.listener(counters)
    counters.accepted += 3
    counters.refusal(403)
    counters.closed(4999)
    found = samples(metrics)
    assert found["pushlane_listener_accepted_total", ""] == 3
    assert found["pushlane_listener_refusals_total", "403"] == 1
    assert found["pushlane_listener_closes_total", "4000"] == 1


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for n in range(10 * LABELS):
        metrics.frames_in.add(f"op-{n}")
    assert len(metrics.frames_in.counts) <= LABELS + 1
    assert sum(metrics.frames_in.counts.values()) == 10 * LABELS
    assert metrics.frames_in.counts["other"] == 9 * LABELS
