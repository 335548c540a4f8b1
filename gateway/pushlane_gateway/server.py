"""The server: store, dispatcher, authentication, sessions and listener, put together.

    async with open_server(configuration) as server:
        print(server.urls)
        await server.drain()

Everything lives inside that block. `drain` is the good end: no new clients, those that are here
are told to go and may settle; leaving the block then closes listener, dispatcher and store, in this
order, so that whatever was accepted is stored and answered.
"""

from __future__ import annotations

import logging
import secrets
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata

import trio

from pushlane_dispatcher.node import (
    GATEWAY,
    CannotOpen,
    Clock,
    Dispatcher,
    Member,
    StoreAway,
    StoreLimits,
    open_node,
)
from pushlane_dispatcher.port import Load
from pushlane_gateway.auth.admission import Admission
from pushlane_gateway.auth.authenticator import Authenticator, open_authenticator
from pushlane_gateway.auth.origin import OriginPolicy
from pushlane_gateway.auth.refused import FailedLogins, RefusedOrigins
from pushlane_gateway.cluster_metrics import show_cluster
from pushlane_gateway.configuration.configuration import Configuration
from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.http.app import NO_CLIENTS, make_app
from pushlane_gateway.http.context import HttpContext
from pushlane_gateway.http.table import FOR_OPERATORS
from pushlane_gateway.listener.address import Address, check_exposure, parse_address
from pushlane_gateway.listener.certificates import Certificates
from pushlane_gateway.listener.connection import Service
from pushlane_gateway.listener.listener import Listener, open_listener
from pushlane_gateway.listener.refusal import Refusal
from pushlane_gateway.metrics import Metrics
from pushlane_gateway.pipe.pipes import Pipes
from pushlane_gateway.session.context import SessionContext
from pushlane_gateway.session.sessions import LOOK_S, Sessions
from pushlane_gateway.session.settings import SessionSettings

log = logging.getLogger(__name__)


class Server:
    def __init__(
        self,
        dispatcher: Dispatcher,
        authenticator: Authenticator,
        sessions: Sessions,
        http: HttpContext,
        listener: Listener,
        metrics: Metrics,
        tls: bool,
    ) -> None:
        self.dispatcher = dispatcher
        self.authenticator = authenticator
        self.sessions = sessions
        self.http = http
        self.listener = listener
        self.metrics = metrics
        self._tls = tls

    @property
    def addresses(self) -> list[Address]:
        return self.listener.addresses

    @property
    def urls(self) -> list[str]:
        """Where clients reach it."""
        return _urls(self.listener, tls=self._tls)

    async def drain(self) -> None:
        """Take nobody on, let those who are here settle, and close.

        Clients of pipes settle with further requests, so with those the listener stops last.
        """
        close_s, pipes = self.sessions.context.settings.close_ms / 1000, self.http.pipes.opened
        self.http.draining.set()
        await self.dispatcher.leave()
        if not pipes:
            self.listener.stop()
        await self.sessions.drain()
        with trio.move_on_after(close_s):
            while any(pipe.is_untold for pipe in pipes):  # noqa: ASYNC110
                await trio.sleep(LOOK_S)
        self.listener.stop()
        with trio.move_on_after(close_s):
            await self.listener.drained()


@asynccontextmanager
async def open_server(
    configuration: Configuration,
    *,
    sessions: SessionSettings | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Server]:
    """Raises ConfigurationError when the server can't start like this, StoreAway when not now."""
    node = f"node-{secrets.token_hex(4)}"
    try:
        certificates = _certificates(configuration)
        async with open_node(
            configuration.store,
            configuration.leases,
            limits=configuration.limits,
            clock=clock,
            settings=configuration.dispatcher,
            bounds=configuration.bounds,
            owner=node,
            stores=StoreLimits(configuration.sqlite, configuration.cassandra),
            history=configuration.history,
            cluster=configuration.cluster,
            about=_about(configuration),
        ) as dispatcher:
            authenticator = open_authenticator(
                configuration.auth, configuration.keys_file, configuration.folder
            )
            check_exposure(configuration.listen, authenticator, configuration.auth.insecure)
            settings = sessions or configuration.session
            async with _serve(
                configuration, settings, dispatcher, authenticator, certificates, node
            ) as server:
                yield server
    except StoreAway:
        raise
    except CannotOpen as error:
        raise ConfigurationError(str(error)) from error


def _no_clients(*_: str | None) -> bool:
    raise Refusal(404, NO_CLIENTS, code="not_found")


def _urls(listener: Listener, *, tls: bool) -> list[str]:
    scheme = "https" if tls else "http"
    return [
        str(address) if address.path else f"{scheme}://{address}" for address in listener.addresses
    ]


def _about(configuration: Configuration) -> Member:
    """What other nodes are told of this one, before its listener is open."""
    listen = parse_address(configuration.listen[0])
    return Member(
        process="",
        name=f"{socket.gethostname()}:{listen.port}" if listen.port else "",
        roles=tuple(dict.fromkeys(configuration.roles)),
        version=metadata.version("pushlane-server"),
    )


