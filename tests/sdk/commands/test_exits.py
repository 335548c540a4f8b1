"""What a command says when it fails: what happened, and the next step, in one line."""

from __future__ import annotations

import pytest

from pushlane.commands.exits import exit_code, explain_error
from pushlane.wire.errors import CODES, ConnectionLost, PushlaneError, error_for

ALL = [error_for(code, "it broke") for code in CODES] + [ConnectionLost("it broke")]


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.code)
def test_a_line_with_the_next_step(error: PushlaneError) -> None:
    text = explain_error(error)
    assert text.startswith(f"{error.code}: it broke")
    assert "\n" not in text
    assert text.count(": it broke. ") == (error.code != "bad_request"), "there the message says it"
    assert exit_code(error) in range(1, 6)


@pytest.mark.parametrize(
    ("code", "command"),
    [
        ("unauthorized", "pushlane token create"),
        ("forbidden", "pushlane token create"),
        ("not_found", "pushlane queue list"),
    ],
)
def test_it_names_the_command_that_helps(code: str, command: str) -> None:
    assert command in explain_error(error_for(code, "there is no queue x"))


def test_a_message_that_is_not_there_is_no_queue_that_is_not_there() -> None:
    text = explain_error(error_for("not_found", "no message has this id"))
    assert "publish" in text
    assert "queue list" not in text


def test_without_a_server_it_names_how_to_start_one() -> None:
    text = explain_error(ConnectionLost("nobody answers"))
    assert "pushlane serve" in text
    assert "PUSHLANE_URL" in text
