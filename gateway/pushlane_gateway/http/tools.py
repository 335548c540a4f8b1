"""What the requests of a server share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import trio

from pushlane.wire.errors import Throttled, Unavailable
from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.node import Clock, Dispatcher, QueueConfig
from pushlane_dispatcher.open_queue import OpenQueue
from pushlane_gateway.auth.authenticator import Authenticator
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.http.settings import HttpSettings
from pushlane_gateway.http.settled import Settled
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.pipe.pipes import Pipes


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
    draining: trio.Event = field(default_factory=trio.Event)
    """Set when the server is about to stop: waiting receives end, nothing new is taken on."""
    polls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By tenant and name: receives that wait."""
    turns: Iterator[int] = field(default_factory=count)
    """Numbers the receives: each begins with another shard."""
    settled: Settled = field(init=False)

    def __post_init__(self) -> None:
        settled = Settled(self.limits.resume_ms, self.settings.remembered)
        object.__setattr__(self, "settled", settled)
        self.metrics.gauge("http_polls", "Receives that wait.", self.polls.total)

    @property
    def clock(self) -> Clock:
        return self.dispatcher.clock

    def check_going(self) -> None:
        """Raise when the server is about to stop."""
        if self.draining.is_set():
            raise Unavailable("the server is about to stop: ask another one", retry_ms=1_000)

    async def open(self, tenant: str, name: str) -> OpenQueue:
        """A queue to publish to or receive from; it is made when that is wanted."""
        found = self.dispatcher.opened(tenant, name)
        if found is not None:
            return found
        if self.auto_create:
            await self.dispatcher.ensure(tenant, name, self.template)
        return await self.dispatcher.open(tenant, name)

    @contextmanager
    def polling(self, identity: Identity) -> Iterator[None]:
        """One more receive of this identity waits."""
        who = identity.tenant, identity.name
        if self.polls[who] >= self.settings.polls:
            most = self.settings.polls
            raise Throttled(f"{most} receives wait already", retry_ms=1_000, limit="polls")
        self.polls[who] += 1
        try:
            yield
        finally:
            self.polls[who] -= 1
            if not self.polls[who]:
                del self.polls[who]