@asynccontextmanager
async def _serve(
    configuration: Configuration,
    settings: SessionSettings,
    dispatcher: Dispatcher,
    authenticator: Authenticator,
    certificates: Certificates | None,
    node: str,
) -> AsyncIterator[Server]:
    error: Exception | None = None
    async with trio.open_nursery() as nursery:
        metrics = Metrics()
        failed_logins = FailedLogins(metrics, configuration.auth.failed_logins)
        context = SessionContext(
            dispatcher,
            authenticator.authenticate,
            nursery,
            configuration.limits,
            settings,
            configuration.queues.auto_create,
            configuration.queues.template,
            metrics,
            node=node,
            server=f"pushlane {metadata.version('pushlane-server')}",
            still_valid=authenticator.still_valid,
            admission=Admission(configuration.shares),
            failed_logins=failed_logins,
        )
        sessions = Sessions(context, configuration.gateway.connections)
        authenticator.subscribe(sessions.keys_changed)
        nursery.start_soon(context.timers.run)
        nursery.start_soon(authenticator.watch)
        origins = _origins(configuration, authenticator, metrics)
        http = HttpContext(
            dispatcher,
            authenticator,
            origins,
            Pipes(sessions, configuration.http, configuration.gateway.outbox_bytes),
            metrics,
            configuration.limits,
            configuration.http,
            configuration.queues.auto_create,
            configuration.queues.template,
            failed_logins,
            configuration.gateway.unauthenticated_bytes,
        )
        service = Service(make_app(http), sessions.handle, origins)
        if GATEWAY not in configuration.roles:
            service = Service(make_app(http, FOR_OPERATORS), sessions.handle, _no_clients)
        try:
            async with _listen(configuration, service, certificates) as listener:
                tls = certificates is not None
                metrics.listener(listener.counters)
                _show(metrics, dispatcher, authenticator)
                if dispatcher.cluster is not None:
                    show_cluster(metrics, dispatcher.cluster)
                    dispatcher.cluster.introduce(
                        _urls(listener, tls=tls)[0] if GATEWAY in configuration.roles else "",
                        lambda: Load(len(sessions), metrics.published, metrics.delivered),
                    )
                metrics.gauge(
                    "unauthenticated_bytes",
                    "What waits in memory of clients that are not authenticated.",
                    lambda: listener.budget.held,
                )
                metrics.gauge(
                    "waiting_bytes",
                    "What waits in memory of authenticated clients' frames and bodies.",
                    lambda: listener.waiting.held,
                )
                yield Server(dispatcher, authenticator, sessions, http, listener, metrics, tls)
        except Exception as raised:
            error = raised  # not from inside the nursery: it would come out in a group
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error


def _show(metrics: Metrics, dispatcher: Dispatcher, authenticator: Authenticator) -> None:
    """What others count and can be asked for."""
    metrics.gauge("open_shards", "Shards that are open.", lambda: dispatcher.open_shards)
    metrics.gauge(
        "key_file_failures",
        "Times the file of API keys could not be read again.",
        lambda: authenticator.failures,
    )
    metrics.gauges("window", "Window", dispatcher.window_numbers)
    metrics.gauges("store", "Store", dispatcher.store_numbers)
    metrics.gauges("lease_cache", "Lease cache", dispatcher.lease_numbers)
    metrics.gauges("heart", "Heartbeats", dispatcher.heart_numbers)
    metrics.gauges("clock", "Clock", dispatcher.clock_numbers)
    metrics.gauges("usage", "Usage", dispatcher.usage_numbers)
    metrics.gauges("due", "Shards in which something is due", dispatcher.due_numbers)
    metrics.counter(
        "messages_ended", "Messages that ended without an ack.", "cause", dispatcher.endings
    )
    metrics.gauges("transfers", "Transfers", dispatcher.transfer_numbers)
    metrics.gauges("history", "Recorded history", dispatcher.history_numbers)


def _origins(
    configuration: Configuration, authenticator: Authenticator, metrics: Metrics
) -> Callable[[str | None, str | None], bool]:
    auth = configuration.auth
    return OriginPolicy(
        lambda: authenticator.required,
        auth.allowed_origins,
        insecure=auth.insecure,
        allowed_hosts=auth.allowed_hosts,
        refused=RefusedOrigins(metrics, auth.refused_origins).note,
    ).allows


@asynccontextmanager
async def _listen(
    configuration: Configuration, service: Service, certificates: Certificates | None
) -> AsyncIterator[Listener]:
    opened = False
    try:
        async with open_listener(
            configuration.listen,
            service,
            certificates=certificates,
            settings=configuration.gateway,
            limits=configuration.limits,
        ) as listener:
            opened = True
            yield listener
    except (OSError, ValueError) as error:
        if opened:
            raise
        where = ", ".join(configuration.listen)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(f"can't listen on {where}: {reason}") from error


def _certificates(configuration: Configuration) -> Certificates | None:
    tls = configuration.tls
    if tls.certificate is None or tls.key is None:
        return None
    try:
        return Certificates(tls.certificate, tls.key, configuration.gateway)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"TLS: {tls.certificate} and {tls.key}: {error}") from error


async def serve(
    configuration: Configuration,
    ready: Callable[[Server], None],
    sessions: SessionSettings | None = None,
) -> bool:
    """Serve until SIGTERM or SIGINT, then drain. False: a second signal cut that short."""
    asked = trio.Event()
    error: Exception | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_follow, signals, asked, nursery.cancel_scope)
            try:
                async with open_server(configuration, sessions=sessions) as server:
                    ready(server)
                    log.info("ready on %s", ", ".join(server.urls))
                    await asked.wait()
                    log.info("draining: a second signal ends it at once")
                    await server.drain()
            except Exception as raised:
                error = raised  # not from inside the nursery: it would come out in a group
            cut_short = nursery.cancel_scope.cancel_called
            nursery.cancel_scope.cancel()
    if error is not None:
        raise error
    return not cut_short


async def _follow(
    signals: AsyncIterator[int], asked: trio.Event, everything: trio.CancelScope
) -> None:
    async for _ in signals:
        if asked.is_set():
            everything.cancel()
        asked.set()
