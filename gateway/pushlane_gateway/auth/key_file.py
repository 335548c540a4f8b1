"""The file of API keys: `pushlane token` writes it, a running server reads it again and again.

    {"version": 1, "keys": [{"id": …, "name": …, "tenant": …, "rules": [...], "hash": "sha256:…",
                             "created_at": …, "expires_at": …}]}

A revoked key is taken out. A file without any key still says that keys are asked for: otherwise to
revoke the last one would open the server to everybody.

Others may read the file (it holds hashes only), but a file that others can write is refused: who
can write it can give themselves any right.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from pushlane.wire.errors import BadRequest, NotFound, PushlaneError
from pushlane.wire.names import check_tenant_name
from pushlane_gateway.auth.key import ApiKey, check_label
from pushlane_gateway.auth.private_file import locked, make_folder, read_bounded, write_private
from pushlane_gateway.auth.rule import parse_rules

DEFAULT_NAME = "keys.json"
MAX_KEYS = 10_000
"""Keys of one file: it is read and checked whole."""

Stamp = tuple[int, int, int]
"""Changes whenever the file does: time of change, size, inode."""

_SHA256 = "sha256:"
_WRITABLE_BY_OTHERS = 0o022
_EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class BrokenKeyFile(Exception):
    """The file is there, but can't be used."""


class OutOfDescriptors(BrokenKeyFile):
    """The process has no file descriptor left to read it with."""


class _Row(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    id: str
    name: str
    tenant: str
    rules: list[str]
    hash: str
    created_at: int
    expires_at: int | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    version: Literal[1]
    keys: list[_Row]


Keys = dict[str, ApiKey]
"""By id."""


def read_keys(path: Path, *, follow: bool = True) -> tuple[Keys, Stamp] | None:
    """The keys of a file; None when there is no file. `BrokenKeyFile` says what is wrong.

    The server may find a link (that is how Kubernetes mounts a secret); who changes the file may
    not, so that root is not led to another one.
    """
    try:
        content, status = read_bounded(path, follow=follow)
    except FileNotFoundError:
        return None
    except OSError as error:
        kind = OutOfDescriptors if error.errno in _EXHAUSTED else BrokenKeyFile
        raise kind(f"{path} can't be read: {error.strerror or error}") from None
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise BrokenKeyFile(f"{path} can be written by others: chmod 600 {path}")
    try:
        keys = _decode(content)
    except (msgspec.DecodeError, PushlaneError, ValueError) as error:
        raise BrokenKeyFile(f"{path} is not a valid key file: {error}") from None
    return keys, (status.st_mtime_ns, status.st_size, status.st_ino)


def stamp_of(path: Path) -> Stamp | None:
    """What `read_keys` would say of the file, without reading it; None when it isn't there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def add_key(path: Path, key: ApiKey) -> None:
    """Put a new key into the file, which is made if need be."""
    make_folder(path.absolute().parent)
    with locked(path):
        keys = _read_or_none(path)
        if len(keys) >= MAX_KEYS:
            raise BadRequest(f"{path} has {len(keys)} keys, the most that it may: revoke some")
        assert key.id not in keys, "ids are random"
        keys[key.id] = key
        _write(path, keys.values())


def remove_key(path: Path, id: str) -> ApiKey:
    """Take a key out of the file; `NotFound` when it is not in it."""
    if not path.exists():
        raise NotFound(f"there is no file of keys at {path}")
    with locked(path):
        keys = _read_or_none(path)
        removed = keys.pop(id, None)
        if removed is None:
            raise NotFound(f"no key has the id {id[:12]!a}: `pushlane token list` shows them")
        _write(path, keys.values())
    return removed


def _read_or_none(path: Path) -> Keys:
    found = read_keys(path, follow=False)
    return {} if found is None else found[0]


def _write(path: Path, keys: Iterable[ApiKey]) -> None:
    file = _File(1, [_pack(key) for key in keys])
    text = msgspec.json.format(msgspec.json.encode(file), indent=2)
    write_private(path, text + b"\n")


def _decode(content: bytes) -> Keys:
    file = msgspec.json.decode(content, type=_File)
    if len(file.keys) > MAX_KEYS:
        raise ValueError(f"it has {len(file.keys)} keys: at most {MAX_KEYS}")
    keys = {row.id: _unpack(row) for row in file.keys}
    if len(keys) < len(file.keys):
        raise ValueError("two keys have the same id")
    return keys


def _pack(key: ApiKey) -> _Row:
    return _Row(
        id=key.id,
        name=key.name,
        tenant=key.tenant,
        rules=[str(rule) for rule in key.rules],
        hash=_SHA256 + key.digest.hex(),
        created_at=key.created_at,
        expires_at=key.expires_at,
    )


def _unpack(row: _Row) -> ApiKey:
    if not row.hash.startswith(_SHA256) or len(row.hash) != len(_SHA256) + 64:
        raise ValueError(f"the hash of key {row.id!a} is not {_SHA256} and 64 hexadecimal digits")
    return ApiKey(
        id=row.id,
        name=check_label(row.name),
        tenant=check_tenant_name(row.tenant),
        rules=parse_rules(row.rules),
        digest=bytes.fromhex(row.hash.removeprefix(_SHA256)),
        created_at=row.created_at,
        expires_at=row.expires_at,
    )
