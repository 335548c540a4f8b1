"""Dials other nodes."""

from __future__ import annotations

import socket

import trio

from pushlane_dispatcher.cluster.address import split_address, tuned
from pushlane_dispatcher.cluster.counters import LinkCounters, count
from pushlane_dispatcher.cluster.failures import LinkFailed, LinkUnreachable, Unreached
from pushlane_dispatcher.cluster.links.greeting import Me
from pushlane_dispatcher.cluster.links.handshake import greet
from pushlane_dispatcher.cluster.links.link import Link
from pushlane_dispatcher.cluster.links.tls import LinkTls, secure
from pushlane_dispatcher.cluster.settings import DEFAULT_SETTINGS, ClusterSettings


async def dial(
    address: str,
    expects: str = "",
    *,
    lane: str,
    me: Me,
    key: bytes = b"",
    tls: LinkTls | None = None,
    settings: ClusterSettings = DEFAULT_SETTINGS,
    counters: LinkCounters | None = None,
) -> Link:
    """A link to the node at this address, within `dial_ms`; the caller has to `run` it.

    `expects`: the process that should be there. Raises LinkRefused or LinkUnreachable.
    """
    counters = counters or LinkCounters()
    try:
        with trio.move_on_after(settings.dial_ms / 1000):
            plain = await _connect(address, settings)
            try:
                stream: trio.abc.Stream = plain
                if tls is not None:
                    stream = await secure(plain, tls, host=split_address(address)[0])
                found = await greet(
                    stream, me, lane=lane, expects=expects, key=key, settings=settings
                )
            except BaseException:
                await trio.aclose_forcefully(plain)
                raise
            return Link(stream, found, settings, counters)
        raise LinkUnreachable(Unreached.TIMED_OUT, f"nothing within {settings.dial_ms} ms")
    except LinkFailed as failure:
        count(counters.unreached, failure.code.value)
        raise


async def _connect(address: str, settings: ClusterSettings) -> trio.SocketStream:
    try:
        stream = await trio.open_tcp_stream(*split_address(address))
    except ValueError as error:
        raise LinkUnreachable(Unreached.NO_ADDRESS, str(error)) from None
    except socket.gaierror as error:
        raise LinkUnreachable(Unreached.NO_ADDRESS, f"{address}: {error.strerror}") from None
    except OSError as error:
        raise _unreached(address, error) from None
    return tuned(stream, settings)


def _unreached(address: str, error: OSError) -> LinkUnreachable:
    """Nobody listens only where each address of a name said so."""
    causes = error.__cause__
    tried = causes.exceptions if isinstance(causes, BaseExceptionGroup) else (error,)
    if all(isinstance(one, ConnectionRefusedError) for one in tried):
        return LinkUnreachable(Unreached.NOBODY_LISTENS, f"nobody listens at {address}")
    words = {one.strerror for one in tried if isinstance(one, OSError) and one.strerror}
    return LinkUnreachable(Unreached.NETWORK, f"{address}: {', '.join(sorted(words))}")
