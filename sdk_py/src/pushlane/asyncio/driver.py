"""Drives the core: reports what happens, and carries out its effects.

`run` is a turn: whoever is hungry takes messages, the core flushes, and effects are carried out
until there are none; then the connection writes once. User calls ask for a turn with `soon`: it
comes when all tasks that are ready now have run, so what they publish and ack shares frames.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

from pushlane.core.client import ClientCore
from pushlane.core.effects import (
    AnyEffect,
    Dial,
    Ended,
    Hangup,
    Lost,
    Probe,
    Ready,
    Reject,
    Resolve,
    Send,
    StateChanged,
)
from pushlane.core.pipe import Pipe
from pushlane.core.url import Endpoint
from pushlane.transport.websocket import WebSocket
from pushlane.wire.codec import Codec
from pushlane.wire.errors import ConnectionLost, PushlaneError

from .connection import Connection, probe
from .http import Pool, no_tls
from .poller import Poller

Token: TypeAlias = str | Callable[[], str | Awaitable[str | None] | None] | None
"""Credentials, or a function (async or not) that is asked for them at every connect."""


class Driver:
    """One client's core, connection and timer."""

    def __init__(
        self,
        core: ClientCore,
        endpoint: Endpoint,
        codec: Codec,
        token: Token,
        tls: ssl.SSLContext | None,
        on_state: Callable[[str], object] | None,
    ) -> None:
        self.core = core
        self.loop = asyncio.get_running_loop()
        self._endpoint = endpoint
        self._codec = codec
        self._token = token
        self._tls = tls
        self._on_state = on_state
        self._connections: dict[int, Connection | Poller] = {}
        self._dials: dict[int, asyncio.Task[None]] = {}
        self._probe: asyncio.Task[None] | None = None
        self._tokens: dict[int, str | None] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self.hungry: set[Callable[[], None]] = set()
        """Who wants to take messages in the next turn."""

    def now(self) -> float:
        """The core's time."""
        return self.loop.time() * 1000

    def soon(self) -> None:
        """Have a turn after all tasks that are ready now."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self.run)

    def run(self) -> None:
        """One turn."""
        self._is_scheduled = False
        core = self.core
        while True:
            while self.hungry:
                self.hungry.pop()()
            core.flush(self.now())
            if not core.effects:
                break
            effects = core.effects.copy()
            core.effects.clear()
            for effect in effects:
                self._carry_out(effect)
        for connection in self._connections.values():
            connection.write()
        self._set_timer()

    def _carry_out(self, effect: AnyEffect) -> None:
        match effect:
            case Resolve():
                if not effect.ticket.done():
                    effect.ticket.set_result(effect.value)
            case Send():
                self._connections[effect.link].send(effect.data)
            case Ready():
                effect.subscription.owner.ready()
            case Reject():
                if not effect.ticket.done():
                    effect.ticket.set_exception(effect.error)
            case Lost():
                if effect.lease.owner is not None:
                    effect.lease.owner.cancel()
            case Ended():
                effect.subscription.owner.ended(effect.error)
            case Dial():
                self._dials[effect.link] = self.loop.create_task(self._dial(effect))
            case Hangup():
                self._hang_up(effect)
            case Probe():
                self._probe = self.loop.create_task(self._try(effect))
            case StateChanged():
                if self._on_state is not None:
                    self._on_state(effect.state)

    # Time

    def _set_timer(self) -> None:
        at = self.core.wake_at()
        if at is None or at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self.loop.call_at(at / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        self.core.tick(self.now())
        self.run()

    # Connections

    async def token(self) -> str | None:
        """The credentials for a new connection."""
        if self._token is None or isinstance(self._token, str):
            return self._token
        token = self._token()
        return await token if inspect.isawaitable(token) else token

    async def _dial(self, effect: Dial) -> None:
        link, endpoint = effect.link, self._endpoint
        error: PushlaneError | None = None
        try:
            self._tokens[link] = await self.token()
            if effect.transport == "ws":
                await self.loop.create_connection(
                    lambda: self._make(link), endpoint.host, endpoint.port, ssl=self._tls
                )
        except PushlaneError as fault:
            error = fault
        except ssl.SSLError as fault:
            error = no_tls(endpoint, fault, self.core.was_open)
        except OSError as fault:
            error = ConnectionLost(
                f"no connection to {endpoint}: {str(fault) or type(fault).__name__}"
            )
        except Exception as fault:
            error = ConnectionLost(f"no token: {type(fault).__name__}: {fault}")
            error.__cause__ = fault
        finally:
            self._dials.pop(link, None)
        if error is not None:
            self._connections.pop(link, None)  # made before TLS failed: it will never be closed
            self.core.lost(link, self.now(), error=error)
            self.run()
        elif effect.transport == "poll":
            self._connections[link] = self._make_poller(link)
            self.on_open(link)

    async def _try(self, effect: Probe) -> None:
        """Whether a WebSocket can be had."""
        settings = self.core.settings
        is_good = False
        with suppress(Exception):
            token = await self.token()
            is_good = await probe(self._endpoint, self._codec, token, self._tls, settings)
        self.core.probed(effect.link, self.now(), is_good=is_good)
        self.run()

    def _make(self, link: int) -> Connection:
        settings = self.core.settings
        socket = WebSocket(self._endpoint, self._codec, settings.receive_bytes)
        connection = Connection(link, socket, self, settings.hangup_ms)
        self._connections[link] = connection
        return connection

    def _make_poller(self, link: int) -> Poller:
        settings = self.core.settings
        pipe = Pipe(settings, random.random, lambda: self.core.limits)
        pool = Pool(self._endpoint, settings, self._tls)
        return Poller(link, pipe, pool, self, settings.hangup_ms)

    def _hang_up(self, effect: Hangup) -> None:
        dial = self._dials.pop(effect.link, None)
        if dial is not None:
            dial.cancel()
        connection = self._connections.get(effect.link)
        if connection is not None:
            connection.hang_up(effect.code, effect.reason)

    def on_open(self, link: int) -> None:
        self.core.connected(link, self._tokens.pop(link, None), self.now())
        self.run()

    def on_heard(self, link: int, messages: list[bytes]) -> None:
        now = self.now()
        self.core.heard(link, now)
        if messages:
            self.core.received(link, messages, now)
            self.run()

    def on_lost(
        self, link: int, code: int, reason: str, error: PushlaneError | None, refused: int | None
    ) -> None:
        self._connections.pop(link, None)
        self._tokens.pop(link, None)
        self.core.lost(link, self.now(), code=code, reason=reason, error=error, refused=refused)
        self.run()

    async def stop(self) -> None:
        """After the core has closed: wait until nothing of ours runs any more."""
        if self._timer is not None:
            self._timer.cancel()
        dials = list(self._dials.values())
        if self._probe is not None and not self._probe.done():
            dials.append(self._probe)
        for dial in dials:
            dial.cancel()
        waiting = [connection.closed for connection in self._connections.values()]
        if dials or waiting:
            await asyncio.wait([*dials, *waiting])
