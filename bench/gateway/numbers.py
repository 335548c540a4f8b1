"""What one measurement gave: the union of what the files of node/measures answer."""

from __future__ import annotations

import msgspec


class Numbers(msgspec.Struct, omit_defaults=True):
    rate: float = 0.0
    """Messages a second."""
    messages: int = 0
    seconds: float = 0.0
    server_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    missing: int = 0
    """Acknowledged, and not delivered in time."""
    again: int = 0
    """Delivered more than once."""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    stored_p50_ms: float = 0.0
    """From a publish to its answer."""
    fill_rate: float = 0.0
    kib: float = 0.0
    consumers: int = 0
    spread: float = 0.0
    """How much less than the best served consumer the worst served one got, as a share."""
    free: float = 0.0
    """The others' rate before one is stuck …"""
    beside: float = 0.0
    """… and while it is."""
