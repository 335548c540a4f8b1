"""A server on the run's Cassandra and Redis."""

from __future__ import annotations

import os

from pushlane import testing
from tests.services import service

BEAT_MS = 200
JUDGE_MS = 1_000
"""A server that was killed is missed for this long. None that lives is ever judged here: whoever
wants its slots is started after its end."""
ADOPT_MS = 1_000
"""What was only prefetched waits for this long after a crash."""
PATIENCE_S = 60.0


def replicated_server(name: str) -> testing.server:
    """It has a keyspace to itself, which is used again by the next one of this name."""
    return testing.server(
        store=service("cassandra").cassandra_url(f"behaviour_{os.getpid()}_{name}"),
        arguments=[
            *("--leases", service("redis").redis_url),
            *("--set", f"cassandra.beat_ms={BEAT_MS}"),
            *("--set", f"cassandra.judge_ms={JUDGE_MS}"),
            *("--set", f"shard.adopt_ms={ADOPT_MS}"),
        ],
        start_s=PATIENCE_S,
        stop_s=PATIENCE_S,
    )
