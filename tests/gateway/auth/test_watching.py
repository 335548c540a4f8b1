"""A running server follows its file of keys, and keeps what it has when the file is broken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from pushlane.wire.errors import Unauthorized
from pushlane_gateway.auth.authenticator import Authenticator
from pushlane_gateway.auth.key_file import remove_key
from tests.gateway.auth.tools import make_authenticator, make_token

RELOAD = 2.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


async def look(clock: MockClock, authenticator: Authenticator) -> None:
    """Let the time for one look pass, and the look end."""
    before = authenticator.generation, authenticator.failures
    await trio.testing.wait_all_tasks_blocked()
    clock.jump(RELOAD)
    for _ in range(100):
        await trio.testing.wait_all_tasks_blocked(0.001)
        if (authenticator.generation, authenticator.failures) != before:
            return


async def test_keys_come_and_go(
    path: Path, mock_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _, old = make_token(path)
    authenticator = make_authenticator(path)
    who = authenticator.authenticate(old)
    told: list[int] = []
    undo = authenticator.subscribe(lambda: told.append(authenticator.generation))
    generation = authenticator.generation
    nursery.start_soon(authenticator.watch)

    key, new = make_token(path)
    with pytest.raises(Unauthorized):
        authenticator.authenticate(new)
    await look(mock_clock, authenticator)
    identity = authenticator.authenticate(new)
    assert authenticator.still_valid(who), "others are left alone"
    assert "keys read again: 2" in caplog.text

    remove_key(path, key.id)
    await look(mock_clock, authenticator)
    assert not authenticator.still_valid(identity)
    assert authenticator.still_valid(who)
    assert told == [generation + 1, generation + 2]

    undo()
    make_token(path)
    await look(mock_clock, authenticator)
    assert len(told) == 2
    assert authenticator.generation == generation + 3
    nursery.cancel_scope.cancel()


async def test_a_broken_file_changes_nothing_and_is_told_once(
    path: Path, mock_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    _, token = make_token(path)
    authenticator = make_authenticator(path)
    good = await trio.Path(path).read_bytes()
    nursery.start_soon(authenticator.watch)
    write(path, b"{")
    for _ in range(3):
        await look(mock_clock, authenticator)
    assert authenticator.authenticate(token).name == "test"
    assert authenticator.failures == 1
    assert caplog.text.count("the keys stay as they were") == 1

    await trio.Path(path).unlink()
    await look(mock_clock, authenticator)
    assert authenticator.failures == 2
    assert "is gone" in caplog.text
    assert authenticator.required
    assert authenticator.authenticate(token).name == "test"

    write(path, good)
    make_token(path)
    await look(mock_clock, authenticator)
    assert len(authenticator) == 2
    write(path, b"{")
    await look(mock_clock, authenticator)
    assert authenticator.failures == 3, "the same fault after a good file is told again"
    nursery.cancel_scope.cancel()


async def test_the_first_key_closes_an_open_server(
    path: Path, mock_clock: MockClock, nursery: trio.Nursery
) -> None:
    authenticator = make_authenticator(path)
    who = authenticator.authenticate(None)
    nursery.start_soon(authenticator.watch)
    make_token(path)
    await look(mock_clock, authenticator)
    assert authenticator.required
    assert not authenticator.still_valid(who)
    nursery.cancel_scope.cancel()


def test_a_file_touched_without_a_change_disturbs_nobody(path: Path) -> None:
    make_token(path)
    authenticator = make_authenticator(path)
    generation = authenticator.generation
    path.write_bytes(path.read_bytes())
    assert not authenticator.reload()
    assert authenticator.generation == generation


async def test_without_a_file_there_is_nothing_to_watch() -> None:
    authenticator = make_authenticator()
    await authenticator.watch()
    assert not authenticator.reload()
