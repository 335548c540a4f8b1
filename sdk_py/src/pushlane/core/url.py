"""Where the server is: from what users write to the two addresses that a client needs.

`ws`, `wss`, `http` and `https` mean the same server, with or without `/v1/ws`; a path before that
is kept, for servers behind a proxy. Credentials don't belong into a URL, and are refused.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from pushlane.wire.errors import BadRequest

DEFAULT_URL = "ws://127.0.0.1:8420"
VARIABLE = "PUSHLANE_URL"
TOKEN_VARIABLE = "PUSHLANE_TOKEN"
_SOCKET = "/v1/ws"
_TLS = {"ws": False, "http": False, "wss": True, "https": True}


class Endpoint(NamedTuple):
    """A server's address."""

    host: str
    port: int
    is_tls: bool
    prefix: str
    """The path before /v1, mostly empty."""

    @property
    def authority(self) -> str:
        """Host and port as URLs and Host headers have them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default = self.port == (443 if self.is_tls else 80)
        return host if is_default else f"{host}:{self.port}"

    @property
    def is_readable(self) -> bool:
        """Whether others can read what is sent: it leaves this machine, without TLS."""
        return not (self.is_tls or _is_loopback(self.host))

    @property
    def ws_url(self) -> str:
        return f"{'wss' if self.is_tls else 'ws'}://{self.authority}{self.prefix}{_SOCKET}"

    @property
    def http_url(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}{self.prefix}"

    def __str__(self) -> str:
        return self.ws_url


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def parse_url(url: str) -> Endpoint:
    """Read a server's URL; raises BadRequest saying what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in _TLS:
        raise BadRequest(f"{url!r} is not a server URL; use ws://HOST:PORT")
    if parts.username is not None or parts.password is not None:
        raise BadRequest("a URL must not hold credentials: pass them as token")
    if parts.query or parts.fragment:
        raise BadRequest("the URL of a server has no query and no fragment")
    try:
        port = parts.port
    except ValueError:
        raise BadRequest(f"{url!r} has a bad port") from None
    if not parts.hostname or port == 0:
        raise BadRequest(f"{url!r} names no host")
    is_tls = _TLS[parts.scheme]
    prefix = parts.path.rstrip("/").removesuffix(_SOCKET).rstrip("/")
    return Endpoint(parts.hostname, port or (443 if is_tls else 80), is_tls, prefix)
