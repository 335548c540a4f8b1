"""The file of keys: written whole, read with suspicion."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pushlane.wire.errors import BadRequest, NotFound
from pushlane_gateway.auth import key_file
from pushlane_gateway.auth.key import ApiKey, make_key
from pushlane_gateway.auth.key_file import (
    BrokenKeyFile,
    add_key,
    read_keys,
    remove_key,
    stamp_of,
)
from pushlane_gateway.auth.rule import Rule
from pushlane_gateway.auth.secret import Secret


def new_key(name: str = "ci") -> tuple[ApiKey, Secret]:
    rules = (Rule("publish", "orders*"), Rule("consume", "topic:news"))
    return make_key(name=name, tenant="acme", rules=rules, now=1, expires_at=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys.json"


def test_no_file_is_no_fault(path: Path) -> None:
    assert read_keys(path) is None
    assert stamp_of(path) is None


def test_what_was_added_is_read_and_what_was_removed_is_not(path: Path) -> None:
    first, second = new_key("a")[0], new_key("b")[0]
    add_key(path, first)
    add_key(path, second)
    found = read_keys(path)
    assert found == ({first.id: first, second.id: second}, stamp_of(path))
    assert remove_key(path, first.id) == first
    assert read_keys(path) == ({second.id: second}, stamp_of(path))


def test_the_last_key_leaves_an_empty_file_behind(path: Path) -> None:
    key, _ = new_key()
    add_key(path, key)
    remove_key(path, key.id)
    found = read_keys(path)
    assert found is not None
    assert found[0] == {}


def test_it_is_private_and_holds_no_secret(path: Path) -> None:
    key, secret = new_key()
    add_key(path, key)
    assert path.stat().st_mode & 0o777 == 0o600
    assert secret.reveal().rpartition("_")[2] not in path.read_text()


def test_every_change_changes_the_stamp(path: Path) -> None:
    stamps = set()
    for _ in range(5):
        key, _ = new_key()
        add_key(path, key)
        stamps.add(stamp_of(path))
        remove_key(path, key.id)
        stamps.add(stamp_of(path))
    assert len(stamps) == 10


def test_to_remove_what_is_not_there(path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        remove_key(path, "abc")
    assert not path.parent.exists()
    add_key(path, new_key()[0])
    before = path.read_bytes()
    with pytest.raises(NotFound, match="token list"):
        remove_key(path, "abc")
    assert path.read_bytes() == before


def test_a_pasted_secret_is_not_repeated_in_the_error(path: Path) -> None:
    add_key(path, new_key()[0])
    with pytest.raises(NotFound) as fault:
        remove_key(path, "plk_abc_secretsecretsecret")
    assert "secret" not in str(fault.value)


def test_there_is_a_most_of_keys(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "MAX_KEYS", 2)
    add_key(path, new_key()[0])
    add_key(path, new_key()[0])
    with pytest.raises(BadRequest, match="revoke some"):
        add_key(path, new_key()[0])
    monkeypatch.setattr(key_file, "MAX_KEYS", 1)
    with pytest.raises(BrokenKeyFile, match="at most 1"):
        read_keys(path)


def row(**changed: Any) -> dict[str, Any]:
    good: dict[str, Any] = {"id": "a", "name": "n", "tenant": "t", "rules": ["admin:*"]}
    return {**good, "hash": "sha256:" + "0" * 64, "created_at": 0, "expires_at": None, **changed}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"version": 2, "keys": []}',
        b'{"keys": []}',
        b'{"version": 1, "keys": [], "more": 1}',
        *[
            json.dumps({"version": 1, "keys": rows}).encode()
            for rows in [
                [row(rules=[])],
                [row(rules=["shout:*"])],
                [row(rules="admin:*")],
                [row(name="")],
                [row(tenant="../x")],
                [row(hash="md5:" + "0" * 64)],
                [row(hash="sha256:" + "0" * 63)],
                [row(hash="sha256:" + "x" * 64)],
                [row(hash="sha256:" + " 0" * 32)],
                [row(expires_at="soon")],
                [row(extra=1)],
                [row(), row()],
            ]
        ],
    ],
)
def test_what_is_no_file_of_keys(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(BrokenKeyFile, match=r"keys\.json"):
        read_keys(path)
    with pytest.raises(BrokenKeyFile):
        add_key(path, new_key()[0])
    assert path.read_bytes() == content, "a broken file is not overwritten"


def test_the_model_row_is_good(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps({"version": 1, "keys": [row()]}))
    assert read_keys(path) is not None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    add_key(path, new_key()[0])
    path.chmod(mode)
    with pytest.raises(BrokenKeyFile, match="chmod 600"):
        read_keys(path)


def test_a_file_that_others_can_read_is_not(path: Path) -> None:
    add_key(path, new_key()[0])
    path.chmod(0o644)
    assert read_keys(path) is not None


def test_a_file_that_cannot_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.mkdir(parents=True)
    with pytest.raises(BrokenKeyFile, match="can't be read"):
        read_keys(path)
    assert os.path.isdir(path)
