"""Which web pages may connect: a page can make its visitor's browser call any server it reaches.

Browsers say in `Origin` where a page comes from, and a page can't forge it; programs send none and
are not meant here. What the rules are depends on whether the server asks for keys.

- **It does**: an Origin has to be one of `allowed_origins`, character by character. `Host` doesn't
  matter: a page that gets here by some name still has no key.
- **It doesn't**: everybody who reaches the server may do everything, so reaching it must be hard.
  Only pages from this machine may connect, and only under a name of this machine: a page at
  `http://evil.example` may make its own name lead to 127.0.0.1 (DNS rebinding). Its requests then
  count as its own, without any Origin, but their Host still says `evil.example`. Hence the rule for
  Host even when there is no Origin.
- **It doesn't, and is `insecure`** (reached from other machines, because the operator said so): the
  same, but Host may also be any address in numbers, since rebinding needs a name, or one of
  `allowed_hosts`, and `allowed_origins` count.

Origins are compared as they are: browsers write them in one way only, in small letters and without
the default port. What comes in another case or with `:443` was not written by a browser. `null`
(sandboxed frames, files) is nobody's and never allowed. A Host, though, is what people type, so
there case doesn't matter.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from pushlane_gateway.configuration.errors import ConfigurationError

_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_-])?)"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?",
    re.ASCII,
)
_HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)
_DEFAULT_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443"}
_WEB = ("http", "https")


class OriginPolicy:
    """Made once. `required` is asked each time: keys may begin to be asked for."""

    def __init__(
        self,
        required: Callable[[], bool],
        allowed_origins: Sequence[str] = (),
        *,
        insecure: bool = False,
        allowed_hosts: Sequence[str] = (),
        refused: Callable[[str | None, str | None], None] = lambda _, __: None,
    ) -> None:
        """`refused` is told of each Origin and Host that may not."""
        self._required = required
        self._origins = frozenset(check_origin(origin) for origin in allowed_origins)
        self._hosts = frozenset(check_host(host) for host in allowed_hosts)
        self._insecure = insecure
        self._refused = refused

    def allows(self, origin: str | None, host: str | None) -> bool:
        """Whether a request with these headers may go on; None: it has no such header."""
        allowed = self._allows(origin, host)
        if not allowed:
            self._refused(origin, host)
        return allowed

    def _allows(self, origin: str | None, host: str | None) -> bool:
        if self._required():
            return origin is None or origin in self._origins
        if not self._host_is_ours(host, origin):
            return False
        return origin is None or _is_local_page(origin) or self._is_listed(origin)

    def _is_listed(self, origin: str) -> bool:
        return self._insecure and origin in self._origins

    def _host_is_ours(self, host: str | None, origin: str | None) -> bool:
        if host is None:
            return origin is None  # every browser sends a Host: this is a simple program
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found["host"]
        if is_loopback(name):
            return True
        return self._insecure and (_address(name) is not None or name in self._hosts)


def is_loopback(host: str) -> bool:
    """Whether a host, in small letters and IPv6 in brackets, is surely this very machine."""
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def check_origin(origin: str) -> str:
    """An entry of `allowed_origins` as a browser would write it, or what is wrong with it."""
    found = _ORIGIN.fullmatch(origin)
    if found is None or origin == "null":
        hint = _suggest(origin)
        raise ConfigurationError(
            f"auth.allowed_origins: {origin!a} is no Origin that a browser sends"
            + (f"; did you mean {hint!r}?" if hint else "; write https://app.example.com")
        )
    if found["port"] is not None and found["port"] == _DEFAULT_PORTS.get(found["scheme"]):
        raise ConfigurationError(
            f"auth.allowed_origins: browsers leave the default port out of {origin!r}; "
            f"write {origin.rpartition(':')[0]!r}"
        )
    return origin


def check_host(host: str) -> str:
    """An entry of `allowed_hosts`: a name without a port."""
    if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_-])?", host, re.ASCII):
        raise ConfigurationError(
            f"auth.allowed_hosts: {host!a} is not a host name; write it without scheme and port"
        )
    return host.lower()


def _is_local_page(origin: str) -> bool:
    found = _ORIGIN.fullmatch(origin)
    if found is None or found["scheme"] not in _WEB:
        return False
    if found["port"] is not None and found["port"] == _DEFAULT_PORTS[found["scheme"]]:
        return False
    return is_loopback(found["host"]) and _is_canonical(found["host"])


def _is_canonical(host: str) -> bool:
    address = _address(host)
    return address is None or str(address) == host.strip("[]")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An address in numbers, IPv6 in brackets; None for names."""
    try:
        if host.startswith("["):
            return ipaddress.IPv6Address(host[1:-1])
        return ipaddress.IPv4Address(host)
    except ValueError:
        return None


def _suggest(origin: str) -> str | None:
    """The Origin of something that looks like a URL."""
    try:
        parts = urlsplit(origin.strip())
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    shown = "" if port is None or str(port) == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    suggestion = f"{parts.scheme}://{host}{shown}"
    return suggestion if _ORIGIN.fullmatch(suggestion) else None
