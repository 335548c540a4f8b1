"""The queues of the test, and what its clients do: shares, rates and times, in one place."""

from __future__ import annotations

from typing import Any

from tests.stress.judge import MAX_ATTEMPTS, MAX_DELIVERIES

LEASE_MS = 1_500
SOON: dict[str, Any] = {
    "lease_ms": LEASE_MS,
    "reserve_ms": 4_000,
    "backoff_base_ms": 20,
    "backoff_max_ms": 400,
    "consumer_backoff_base_ms": 10,
    "consumer_backoff_max_ms": 200,
}
WORK, KEYS, JUNK, SMALL = "work", "keys", "junk", "small"
"""WORK: everything but purges and deletes. KEYS: messages with keys, which never die. JUNK: purged,
deleted and made again, with limits that change. SMALL: filled up to its limit, and emptied in the
calm."""
SMALL_LIMIT = 200
DIES = {"max_attempts": MAX_ATTEMPTS, "max_deliveries": MAX_DELIVERIES}
LIVES = {"max_attempts": 1_000, "max_deliveries": 10_000}
CONFIGS: dict[str, dict[str, Any]] = {
    WORK: {**SOON, **DIES, "shards": 4},
    KEYS: {**SOON, **LIVES, "shards": 3},
    JUNK: {**SOON, **DIES, "shards": 2, "max_messages": 300, "overflow": "drop_oldest"},
    SMALL: {**SOON, **LIVES, "shards": 4, "max_messages": SMALL_LIMIT},
}
DEAD = [f"{WORK}.dead", f"{JUNK}.dead"]
QUEUES = [*CONFIGS, *DEAD]

KEY_COUNT = 12
PRODUCERS = ("websocket", "websocket", "pipe", "http")
CONSUMERS = (
    (WORK, "websocket"), (WORK, "websocket"), (WORK, "pipe"), (WORK, "http"),
    (KEYS, "websocket"), (KEYS, "websocket"), (KEYS, "http"),
    (JUNK, "websocket"), (JUNK, "http"), (f"{WORK}.dead", "websocket"),
)  # fmt: skip
