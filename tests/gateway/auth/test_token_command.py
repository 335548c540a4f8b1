"""`pushlane token`, run as users run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pushlane import cli
from pushlane_gateway.auth.key_file import read_keys
from tests.gateway.auth.tools import make_authenticator


class Shell:
    """Runs the command in a folder of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def __call__(self, *args: str, status: int = 0) -> str:
        self._capsys.readouterr()
        try:
            cli.build_app()(["token", *args], result_action="return_value")
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        out, self.err = self._capsys.readouterr()
        assert code == status, out + self.err
        return out

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "--json"))


@pytest.fixture
def token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capsys)


DEFAULT = Path("pushlane-data", "keys.json")


def test_a_key_is_made_shown_and_works(token: Shell) -> None:
    text = token("create", "ci", "--allow", "publish:orders*", "--allow", "consume:orders*").strip()
    identity = make_authenticator(DEFAULT).authenticate(text)
    assert [str(rule) for rule in identity.rules] == ["publish:orders*", "consume:orders*"]
    assert (identity.name, identity.tenant, identity.expires_at) == ("ci", "default", None)
    assert "not shown again" in token.err
    assert "first one" in token.err
    assert text not in token.err
    token("create", "second", "--allow", "admin:*")
    assert "first one" not in token.err


def test_json_has_the_key_once(token: Shell) -> None:
    made = token.json(
        "create", "ci", "--allow", "admin:*", "--tenant", "acme", "--expires-in", "90d"
    )
    assert made["token"].startswith(f"plk_{made['id']}_")
    assert made["expires_at"] - made["created_at"] == 90 * 86_400_000
    (listed,) = token.json("list")
    assert listed == {key: value for key, value in made.items() if key != "token"}
    assert listed["tenant"] == "acme"


def test_the_list_is_for_people_and_has_no_secrets(token: Shell) -> None:
    text = token("create", "ci", "--allow", "publish:a", "--expires-in", "1d").strip()
    head, row = token("list").splitlines()
    assert head.split() == ["ID", "NAME", "TENANT", "MAY", "CREATED", "EXPIRES"]
    assert "publish:a" in row
    assert text.rpartition("_")[2] not in row
    token("create", "other", "--allow", "admin:*")
    assert token("list").splitlines()[2].endswith("never")


def test_an_empty_list_says_what_that_means(token: Shell) -> None:
    assert token("list") == ""
    assert "asks nobody" in token.err
    assert token.json("list") == []
    id = token.json("create", "ci", "--allow", "admin:*")["id"]
    token("revoke", id)
    assert token("list") == ""
    assert "nobody gets in" in token.err


def test_revoke(token: Shell) -> None:
    first = token.json("create", "a", "--allow", "admin:*")
    second = token.json("create", "b", "--allow", "admin:*")
    assert token("revoke", first["id"]) == f"revoked {first['id']} (a)\n"
    assert token.json("revoke", second["token"])["revoked"] is True, "the whole key will do"
    assert token.json("list") == []
    assert token("revoke", first["id"], status=2) == ""
    assert "token list" in token.err


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["create", "ci", "--allow", "shout:a"], "publish, consume, manage, admin"),
        (["create", "ci", "--allow", "publish:a", "--expires-in", "soon"], "90d"),
        (["create", "ci", "--allow", "publish:a", "--tenant", "a/b"], "tenant name"),
        (["create", "", "--allow", "publish:a"], "printable"),
        (["list", "--config", "missing.toml"], "missing.toml can't be read"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_made(
    token: Shell, args: list[str], hint: str
) -> None:
    assert token(*args, status=2) == ""
    assert hint in token.err
    assert token.err.startswith("pushlane token: ")
    assert not DEFAULT.exists()


def test_without_rules_no_key_is_made(token: Shell) -> None:
    with pytest.raises(SystemExit):
        cli.build_app()(["token", "create", "ci"])
    assert not DEFAULT.exists()


def test_the_file_is_the_servers(token: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    token("create", "ci", "--allow", "admin:*", "--data", "there")
    assert read_keys(Path("there", "keys.json"))
    token("create", "ci", "--allow", "admin:*", "--keys-file", "mine.json")
    assert read_keys(Path("mine.json"))
    Path("pushlane.toml").write_text('[auth]\nkeys_file = "by-file.json"\n')
    token("create", "ci", "--allow", "admin:*")
    assert read_keys(Path("by-file.json"))
    monkeypatch.setenv("PUSHLANE_AUTH_KEYS_FILE", "by-variable.json")
    token("create", "ci", "--allow", "admin:*")
    assert read_keys(Path("by-variable.json"))


def test_a_store_without_a_folder_needs_a_file_named(
    token: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSHLANE_STORE", "memory:")
    token("list", status=2)
    assert "auth.keys_file" in token.err


def test_a_broken_file_is_left_alone(token: Shell) -> None:
    Path("mine.json").write_text("{")
    token("create", "ci", "--allow", "admin:*", "--keys-file", "mine.json", status=1)
    assert "not a valid key file" in token.err
    assert Path("mine.json").read_text() == "{"


def test_a_folder_that_cannot_be_made(token: Shell) -> None:
    Path("file").write_text("")
    token("create", "ci", "--allow", "admin:*", "--data", "file/data", status=1)
    assert "user that the server runs as" in token.err


@pytest.mark.parametrize("name", ["keys.json", "keys.json.lock"])
def test_no_command_follows_a_link(token: Shell, tmp_path: Path, name: str) -> None:
    id = token.json("create", "ci", "--allow", "admin:*")["id"]
    file = DEFAULT.with_name(name)
    moved = file.replace(tmp_path / "elsewhere")
    content = moved.read_bytes()
    file.symlink_to(moved)
    for command in (["create", "b", "--allow", "admin:*"], ["revoke", id]):
        token(*command, status=1)
        assert "it is a link" in token.err
    assert file.is_symlink()
    assert moved.read_bytes() == content
    token("list", status=1 if name == "keys.json" else 0)
