"""The signing secret that a server makes for itself, kept in its folder.

One secret a line, the first one signs: to rotate, put a new line in front, restart, and take the
old line out once the longest token has ended. Who can read this file can sign any token, so a file
that others can read is refused.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from pushlane_gateway.auth.private_file import locked, make_folder, read_bounded, write_private
from pushlane_gateway.auth.secret import Secret
from pushlane_gateway.configuration.errors import ConfigurationError

DEFAULT_NAME = "signing.secret"
MIN_SECRET = 32
"""Characters of a signing secret: HMAC-SHA-256 is as strong as 256 bits of key at best."""
MAX_SECRETS = 16
"""Secrets that verify: more than any rotation needs."""

_SEEN_BY_OTHERS = 0o077


def make_secret(token: Callable[[int], str] = secrets.token_urlsafe) -> Secret:
    return Secret(token(32))


def read_or_make(path: Path) -> tuple[Secret, ...]:
    """The secrets of a file, which is made with one in it when it isn't there."""
    try:
        make_folder(path.absolute().parent)
        with locked(path):
            if not path.exists():
                write_private(path, make_secret().reveal().encode() + b"\n")
            return _read(path)
    except OSError as error:
        raise ConfigurationError(
            f"{path} can't be used: {error.strerror or error}; "
            "make it accessible, or set auth.signing_secrets"
        ) from None


def check_secrets(found: tuple[Secret, ...], where: str) -> tuple[Secret, ...]:
    if len(found) > MAX_SECRETS:
        raise ConfigurationError(f"{where} has {len(found)} secrets: at most {MAX_SECRETS}")
    if any(len(secret) < MIN_SECRET for secret in found):
        raise ConfigurationError(
            f"{where} has a secret of less than {MIN_SECRET} characters; "
            """make one with: python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"""
        )
    if len(set(found)) < len(found):
        raise ConfigurationError(f"{where} has the same secret twice")
    return found


def _read(path: Path) -> tuple[Secret, ...]:
    content, status = read_bounded(path)
    if status.st_mode & _SEEN_BY_OTHERS:
        raise ConfigurationError(f"{path} can be read by others: chmod 600 {path}")
    lines = content.decode("utf-8", "replace").split()
    if not lines:
        raise ConfigurationError(f"{path} is empty: remove it, and a new secret is made")
    return check_secrets(tuple(Secret(line) for line in lines), str(path))
