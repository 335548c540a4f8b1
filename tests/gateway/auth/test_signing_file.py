"""The signing secret of our own: made once, kept, and kept from others."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pushlane_gateway.auth.secret import Secret
from pushlane_gateway.auth.signing_file import (
    MAX_SECRETS,
    check_secrets,
    make_secret,
    read_or_make,
)
from pushlane_gateway.configuration.errors import ConfigurationError


def test_it_is_made_once_and_privately(tmp_path: Path) -> None:
    path = tmp_path / "data" / "signing.secret"
    made = read_or_make(path)
    assert len(made) == 1
    assert len(made[0]) == 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_or_make(path) == made
    assert make_secret() != make_secret()


def test_two_servers_that_start_at_once_agree(tmp_path: Path) -> None:
    found: list[tuple[Secret, ...]] = []
    threads = [
        threading.Thread(target=lambda: found.append(read_or_make(tmp_path / "s")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_several_lines_are_several_secrets(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("n" * 32 + "\n" + "o" * 32 + "\n\n")
    path.chmod(0o600)
    assert read_or_make(path) == (Secret("n" * 32), Secret("o" * 32))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o620])
def test_one_that_others_may_see_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "s"
    read_or_make(path)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_or_make(path)


@pytest.mark.parametrize("content", ["", "\n", "short\n", "s" * 31, "a" * 32 + "\n" + "a" * 32])
def test_one_that_is_no_good_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "s"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match=str(path)) as fault:
        read_or_make(path)
    assert not content.strip() or content.strip() not in str(fault.value)
    assert path.read_text() == content


def test_one_that_cannot_be_read_says_what_else_to_do(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    with pytest.raises(ConfigurationError, match=r"auth\.signing_secrets"):
        read_or_make(tmp_path / "s")


def test_there_is_a_most_of_secrets() -> None:
    many = tuple(Secret(f"{number:0>32}") for number in range(MAX_SECRETS + 1))
    assert check_secrets(many[1:], "here") == many[1:]
    with pytest.raises(ConfigurationError, match=f"here has 17 secrets: at most {MAX_SECRETS}"):
        check_secrets(many, "here")
