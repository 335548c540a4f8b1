"""API keys: `plk_ID_SECRET`, made once, shown once, kept as a hash.

The id is public: it finds the key's row, names it in lists and logs, and revokes it. The secret has
256 random bits, in letters and digits so that it survives shells, URLs and double clicks.

The hash is plain SHA-256, and that is right here. Slow hashes (bcrypt, argon2) make guessing
expensive where people choose passwords from a small space; nobody searches 2^256. With a slow hash,
each connection would cost tens of milliseconds of a core, and so would each wrong guess: a way to
bring the server down. A salt would be in vain for the same reason: no two secrets are the same. The
id is hashed along, so a hash can't be moved to another row.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable

import msgspec

from pushlane.wire.errors import BadRequest
from pushlane_gateway.auth.identity import Identity
from pushlane_gateway.auth.rule import Rule
from pushlane_gateway.auth.secret import Secret

PREFIX = "plk_"
MAX_LABEL = 120
"""Characters of a key's name: it stands in lists and logs."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_LENGTH = 12
_SECRET_LENGTH = 43  # 62^43 is a little more than 2^256
_KEY = re.compile(
    rf"{PREFIX}([0-9A-Za-z]{{{_ID_LENGTH}}})_[0-9A-Za-z]{{{_SECRET_LENGTH}}}", re.ASCII
)


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the server knows it: all but the secret."""

    id: str
    name: str
    tenant: str
    rules: tuple[Rule, ...]
    digest: bytes
    created_at: int
    expires_at: int | None = None

    def __repr__(self) -> str:
        return f"ApiKey({self.id!r}, {self.name!r})"

    def is_secret(self, text: str) -> bool:
        """Whether this is the key's full text, in a time that tells nothing."""
        return hmac.compare_digest(self.digest, digest_of(text))

    def identity(self) -> Identity:
        return Identity(self.name, self.tenant, self.rules, self.expires_at, self.id)


def make_key(
    *,
    name: str,
    tenant: str,
    rules: tuple[Rule, ...],
    now: int,
    expires_at: int | None = None,
    randbelow: Callable[[int], int] = secrets.randbelow,
) -> tuple[ApiKey, Secret]:
    """A new key, and its full text for the one time that it is shown."""
    check_label(name)
    id = _base62(randbelow(62**_ID_LENGTH), _ID_LENGTH)
    text = f"{PREFIX}{id}_{_base62(randbelow(2**256), _SECRET_LENGTH)}"
    key = ApiKey(
        id=id,
        name=name,
        tenant=tenant,
        rules=rules,
        digest=digest_of(text),
        created_at=now,
        expires_at=expires_at,
    )
    return key, Secret(text)


def id_of(text: str) -> str | None:
    """The id in a key's full text; None when it is no key at all."""
    found = _KEY.fullmatch(text)
    return found[1] if found else None


def digest_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("ascii")).digest()


def check_label(name: str, what: str = "a key's name") -> str:
    """A key's name is for people; it only has to be printable and short."""
    if not 1 <= len(name) <= MAX_LABEL or not name.isprintable() or name != name.strip():
        raise BadRequest(f"{what} has 1 to {MAX_LABEL} printable characters, {name[:150]!a}")
    return name


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    assert number == 0
    return "".join(reversed(digits))
