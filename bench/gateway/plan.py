"""How much is measured: a whole run, or a quick one that only shows that everything works."""

from __future__ import annotations

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    rounds: int = 3
    warm_s: float = 1.0
    run_s: float = 4.0
    drain_s: float = 60.0
    window: int = 256
    """Unacknowledged publishes of a producer."""
    credit: int = 256
    rate: int = 1_000
    """Messages a second of the slow pace."""
    paced_s: float = 6.0
    idle: int = 5_000
    idle_before: int = 200
    fair: int = 64
    crowd: int = 1_000
    stuck_rounds: int = 5
    stuck_s: float = 3.0
    """How long a stuck consumer is watched: less than the server gives it before it must go."""
    clog: int = 10_000
    """Messages that fill the stuck consumer's socket: 10 MB."""
    backlog: int = 1_000_000


WHOLE = Plan()
QUICK = Plan(
    rounds=1,
    warm_s=0.3,
    run_s=1.0,
    drain_s=20.0,
    paced_s=1.0,
    idle=300,
    idle_before=50,
    crowd=50,
    stuck_rounds=1,
    stuck_s=1.0,
    backlog=20_000,
)
