"""What the tests of identity share: a clock that can be set, keys, authenticators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pushlane_gateway.auth.authenticator import Authenticator, open_authenticator
from pushlane_gateway.auth.key import ApiKey, make_key
from pushlane_gateway.auth.key_file import add_key
from pushlane_gateway.auth.rule import parse_rules
from pushlane_gateway.auth.secret import Secret
from pushlane_gateway.auth.settings import AuthSettings

NOW = 1_763_251_200_000
SIGNING = Secret("s" * 40)


class Wall:
    """A wall clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


def make_token(
    path: Path, *rules: str, expires_at: int | None = None, tenant: str = "default"
) -> tuple[ApiKey, str]:
    """A new key in the file, and its text."""
    key, secret = make_key(
        name="test",
        tenant=tenant,
        rules=parse_rules(rules or ["admin:*"]),
        now=NOW,
        expires_at=expires_at,
    )
    add_key(path, key)
    return key, secret.reveal()


def make_authenticator(
    path: Path | None = None, wall: Wall | None = None, **settings: Any
) -> Authenticator:
    settings = {"signing_secrets": (SIGNING,), **settings}
    return open_authenticator(AuthSettings(**settings), path, wall=wall or Wall())
