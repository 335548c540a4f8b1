"""What a node knows of the others, for `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from pushlane_gateway.metrics import Metrics


class Cluster(Protocol):
    """What the dispatcher of a node says of its cluster."""

    def numbers(self) -> Mapping[str, float]: ...

    def link_numbers(self) -> Mapping[str, float]: ...

    def link_words(self, which: Literal["ends", "refusals", "unreached"]) -> Mapping[str, int]: ...

    def node_states(self) -> Mapping[str, float]: ...

    def breakers(self) -> Mapping[str, float]: ...

    def latencies(self) -> Mapping[str, float]: ...


def show_cluster(metrics: Metrics, cluster: Cluster) -> None:
    """Names of nodes are a label: there are as many as the operator starts."""
    metrics.gauges("cluster", "Cluster", cluster.numbers)
    metrics.gauges_by("cluster_nodes", "Nodes by state.", "state", cluster.node_states)
    metrics.gauges_by(
        "cluster_breakers", "Other nodes by the state of their circuit breaker.", "state",
        cluster.breakers,
    )  # fmt: skip
    metrics.gauges_by(
        "cluster_latency_seconds", "How long a node's last answer took.", "node", cluster.latencies
    )
    metrics.gauges("links", "Links between nodes", cluster.link_numbers)
    words: Callable[[Literal["ends", "refusals", "unreached"]], Mapping[str, int]]
    words = cluster.link_words
    metrics.counter("link_ends", "Links that ended.", "code", lambda: words("ends"))
    metrics.counter(
        "link_refusals", "Links that this node refused.", "code", lambda: words("refusals")
    )
    metrics.counter(
        "link_failures", "Links that this node could not get.", "code", lambda: words("unreached")
    )
