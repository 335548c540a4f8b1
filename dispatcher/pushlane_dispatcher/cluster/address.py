"""Addresses of nodes: `10.0.0.5:8421`, `[fd00::5]:8421`, `node-a.internal:8421`."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

import trio

from pushlane_dispatcher.cluster.links.greeting import LEAST_KEY
from pushlane_dispatcher.cluster.settings import ClusterSettings


def split_address(text: str) -> tuple[str, int]:
    """Host and port; a ValueError says what is wrong with it."""
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"{text!r}: a node's address is HOST:PORT or [IPV6]:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, as in [fd00::5]:8421")
    if not host:
        raise ValueError(f"{text!r}: which host? Other nodes have to reach it")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it. A name counts as foreign, but for localhost."""
    host, _ = split_address(address)
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unprotected(address: str, key: bytes, *, tls: bool) -> str | None:
    """Why links must not be opened here: everybody who reaches them may do everything.

    Without a key and without TLS an address must be one that only this machine reaches.
    """
    if key and len(key) < LEAST_KEY:
        return f"the cluster's key has {len(key)} bytes: at least {LEAST_KEY} are needed"
    if key or tls or is_loopback(address):
        return None
    return (
        f"{address} can be reached from other machines, and nothing shows who is a node of the "
        "cluster: set a cluster key, or certificates for the links"
    )


async def listen(address: str, backlog: int) -> list[socket.socket]:
    """Listening, non-blocking sockets: one for each address that the host's name has."""
    host, port = split_address(address)
    found = await trio.socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    try:
        for family, _, _, _, name in dict.fromkeys(found):
            sock = socket.create_server(name, family=family, backlog=backlog)
            opened.append(sock)
            sock.setblocking(False)
            if port == 0:
                break
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return opened


def tuned(stream: trio.SocketStream, settings: ClusterSettings) -> trio.SocketStream:
    """trio lets the kernel keep 16 KiB only of what can't leave yet: many small writes."""
    lowat = getattr(trio.socket, "TCP_NOTSENT_LOWAT", None)
    if lowat is not None:
        with suppress(OSError):
            stream.setsockopt(trio.socket.IPPROTO_TCP, lowat, settings.write_bytes)
    return stream
