"""The queues of the test, and what its clients do: shares, rates and times, in one place."""

from __future__ import annotations

from typing import Any

import pushlane
from pushlane_history.event import QueueSet

LEASE_MS = 1_000
WORK, JOBS, POLLED = "work", "jobs", "polled"
"""WORK has keys and never gives a message up. JOBS has none, and dead letters after five attempts:
of a message that died, nobody could say when the next one of its key was due. POLLED is like WORK,
for consumers over plain HTTP: with their small credit they would get nothing beside others."""
PLENTY = 1_000

SOON = {
    "lease_ms": LEASE_MS,
    "backoff_base_ms": 20,
    "backoff_max_ms": 400,
    "consumer_backoff_base_ms": 10,
    "consumer_backoff_max_ms": 100,
}
CONFIGS: dict[str, dict[str, Any]] = {
    WORK: {**SOON, "max_attempts": PLENTY, "max_deliveries": PLENTY},
    JOBS: {**SOON, "max_attempts": 5, "max_deliveries": 50, "shards": 2},
    POLLED: {**SOON, "max_attempts": PLENTY, "max_deliveries": PLENTY},
}
DEAD = {name: f"{name}.dead" for name in CONFIGS}
QUEUES = [*CONFIGS, *DEAD.values()]
RULES = ("max_attempts", "max_deliveries")

KEYS = [f"k{n}" for n in range(24)]
CREDIT = 64
SETTINGS = pushlane.Settings(backoff_max_ms=200)
"""Back soon: no connection lives long enough here to be called stable, so with the usual backoff
most of the clients would be waiting at most times, and the server be killed without load."""
IMPATIENT = pushlane.Settings(backoff_max_ms=200, publish_ms=400)
"""It gives up while the server is gone: then nobody knows whether its message was stored."""
SLOW_S = 1.4
"""Longer than a lease."""


def queue_sets() -> list[QueueSet]:
    """The configurations, as the checker wants to know them."""
    return [
        QueueSet(0, name, **{rule: config[rule] for rule in RULES})
        for name, config in CONFIGS.items()
    ]
