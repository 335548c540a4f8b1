"""Who is it? One Authenticator answers for the whole server.

    authenticator = open_authenticator(settings, folder)      # at the start; ConfigurationError
    nursery.start_soon(authenticator.watch)                   # the file of keys may change
    identity = authenticator.authenticate(token)              # or Unauthorized
    authenticator.subscribe(end_sessions_whose_identity_is_no_longer_valid)

A credential that was given is checked, also where none is asked for: who sends one believes to be
somebody. Once keys are asked for it stays so for the life of the process, whatever becomes of the
file: a file that vanishes must not open the server.

A session keeps its Identity. `generation` grows with every change of the keys; after one,
`still_valid` says of each identity whether it goes on. A signed token dies with the key that it was
made from, and also when that key was given fewer rights than the token has. Tokens that an
anonymous caller made die when keys begin to be asked for.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec
import trio

from pushlane.wire.errors import BadRequest, Forbidden, Unauthorized
from pushlane.wire.limits import DEFAULTS
from pushlane_gateway.auth.identity import ANONYMOUS, Identity
from pushlane_gateway.auth.key import PREFIX, ApiKey, check_label, digest_of, id_of
from pushlane_gateway.auth.key_file import (
    BrokenKeyFile,
    Keys,
    OutOfDescriptors,
    Stamp,
    read_keys,
    stamp_of,
)
from pushlane_gateway.auth.refused import NoToken
from pushlane_gateway.auth.rule import Rule, check_count, covers, first_uncovered
from pushlane_gateway.auth.settings import AuthSettings
from pushlane_gateway.auth.signer import DEFAULT_NAME as SIGNING_FILE
from pushlane_gateway.auth.signer import Signer, check_secrets, make_secret, read_or_make
from pushlane_gateway.configuration.errors import ConfigurationError
from pushlane_gateway.descriptors import Reserve

log = logging.getLogger(__name__)

_NOBODY = digest_of("nobody")
_NO_TOKEN = (
    "this server asks for a token: send one in hello.token or as `Authorization: Bearer TOKEN`; "
    "`pushlane token create` makes them"
)
_NO_KEY = "no such key, or it was revoked: ask for a new one (`pushlane token create`)"
_OPEN = "this server asks for no keys and has none: leave the token out"


def wall_clock() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


def open_authenticator(
    settings: AuthSettings,
    keys_file: Path | None = None,
    folder: Path | None = None,
    *,
    wall: Callable[[], int] = wall_clock,
) -> Authenticator:
    """`folder` is where a signing secret of our own is kept; without it, it lives in memory."""
    signing = check_secrets(settings.signing_secrets, "auth.signing_secrets")
    if not signing:
        signing = (make_secret(),) if folder is None else read_or_make(folder / SIGNING_FILE)
    signer = Signer(signing, settings.issuer, settings.clock_leeway_ms)
    authenticator = Authenticator(settings, signer, keys_file, wall=wall)
    try:
        authenticator.reload()
    except BrokenKeyFile as broken:
        raise ConfigurationError(str(broken)) from None
    return authenticator


class Authenticator:
    """One per server. `reload` and `watch` follow the file of keys."""

    def __init__(
        self,
        settings: AuthSettings,
        signer: Signer,
        keys_file: Path | None = None,
        *,
        wall: Callable[[], int] = wall_clock,
    ) -> None:
        self.settings = settings
        self.required = settings.required
        """False: anybody is ANONYMOUS, with all rights. It may become True, never False again."""
        self.generation = 0
        """Grows with every change of the keys."""
        self.failures = 0
        """How often a changed file of keys was found broken; a metric."""
        self._signer = signer
        self._path = keys_file
        self._wall = wall
        self._keys: Keys = {}
        self._stamp: Stamp | None = None
        self._changed: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"Authenticator(required={self.required}, keys={len(self._keys)})"

    def __len__(self) -> int:
        """How many keys it knows."""
        return len(self._keys)

    def __bool__(self) -> bool:
        return True

    # Using it

    def authenticate(self, token: str | None) -> Identity:
        """Whom a token stands for, be it an API key or signed; `Unauthorized` says what to do."""
        if token is None or token == "":
            if self.required:
                raise NoToken(_NO_TOKEN)
            return ANONYMOUS
        if len(token) > DEFAULTS.token_bytes:
            raise Unauthorized(
                f"the token has more than {DEFAULTS.token_bytes} characters", limit="token_bytes"
            )
        identity = self._by_key(token) if token.startswith(PREFIX) else self._by_signature(token)
        self.check(identity)
        return identity

    def check(self, identity: Identity) -> None:
        """`Unauthorized` when an identity from before is no longer valid."""
        if identity.expires_at is not None and identity.expires_at <= self._wall():
            raise Unauthorized("the key or token has expired: get a new one")
        if identity.key is None:
            if self.required:
                raise Unauthorized(_NO_TOKEN if identity is ANONYMOUS else _NO_KEY)
            return
        key = self._keys.get(identity.key)
        if key is None:
            raise Unauthorized(_NO_KEY)
        if key.expires_at is not None and key.expires_at <= self._wall():
            raise Unauthorized("the key has expired: get a new one")
        if key.tenant != identity.tenant or not covers(key.rules, identity.rules):
            raise Unauthorized("the key was given other rights: connect again")

    def still_valid(self, identity: Identity) -> bool:
        try:
            self.check(identity)
        except Unauthorized:
            return False
        return True

    def issue(
        self,
        by: Identity,
        rules: Iterable[Rule],
        ttl_ms: int | None = None,
        subject: str | None = None,
    ) -> tuple[str, int]:
        """A signed token with some of the caller's rights, and when it ends (Unix ms).

        It never outlives what it is made from, and keeps the subject of a token.
        """
        self.check(by)
        now = self._wall()
        wanted = tuple(dict.fromkeys(rules))
        check_count(wanted)
        refused = first_uncovered(by.rules, wanted)
        if refused is not None:
            raise Forbidden(f"{refused} is more than your own token allows: ask for less")
        expires_at = self._expiry(by, now, ttl_ms)
        identity = msgspec.structs.replace(
            by,
            rules=wanted,
            expires_at=expires_at,
            subject=_subject(by, subject),
            token=by.token or secrets.token_hex(9),
        )
        return self._signer.sign(identity, now), expires_at

    def subscribe(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Have a plain function called after every change of the keys; the answer undoes it."""
        self._changed.append(changed)
        return lambda: self._changed.remove(changed)

    # Following the file of keys

    def reload(self) -> bool:
        """Read the file if it changed. `BrokenKeyFile`: the keys stay as they were."""
        return self._path is not None and self._apply(_look(self._path, self._stamp))

    async def watch(self) -> None:
        """A task: looks at the file again and again."""
        if self._path is None:
            return
        told: str | None = None
        with Reserve() as reserve:
            while True:
                await trio.sleep(self.settings.reload_ms / 1000)
                reserve.take()
                try:
                    found = await self._look(self._path, reserve)
                except BrokenKeyFile as broken:
                    if str(broken) != told:
                        told = str(broken)
                        self.failures += 1
                        log.error("the keys stay as they were: %s", broken)
                    continue
                told = None
                if self._apply(found):
                    log.info("keys read again: %d from %s", len(self._keys), self._path)

    async def _look(self, path: Path, reserve: Reserve) -> tuple[Keys, Stamp] | None:
        """In a thread; with the descriptor in reserve, when there is no other, here and now."""
        try:
            return await trio.to_thread.run_sync(_look, path, self._stamp)
        except OutOfDescriptors:
            return reserve.use(partial(_look, path, self._stamp))

    def _apply(self, found: tuple[Keys, Stamp] | None) -> bool:
        if found is None:
            return False
        keys, self._stamp = found
        if keys == self._keys and self.required:
            return False
        self._keys = keys
        self.required = True
        self.generation += 1
        for changed in tuple(self._changed):
            changed()
        return True

    # Behind the scenes

    def _by_key(self, token: str) -> Identity:
        if not self.required:
            raise Unauthorized(_OPEN)
        id = id_of(token)
        if id is None:
            raise Unauthorized(f"the key is not whole: it begins with {PREFIX}, check the copy")
        key = self._keys.get(id) or _nobody(id)
        if not key.is_secret(token):
            raise Unauthorized(f"key {id}: {_NO_KEY}")
        return key.identity()

    def _by_signature(self, token: str) -> Identity:
        return self._signer.verify(token, self._wall())

    def _expiry(self, by: Identity, now: int, ttl_ms: int | None) -> int:
        most = self.settings.token_ttl_ms_max
        if ttl_ms is None:
            ttl_ms = min(self.settings.token_ttl_ms, most)
        if not 1000 <= ttl_ms <= most:
            limit = "token_ttl_ms_max" if ttl_ms > most else None
            raise BadRequest(f"ttl_ms is {ttl_ms}: 1000 to {most}", limit=limit)
        expires_at = now + ttl_ms
        if by.expires_at is not None:
            expires_at = min(expires_at, by.expires_at)
        return expires_at // 1000 * 1000


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header; `Unauthorized` for another scheme than Bearer."""
    if authorization is None:
        return None
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("the Authorization header is not `Bearer TOKEN`")
    return token.strip()


def _subject(by: Identity, wanted: str | None) -> str | None:
    """For whom a token is: who has one for a subject makes none for another."""
    if wanted is None:
        return by.subject
    if by.subject is not None and by.subject != wanted:
        raise Forbidden("your own token is for another subject: leave subject out")
    return check_label(wanted, "a subject")


def _nobody(id: str) -> ApiKey:
    """What an unknown id is compared with, so that it takes as long as a known one."""
    return ApiKey(id=id, name="", tenant="", rules=(), digest=_NOBODY, created_at=0)


def _look(path: Path, last: Stamp | None) -> tuple[Keys, Stamp] | None:
    """The file's keys when it is another than last time; None when it is the same.

    A file that was never there is no fault, one that went is.
    """
    stamp = stamp_of(path)
    if stamp is not None and stamp == last:
        return None
    found = read_keys(path)
    if found is None and last is not None:
        raise BrokenKeyFile(f"{path} is gone: put it back, or restart")
    return found
