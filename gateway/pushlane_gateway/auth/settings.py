"""What an operator may set about keys, tokens and browsers, and why it is as it is."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from pushlane.wire.limits import DAY, HOUR, MINUTE, SECOND
from pushlane_gateway.auth.secret import Secret


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    keys_file: str | None = None
    """The file of API keys. Unless set, `keys.json` in the folder of an embedded store. If the
    file exists, everybody needs a key or a token."""
    required: bool = False
    """Ask for a key even when there is no file of keys yet."""
    insecure: bool = False
    """Serve addresses that other machines reach without asking for keys."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of the web pages that may connect, exactly as browsers send them. Programs send
    none and always may. Without authentication only pages from this machine may, unless
    `insecure` is set."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names under which an `insecure` server may be called, besides addresses in numbers: a
    page whose own name was made to lead here (DNS rebinding) would be let in otherwise."""
    signing_secrets: tuple[Secret, ...] = ()
    """Secrets of at least 32 characters that sign short-lived tokens: the first one signs, all
    verify, so that a new one can be put in front of the old. Unless set, one is made and kept in
    the folder of an embedded store, else in memory."""
    issuer: Annotated[str, Meta(min_length=1, max_length=120)] = "pushlane"
    """The `iss` of tokens: those of another issuer are refused."""
    token_ttl_ms_max: Annotated[int, Meta(ge=SECOND, le=30 * DAY)] = 12 * HOUR
    """The longest life of a signed token. It sits in browsers, so it should end on its own."""
    token_ttl_ms: Annotated[int, Meta(ge=SECOND, le=30 * DAY)] = 15 * MINUTE
    """The life of a signed token when none was asked for."""
    clock_leeway_ms: Annotated[int, Meta(ge=0, le=10 * MINUTE)] = 10 * SECOND
    """How far the clocks of two servers may differ: a token signed by the other one is valid from
    this much before its `nbf` on. Its end is taken literally."""
    failed_logins: Annotated[int, Meta(ge=0, le=1_000_000)] = 10
    """Log lines about failed logins in a minute. All are counted in a metric, and the next line
    says how many were left out."""
    refused_origins: Annotated[int, Meta(ge=0, le=1_000_000)] = 10
    """Log lines in a minute about web pages whose Origin is not allowed. All are counted."""
    reload_ms: Annotated[int, Meta(ge=100, le=10 * MINUTE)] = 2 * SECOND
    """How often the file of keys is looked at: how long a revoked key still works at most."""
