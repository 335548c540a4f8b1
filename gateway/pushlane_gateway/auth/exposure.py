"""May a server listen there? Not where others reach it, unless it asks them for keys.

Without keys everybody who reaches the server may read and delete everything. On this machine that
is convenient; on a network it is an accident, so it has to be said aloud: `--insecure`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Protocol

from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.listener.address import Address, parse_address


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
