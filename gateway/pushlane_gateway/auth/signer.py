"""Short-lived tokens for browsers, signed by the server: JSON Web Tokens with HMAC-SHA-256.

The algorithm is pinned: what a token's header says of it is only compared. The `kid` names the
secret that signed; with several secrets the first one signs and all verify, so secrets can be
rotated without cutting anybody off. Both the signing key and its `kid` are derived from the
secret, by hashes that are kept apart, so a `kid` gives nothing away.

A token says who made it (`key`, the API key's public id): it dies with that key. Times are checked
here and not by the library, whose clock can't be set.

Unless it is told its secrets, a server makes one for itself and keeps it in its folder. One secret
a line, the first one signs: to rotate, put a new line in front, restart, and take the old line out
once the longest token has ended. Who can read this file can sign any token, so a file that others
can read is refused.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jwt
import msgspec

from pushlane.wire.errors import BadRequest, Unauthorized
from pushlane.wire.limits import DEFAULTS
from pushlane.wire.names import check_tenant_name
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.key import check_label
from pushlane_gateway.auth.private_file import locked, make_folder, read_bounded, write_private
from pushlane_gateway.auth.rule import parse_rules
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


ALGORITHM = "HS256"

_AGAIN = "get a new one from POST /v1/tokens"
_CLAIMS = ["exp", "nbf", "iat", "iss", "sub"]


class _Claims(msgspec.Struct):
    """Of a token that we signed ourselves. Times are in seconds, as the standard has it."""

    exp: int
    nbf: int
    iat: int
    sub: str
    tenant: str
    rules: list[str]
    key: str | None = None
    subject: str | None = None
    jti: str | None = None


class Signer:
    """Signs and verifies. `secrets`: the first signs, all verify; there is at least one."""

    def __init__(
        self, secrets: Sequence[Secret], issuer: str = "pushlane", leeway_ms: int = 0
    ) -> None:
        assert secrets, "nothing to sign with"
        self._issuer = issuer
        self._leeway_ms = leeway_ms
        self._keys = {_key_id(secret): _signing_key(secret) for secret in secrets}
        self._first = _key_id(secrets[0])

    def sign(self, identity: Identity, now: int) -> str:
        """A token for this identity, whose `expires_at` is a whole second."""
        assert identity.expires_at is not None, "signed tokens end"
        claims: dict[str, Any] = {
            "iss": self._issuer,
            "sub": identity.name,
            "iat": now // 1000,
            "nbf": now // 1000,
            "exp": identity.expires_at // 1000,
            "tenant": identity.tenant,
            "rules": [str(rule) for rule in identity.rules],
        }
        if identity.key is not None:
            claims["key"] = identity.key
        if identity.subject is not None:
            claims["subject"] = identity.subject
        if identity.token is not None:
            claims["jti"] = identity.token
        token = jwt.encode(
            claims, self._keys[self._first], algorithm=ALGORITHM, headers={"kid": self._first}
        )
        if len(token) > DEFAULTS.token_bytes:
            raise BadRequest(f"the token would have {len(token)} bytes: ask for fewer rules")
        return token

    def verify(self, token: str, now: int) -> Identity:
        """Whom a token stands for. `Unauthorized` says what to do; it never shows the token."""
        claims = self._decode(token)
        if claims.nbf * 1000 > now + self._leeway_ms:
            raise Unauthorized("the token is not valid yet: compare the clocks of both machines")
        if claims.exp * 1000 <= now:
            raise Unauthorized(f"the token has expired: {_AGAIN}")
        try:
            name = check_label(claims.sub)
            tenant = check_tenant_name(claims.tenant)
            rules = parse_rules(claims.rules)
            subject = None if claims.subject is None else check_label(claims.subject, "a subject")
        except BadRequest as error:  # somebody else signs with our secret
            raise Unauthorized(f"the token is not valid ({error}): {_AGAIN}") from None
        family = claims.jti or _digest(token)
        return Identity(name, tenant, rules, claims.exp * 1000, claims.key, subject, family)

    def _decode(self, token: str) -> _Claims:
        try:
            payload = jwt.decode(
                token,
                self._key_for(token),
                algorithms=[ALGORITHM],
                issuer=self._issuer,
                options={
                    "require": _CLAIMS,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            return msgspec.convert(payload, _Claims)
        except jwt.InvalidIssuerError:
            raise Unauthorized(f"the token is from another issuer: {_AGAIN}") from None
        except jwt.InvalidAlgorithmError:
            raise Unauthorized(f"the token is not signed with {ALGORITHM}: {_AGAIN}") from None
        except jwt.InvalidSignatureError:
            raise Unauthorized(f"the token's signature is wrong: {_AGAIN}") from None
        except (jwt.PyJWTError, ValueError):
            # ValueError: text that has no bytes, claims of the wrong types.
            raise Unauthorized(f"this is neither an API key nor a signed token: {_AGAIN}") from None

    def _key_for(self, token: str) -> str:
        kid = jwt.get_unverified_header(token).get("kid")
        key = self._keys.get(kid) if isinstance(kid, str) else None
        if key is None:
            raise Unauthorized(f"the token was not signed with a secret of this server: {_AGAIN}")
        return key


def _signing_key(secret: Secret) -> str:
    return _derive(secret, b"pushlane-sign", 32)


def _key_id(secret: Secret) -> str:
    return _derive(secret, b"pushlane-kid", 6)


def _digest(token: str) -> str:
    """Names a token that has no name of its own."""
    return hashlib.blake2b(token.encode(), digest_size=9).hexdigest()


def _derive(secret: Secret, purpose: bytes, size: int) -> str:
    """In hexadecimal: the library refuses keys that look like PEM or JSON, this never does."""
    text = secret.reveal().encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=size, person=purpose).hexdigest()
