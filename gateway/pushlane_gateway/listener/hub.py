"""What all connections of a listener share, handed to each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from pushlane.wire.limits import Limits
from pushlane_gateway.listener.budget import Budget
from pushlane_gateway.listener.counters import Counters
from pushlane_gateway.listener.flusher import Flusher
from pushlane_gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from pushlane_gateway.listener.socket import Socket


class Hub:
    def __init__(
        self, nursery: trio.Nursery, settings: GatewaySettings, limits: Limits, counters: Counters
    ) -> None:
        self.nursery = nursery
        """The parent of tasks that write to slow clients."""
        self.settings = settings
        self.limits = limits
        self.counters = counters
        self.flusher = Flusher()
        self.budget = Budget(settings.unauthenticated_total_bytes)
        """For what clients sent that are not authenticated …"""
        self.waiting = Budget(settings.waiting_bytes)
        """… and for what those sent in part that are."""
        self.sockets: set[Socket] = set()
        """The WebSockets that are open, for the watch."""
        self.idle: set[trio.CancelScope] = set()
        """The waits of connections without a request: over when the listener stops."""
        self.stopping = False
        """No new connections and no further requests on old ones."""

    def stop(self) -> None:
        self.stopping = True
        for scope in self.idle:
            scope.cancel()
