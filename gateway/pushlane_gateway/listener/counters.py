"""How often what happened at the listener: one plain integer each, which metrics.py reads.

Incrementing an attribute costs nothing on the hot path, and the listener needs to know nothing of
how metrics are shown. Every bound of `GatewaySettings` that a client can meet has its counter.
"""

from __future__ import annotations


def close_label(code: int) -> int:
    """Clients may close with any code of their own."""
    return code if code < 3000 or code in (4001, 4002) else 4000


class Counters:
    def __init__(self) -> None:
        self.accepted = 0
        """Connections accepted, also those refused at once."""
        self.refused = 0
        """Connections over `connections`."""
        self.accept_failures = 0
        """Accepts that failed for want of something, most likely file descriptors."""
        self.tls_failures = 0
        """TLS handshakes that failed."""
        self.certificate_failures = 0
        """Changed certificate files that could not be used."""
        self.requests = 0
        """HTTP requests that reached the app."""
        self.upgrades = 0
        """WebSockets opened."""
        self.refusals: dict[int, int] = {}
        """Requests that the listener itself answered, by status: 400, 403, 408, 413, 431, …"""
        self.late_heads = 0
        """Connections cut by `head_ms`."""
        self.idle_ends = 0
        """Connections closed by `keep_alive_ms`."""
        self.stalled_bodies = 0
        """Requests ended by `body_stall_ms`."""
        self.slow_bodies = 0
        """Requests ended by `body_rate` or `body_ms`."""
        self.overloads = 0
        """Connections cut by `unauthenticated_total_bytes` or `waiting_bytes`."""
        self.floods = 0
        """WebSockets closed, and requests refused, by `tiny_frames`."""
        self.stalled_writes = 0
        """Connections cut by `write_stall_ms`."""
        self.silent = 0
        """WebSockets cut by `silence_ms`."""
        self.pings = 0
        """WebSocket pings sent by `ping_ms`."""
        self.overflows = 0
        """WebSockets cut by `outbox_bytes`."""
        self.late_closes = 0
        """WebSocket closes cut by `close_ms`."""
        self.failures = 0
        """Errors of ours that a connection ran into."""
        self.closes: dict[int, int] = {}
        """WebSockets that ended, by close code; codes of applications we don't know are 4000."""

    def refusal(self, status: int) -> None:
        self.refusals[status] = self.refusals.get(status, 0) + 1

    def closed(self, code: int) -> None:
        label = close_label(code)
        self.closes[label] = self.closes.get(label, 0) + 1
