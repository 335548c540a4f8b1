"""What the HTTP tests are made of: the app over a real dispatcher on the memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import trio

from pushlane.wire.limits import DEFAULTS, MIB, Limits
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.settings import Settings
from pushlane_gateway.auth.authenticator import Authenticator, open_authenticator
from pushlane_gateway.auth.origin import OriginPolicy
from pushlane_gateway.auth.refused import FailedLogins
from pushlane_gateway.auth.settings import AuthSettings
from pushlane_gateway.http.app import make_app
from pushlane_gateway.http.context import HttpContext
from pushlane_gateway.http.settings import HttpSettings
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.pipe.pipes import Pipes
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.sessions import Sessions
from pushlane_gateway.session.settings import SessionSettings
from pushlane_leases.memory import MemoryLeases
from pushlane_storage.memory import MemoryStore
from pushlane_storage.queue import QueueConfig
from tests.dispatcher.rig import START, TENANT, blocked, memory_store, mock_clock
from tests.gateway.auth.tools import SIGNING, make_token
from tests.gateway.http.client import Client

__all__ = ["START", "TENANT", "Rig", "blocked", "rig"]


class Rig(Client):
    """A client, and what stands behind it."""

    def __init__(
        self,
        context: HttpContext,
        nursery: trio.Nursery,
        keys: Path | None,
        authenticator: Any,
        sessions: Sessions,
    ) -> None:
        self.app = make_app(context)
        super().__init__(self.app, nursery)
        self.context = context
        self.dispatcher: Dispatcher = context.dispatcher
        self.metrics = context.metrics
        self.sessions = sessions
        self._keys = keys
        self._authenticator = authenticator

    async def queue(self, name: str = "q", **config: Any) -> None:
        await self.dispatcher.ensure(TENANT, name, QueueConfig(**config))

    async def subscriptions(self, name: str = "q") -> int:
        """How many the shards of a queue know."""
        return (await self.dispatcher.stats(TENANT, name)).subscriptions

    def limit(self, name: str) -> int:
        """How often a limit was reached."""
        return self.metrics.limits.counts[name]

    def caller(self, *rules: str, tenant: str = "default") -> Client:
        """Somebody with a key that has these rights."""
        assert self._keys is not None
        _, token = make_token(self._keys, *rules, tenant=tenant)
        self._authenticator.reload()
        return Client(self.app, self._nursery, {"authorization": f"Bearer {token}"})


@asynccontextmanager
async def rig(
    store: MemoryStore | None = None,
    *,
    leases: MemoryLeases | None = None,
    keys: Path | None = None,
    limits: Limits = DEFAULTS,
    bounds: Bounds | None = None,
    dispatching: Settings | None = None,
    auto_create: bool = True,
    template: dict[str, Any] | None = None,
    origins: tuple[str, ...] = (),
    session: SessionSettings | None = None,
    most_bytes: int = 64 * MIB,
    **settings: Any,
) -> AsyncIterator[Rig]:
    """With `keys`, a file, everybody needs one."""
    clock = mock_clock()
    auth = AuthSettings(signing_secrets=(SIGNING,), required=keys is not None)
    authenticator: Authenticator = open_authenticator(auth, keys, wall=clock.wall)
    policy = OriginPolicy(lambda: authenticator.required, origins)
    async with (
        open_dispatcher(
            memory_store() if store is None else store,
            leases,
            clock=clock,
            settings=dispatching,
            bounds=bounds,
            limits=limits,
            chance=lambda: 0.5,
        ) as dispatcher,
        trio.open_nursery() as nursery,
        trio.open_nursery() as background,
    ):
        http, metrics = HttpSettings(**settings), Metrics()
        failed_logins = FailedLogins(metrics)
        sessions = Sessions(
            SessionContext(
                dispatcher,
                authenticator.authenticate,
                background,
                limits,
                session or SessionSettings(),
                metrics=metrics,
                still_valid=authenticator.still_valid,
                chance=lambda: 0.5,
                failed_logins=failed_logins,
            )
        )
        background.start_soon(sessions.context.timers.run)
        context = HttpContext(
            dispatcher,
            authenticator,
            policy.allows,
            Pipes(sessions, http, most_bytes),
            metrics,
            limits=limits,
            settings=http,
            auto_create=auto_create,
            template=QueueConfig(**(template or {})),
            failed_logins=failed_logins,
        )
        yield Rig(context, nursery, keys, authenticator, sessions)
        await blocked()
        assert len(nursery.child_tasks) == 0, "a request is still under way"
        in_use = context.admission.taken()
        assert not any(in_use[name] for name in ("polls", "peeks", "answers_bytes")), in_use
        background.cancel_scope.cancel()


def small(**limits: int) -> Limits:
    return msgspec.structs.replace(DEFAULTS, **limits)
