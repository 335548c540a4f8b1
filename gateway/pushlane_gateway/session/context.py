"""What the sessions of a server share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.node import Clock, Dispatcher, QueueConfig
from pushlane_gateway.auth.admission import Admission
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.refused import FailedLogins
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.session.settings import SessionSettings
from pushlane_gateway.session.timers import Timers


@dataclass(frozen=True)
class SessionContext:
    dispatcher: Dispatcher
    authenticate: Callable[[str | None], Identity]
    """Whose token it is; raises Unauthorized."""
    nursery: trio.Nursery
    limits: Limits = DEFAULTS
    settings: SessionSettings = field(default_factory=SessionSettings)
    auto_create: bool = True
    """A queue is made by the first publish to it or subscription of it …"""
    template: QueueConfig = field(default_factory=QueueConfig)
    """… with this configuration."""
    metrics: Metrics = field(default_factory=Metrics)
    timers: Timers = field(default_factory=Timers)
    node: str = "node"
    server: str = "pushlane"
    chance: Callable[[], float] = random.random
    failed_logins: FailedLogins = field(default_factory=FailedLogins)
    still_valid: Callable[[Identity], bool] = lambda _: True
    """Whether an identity from before still counts: its key may have been revoked."""
    admission: Admission = field(default_factory=Admission)

    @property
    def clock(self) -> Clock:
        return self.dispatcher.clock
