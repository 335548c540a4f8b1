"""What the requests of a server share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import trio
from starlette.requests import Request

from pushlane.wire.errors import Unauthorized, Unavailable
from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.node import Clock, Dispatcher
from pushlane_dispatcher.port import Caller, Door, QueueConfig, Waiter
from pushlane_gateway.auth.admission import Admission
from pushlane_gateway.auth.authenticator import Authenticator, bearer
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.refused import FailedLogins
from pushlane_gateway.http.settings import HttpSettings
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.pipe.pipes import Pipes
from pushlane_gateway.settings import DEFAULT_SETTINGS

T = TypeVar("T")


@dataclass(frozen=True)
class HttpContext:
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

    def __post_init__(self) -> None:
        self.dispatcher.remember(self.limits.resume_ms, self.settings.remembered)
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

    @contextmanager
    def door(self, identity: Identity, waiter: Waiter[T], *, make: bool = False) -> Iterator[Door]:
        """For one question, whose answer the waiter gets; who leaves no longer asks.

        `make`: a queue that is not there is made, where that is wanted.
        """
        template = self.template if make and self.auto_create else None
        caller = Caller(identity.tenant, self.admission.claims(identity), template)
        door = self.dispatcher.door(caller, waiter.fail)
        try:
            yield door
        finally:
            door.closed = True


def look_at(request: Request, context: HttpContext) -> Identity:
    """Raises Unauthorized, and leaves it to the caller whether that is a failed login."""
    found = request.headers.getlist("authorization")
    if len(found) > 1:
        raise Unauthorized("there are several Authorization headers: one is enough")
    return context.authenticator.authenticate(bearer(found[0] if found else None))


def identify(request: Request, context: HttpContext) -> Identity:
    """Raises Unauthorized."""
    try:
        return look_at(request, context)
    except Unauthorized as error:
        client = request.client
        context.failed_logins.note("" if client is None else f"{client.host}:{client.port}", error)
        raise
