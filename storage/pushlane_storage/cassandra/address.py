"""Where a Cassandra store is: `cassandra://[user:password@]host[,host…][:port]/keyspace?…`.

| option | |
|---|---|
| `replication` | of a keyspace that is made: `3`, or `dc1:3,dc2:3` |
| `dc` | the data centre of this process; needed when there are several |
| `adopt` | `on`: take over what was stored without `dc`; read docs/cassandra.md before |
| `tls` | `on`, or the path of a file with the certificates to trust |
| `tls_cert`, `tls_key` | paths: the client's own certificate, where the cluster asks for one |
| `migrate` | `off`: the tables must be there; `on` (the default): they are made |
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import parse_qsl, unquote

import msgspec

PORT = 9042
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_NAME = r"[A-Za-z0-9_-]+"
_HOST = re.compile(r"\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+")
_FACTOR = re.compile(r"[1-9][0-9]?")
_CENTRES = re.compile(rf"{_NAME}:[1-9][0-9]?(,{_NAME}:[1-9][0-9]?)*")
_OPTIONS = ("replication", "dc", "tls", "tls_cert", "tls_key", "migrate", "adopt")


class BadAddress(ValueError):
    """It can't be understood; the message says why."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    hosts: list[str]
    port: int = PORT
    keyspace: str
    user: str | None = None
    password: str | None = None
    replication: int | dict[str, int] | None = None
    """None: up to 3, as many as there are nodes."""
    dc: str | None = None
    tls: Literal[True] | str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    migrate: bool = True
    adopt: bool = False

    @property
    def is_local(self) -> bool:
        """Quorums are of one data centre."""
        return self.dc is not None


def parse(rest: str) -> Address:
    """What stands behind `cassandra:`."""
    place, _, query = rest.partition("?")
    if not place.startswith("//"):
        raise BadAddress("two slashes come after cassandra:")
    authority, slash, keyspace = place[2:].partition("/")
    if not slash or not keyspace:
        raise BadAddress("a keyspace comes after the hosts, as in cassandra://host/pushlane")
    if not _KEYSPACE.fullmatch(keyspace):
        raise BadAddress(
            f"{keyspace!r} is not a keyspace: 1 to 48 of a-z 0-9 _, beginning with a letter"
        )
    credentials, at, hosts = authority.rpartition("@")
    user, password = _credentials(credentials) if at else (None, None)
    names, port = _hosts(hosts)
    options = _options(query)
    return Address(
        hosts=names,
        port=port,
        keyspace=keyspace,
        user=user,
        password=password,
        replication=_replication(options),
        dc=_dc(options),
        tls=True if options.get("tls") == "on" else options.get("tls"),
        tls_cert=options.get("tls_cert"),
        tls_key=options.get("tls_key"),
        migrate=_switch(options, "migrate", "on"),
        adopt=_switch(options, "adopt", "off"),
    )


def _credentials(text: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not user or not colon:
        raise BadAddress("credentials are user:password")
    return unquote(user), unquote(password)


def _hosts(text: str) -> tuple[list[str], int]:
    *front, last = text.split(",")
    port = PORT
    found = re.fullmatch(r"(\[[^\]]*\]|[^:\[]*):(.*)", last)
    if found is not None:
        last, digits = found.groups()
        if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits) <= 65_535:
            raise BadAddress(f"{digits!r} is not a port")
        port = int(digits)
    hosts = [*front, last]
    for host in hosts:
        if not host:
            raise BadAddress("a host is missing")
        if not _HOST.fullmatch(host):
            raise BadAddress(
                f"{host!r} is not a host; the port, the same for all, comes after the last"
            )
    return [host.strip("[]") for host in hosts], port


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise BadAddress("options are name=value, joined by &") from None
    options: dict[str, str] = {}
    for name, value in pairs:
        if name not in _OPTIONS:
            raise BadAddress(f"unknown option {name!r}; known are {', '.join(_OPTIONS)}")
        if name in options:
            raise BadAddress(f"{name} is there twice")
        if not value:
            raise BadAddress(f"{name} has no value")
        options[name] = value
    if ("tls_cert" in options) != ("tls_key" in options):
        raise BadAddress("tls_cert and tls_key come together")
    if options.get("adopt") == "on" and "dc" not in options:
        raise BadAddress("adopt needs dc")
    if "tls_cert" in options and "tls" not in options:
        raise BadAddress("tls_cert needs tls")
    return options


def _replication(options: dict[str, str]) -> int | dict[str, int] | None:
    text = options.get("replication")
    if text is None:
        return None
    if _FACTOR.fullmatch(text):
        return int(text)
    if not _CENTRES.fullmatch(text):
        raise BadAddress(f"replication is {text!r}: a number, or dc1:3,dc2:3")
    factors = {name: int(count) for name, count in (part.split(":") for part in text.split(","))}
    if len(factors) > 1 and "dc" not in options:
        raise BadAddress("with several data centres, say with dc=NAME which one is ours")
    if "dc" in options and options["dc"] not in factors:
        raise BadAddress(f"replication has nothing for the data centre {options['dc']}")
    return factors


def _dc(options: dict[str, str]) -> str | None:
    dc = options.get("dc")
    if dc is not None and not re.fullmatch(_NAME, dc):
        raise BadAddress(f"{dc!r} is not a data centre")
    return dc


def _switch(options: dict[str, str], name: str, default: str) -> bool:
    value = options.get(name, default)
    if value not in ("on", "off"):
        raise BadAddress(f"{name} is {value!r}: on or off")
    return value == "on"
