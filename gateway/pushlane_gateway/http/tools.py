"""What the requests of a server share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from pushlane.wire.errors import Unavailable
from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.node import Clock, Dispatcher
from pushlane_dispatcher.port import Caller, QueueConfig, Receiving
from pushlane_gateway.auth.admission import Admission
from pushlane_gateway.auth.authenticator import Authenticator
from pushlane_gateway.auth.failed_logins import FailedLogins
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.http.settings import HttpSettings
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.pipe.pipes import Pipes
from pushlane_gateway.settings import DEFAULT_SETTINGS


@dataclass(frozen=True)
class HttpTools:
    dispatcher: Dispatcher
    authenticator: Authenticator
    origins: Callable[[str | None, str | None], bool]
    """Whether a request with this Origin and this Host may go on."""
    pipes: Pipes
    metrics: Metrics = field(default_factory=Metrics)
    limits: Limits = DEFAULTS
    settings: HttpSettings = field(default_factory=HttpSettings)
    auto_create: bool = True
    """A queue is made by the first publish to it or receive from it …"""
    template: QueueConfig = field(default_factory=QueueConfig)
    """… with this configuration."""
    failed_logins: FailedLogins = field(default_factory=FailedLogins)
    unauthenticated_bytes: int = DEFAULT_SETTINGS.unauthenticated_bytes
    """The most of a body whose sender nobody knows."""
    draining: trio.Event = field(default_factory=trio.Event)
    """Set when the server is about to stop: waiting receives end, nothing new is taken on."""
    receiving: Receiving = field(init=False)

    def __post_init__(self) -> None:
        remembered = self.settings.remembered
        receiving = Receiving(self.dispatcher, self.limits.resume_ms, remembered)
        object.__setattr__(self, "receiving", receiving)
        admission = self.admission
        polls = admission.limit("polls", self.settings.polls, "waiting receives")
        admission.limit("peeks", self.settings.peeks, "peeks under way")
        admission.limit("answers_bytes", self.settings.answers_bytes, "bytes of answers")
        self.metrics.gauge("http_polls", "Receives that wait.", lambda: polls.taken)
        self.metrics.gauges("in_use", "In use of a shared limit", admission.taken)

    @property
    def admission(self) -> Admission:
        return self.pipes.admission

    @property
    def clock(self) -> Clock:
        return self.dispatcher.clock

    def check_going(self) -> None:
        """Raise when the server is about to stop."""
        if self.draining.is_set():
            raise Unavailable("the server is about to stop: ask another one", retry_ms=1_000)

    def caller(self, identity: Identity, *, make: bool = False) -> Caller:
        """Who asks; `make`: a queue that is not there is made, where that is wanted."""
        template = self.template if make and self.auto_create else None
        return Caller(identity.tenant, self.admission.claims(identity), template)
