"""Addresses to listen on: `127.0.0.1:8420`, `[::1]:8420`, `localhost:8420`, `unix:/path`.

Port 0 takes a free one; `bound` tells which. An IPv6 address is IPv6 only, so that `[::]:8420` and
`0.0.0.0:8420` can be opened side by side. The file of a Unix socket that nobody listens on any more
is replaced; one that is in use is an error, as a port would be.

Without keys everybody who reaches the server may read and delete everything. On this machine that
is convenient; on a network it is an accident, so it has to be said aloud: `--insecure`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import stat
from collections.abc import Sequence
from typing import Protocol

import msgspec

from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.settings import GatewaySettings

UNIX = "unix:"


class Address(msgspec.Struct, frozen=True):
    """Where to listen: a host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return UNIX + self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read an address; a ValueError says what is wrong with it."""
    if text.startswith(UNIX):
        if not text[len(UNIX) :]:
            raise ValueError(f"{text!r}: unix: needs a path, as in unix:/run/pushlane.sock")
        return Address(path=text[len(UNIX) :])
    host, colon, port = text.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"{text!r}: an address is HOST:PORT, [IPV6]:PORT or unix:PATH")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address stands in brackets, as in [::1]:8420")
    if not host:
        raise ValueError(f"{text!r}: which host? 127.0.0.1 is this machine, 0.0.0.0 all addresses")
    return Address(host=host, port=int(port))


def open_address(address: Address, settings: GatewaySettings) -> list[socket.socket]:
    """Listening, non-blocking sockets: one for each address that the host's name has."""
    if address.path:
        return [_listen_unix(address.path, settings)]
    found = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    opened: list[socket.socket] = []
    try:
        for family, _, _, _, name in dict.fromkeys(found):
            opened.append(_listen(family, name, settings))
            if address.port == 0:
                break
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return opened


def bound(sock: socket.socket) -> Address:
    """Where a listening socket really listens."""
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return Address(path=name)
    return Address(host=name[0], port=name[1])


def peer_of(sock: socket.socket, name: object) -> str:
    """A client's address, for logs."""
    if sock.family == socket.AF_UNIX or not isinstance(name, tuple):
        return "unix"
    return str(Address(host=name[0], port=name[1]))


def close_listening(sock: socket.socket) -> None:
    """Close a listening socket; a Unix socket's file goes with it."""
    path = sock.getsockname() if sock.family == socket.AF_UNIX else ""
    sock.close()
    if path:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _listen(family: int, name: object, settings: GatewaySettings) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(name)  # type: ignore[arg-type]  # whatever getaddrinfo gave
        sock.listen(settings.backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _listen_unix(path: str, settings: GatewaySettings) -> socket.socket:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        os.chmod(path, settings.unix_mode)
        sock.listen(settings.backlog)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_stale(path: str) -> None:
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except BlockingIOError:
            raise OSError(f"{path} is in use") from None
        else:
            raise OSError(f"{path} is in use")


class AsksForKeys(Protocol):
    """An Authenticator, as far as it matters here."""

    required: bool


def check_exposure(
    addresses: Sequence[str | Address], auth: AsksForKeys, insecure: bool = False
) -> None:
    """`ConfigurationError` when others could reach the server and nobody is asked who they are."""
    if auth.required or insecure:
        return
    exposed = [str(address) for address in addresses if not is_local(address)]
    if exposed:
        raise ConfigurationError(
            f"{', '.join(exposed)} can be reached from other machines, and nobody is asked for a "
            "key: make one with `pushlane token create NAME --allow 'admin:*'`, listen on "
            "127.0.0.1 only, or serve everybody with --insecure"
        )


def is_local(address: str | Address) -> bool:
    """Whether only this machine reaches it. A name counts as foreign, but for localhost."""
    if isinstance(address, str):
        address = parse_address(address)
    if address.path or address.host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.host).is_loopback
    except ValueError:
        return False
