"""`pushlane queue` and `pushlane explain`: what they ask of the server, and what they print."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

import pytest

from pushlane.wire.errors import BadRequest, Conflict, Forbidden, NotFound
from tests.sdk.commands.shell import Shell

ROW = {"name": "orders", "version": 2, "config": {"lease_ms": 30000, "dead_letter": None}}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes stdin a terminal at which somebody types."""

    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    return lambda text: monkeypatch.setattr(sys, "stdin", Terminal(text))


def test_create(shell: Shell) -> None:
    shell.client.queues.answers["create"] = ROW
    out = shell("queue", "create", "orders", "max_attempts=3", "dead_letter=", "overflow=reject")
    assert shell.client.queues.calls == [
        ("create", "orders", {"max_attempts": 3, "dead_letter": "", "overflow": "reject"})
    ]
    assert out == "name             orders\nversion          2\nconfig.lease_ms  30000\n"


def test_values_are_json_or_else_strings(shell: Shell) -> None:
    texts = ["a=1", "b=true", "c=null", 'd="1"', "e=x y", "f=a=b", "g=-1"]
    shell("queue", "create", "orders", *texts)
    (call,) = shell.client.queues.calls
    assert call[2] == {"a": 1, "b": True, "c": None, "d": "1", "e": "x y", "f": "a=b", "g": -1}


@pytest.mark.parametrize("text", ["lease_ms", "=1", "a b=1", "a-b=1", ""])
def test_what_is_no_setting(shell: Shell, text: str) -> None:
    shell("queue", "create", "orders", text, status=2)
    assert "is not KEY=VALUE" in shell.err
    assert shell.client.queues.calls == []


def test_show(shell: Shell) -> None:
    shell.client.queues.answers["get"] = ROW
    assert shell.json("queue", "show", "orders") == ROW
    assert "orders" in shell("queue", "show", "orders")


def test_update(shell: Shell) -> None:
    shell.client.queues.answers["update"] = ROW
    assert shell.json("queue", "update", "orders", "lease_ms=5000") == ROW
    assert shell.client.queues.calls == [("update", "orders", {"lease_ms": 5000})]
    shell("queue", "update", "orders", status=2)
    assert "what should change?" in shell.err


def test_list_follows_the_pages(shell: Shell) -> None:
    pages = [{"queues": [{"name": "a", "version": 1}], "next": "a"},
             {"queues": [{"name": "b", "version": 3}]}]  # fmt: skip
    shell.client.queues.answers["list"] = list(pages)
    assert shell("queue", "list") == "NAME  VERSION\na     1\nb     3\n"
    assert shell.client.queues.calls == [
        ("list", {"limit": 500, "after": None}),
        ("list", {"limit": 500, "after": "a"}),
    ]
    shell.client.queues.answers["list"] = list(pages)
    assert [row["name"] for row in shell.json("queue", "list")] == ["a", "b"]


def test_an_empty_list(shell: Shell) -> None:
    assert shell("queue", "list") == ""
    assert "no queues" in shell.err
    assert shell.json("queue", "list") == []


@pytest.mark.parametrize(("command", "done"), [("pause", "paused"), ("resume", "resumed")])
def test_pause_and_resume(shell: Shell, command: str, done: str) -> None:
    shell.client.queues.answers[command] = ROW
    assert shell("queue", command, "orders") == f"{done} orders\n"
    assert shell.json("queue", command, "orders") == ROW
    assert shell.client.queues.calls == [(command, "orders")] * 2


def test_peek(shell: Shell) -> None:
    message = {"id": "x", "body": {"a": [1]}, "attempt": 1, "published_at": 1_763_251_200_000}
    shell.client.queues.answers["peek"] = {"messages": [message]}
    head, row = shell("queue", "peek", "orders", "--max", "3").splitlines()
    assert head.split() == ["ID", "PUBLISHED_AT", "ATTEMPT", "KEY", "BODY"]
    assert row.split() == ["x", "2025-11-16", "00:00:00.000Z", "1", "-", '{"a":[1]}']
    assert shell.client.queues.calls == [("peek", "orders", {"limit": 3, "after": None})]
    assert shell.json("queue", "peek", "orders") == [message]
    shell.client.queues.answers["peek"] = {"messages": []}
    assert shell("queue", "peek", "orders") == ""
    assert "no message" in shell.err


def test_control_characters_do_not_reach_the_terminal(shell: Shell) -> None:
    message = {"id": "x", "body": "\x1b[31mred", "key": "a\nb"}
    shell.client.queues.answers["peek"] = {"messages": [message]}
    out = shell("queue", "peek", "orders")
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


def test_stats(shell: Shell) -> None:
    shell.client.queues.answers["stats"] = {"ready": 3, "oldest_at": None, "leased": 0}
    assert shell("queue", "stats", "orders") == "ready   3\nleased  0\n"


@pytest.mark.parametrize("command", [["queue", "explain"], ["explain"]])
def test_explain(shell: Shell, command: list[str]) -> None:
    answer = {"state": "ready", "why": "no consumer", "since": 1_763_251_200_500, "attempts": 0}
    shell.client.queues.answers["explain"] = answer
    assert shell(*command, "orders", "the-id").splitlines() == [
        "state     ready",
        "why       no consumer",
        "since     2025-11-16 00:00:00.500Z",
        "attempts  0",
    ]
    assert shell.json(*command, "orders", "the-id") == answer
    assert shell.client.queues.calls == [("explain", "orders", "the-id")] * 2


# What can't be undone


@pytest.mark.parametrize("command", [["queue", "delete"], ["queue", "purge"], ["dead", "purge"]])
class TestConfirming:
    def changed(self, shell: Shell) -> list[str]:
        return [call[0] for call in shell.client.queues.calls if call[0] != "get"]

    def test_yes_and_the_name_are_enough(self, shell: Shell, command: list[str]) -> None:
        shell(*command, "orders", "--yes")
        shell(*command, "orders", "--confirm", "orders")
        assert self.changed(shell) == [command[1]] * 2

    def test_another_name_is_not(self, shell: Shell, command: list[str]) -> None:
        shell(*command, "orders", "--confirm", "order", status=2)
        shell(*command, "orders", "--confirm", "order", "--yes", status=2)
        assert "nothing was done" in shell.err
        assert shell.client.queues.calls == []

    def test_without_a_terminal_it_says_how(self, shell: Shell, command: list[str]) -> None:
        shell(*command, "orders", status=2)
        assert "--confirm orders" in shell.err
        assert shell.client.queues.calls == []

    def test_at_a_terminal_it_asks(self, shell: Shell, command: list[str], terminal: Any) -> None:
        for wrong in ("\n", "y\n", "yes\n", "ORDERS\n", ""):
            terminal(wrong)
            shell(*command, "orders", status=2)
            assert "Type the name" in shell.err
        assert shell.client.queues.calls == []
        terminal("orders\n")
        shell(*command, "orders")
        assert self.changed(shell) == [command[1]]


def test_delete_says_what_it_did(shell: Shell) -> None:
    assert shell("queue", "delete", "orders", "--yes") == "deleted orders\n"
    assert shell.json("queue", "delete", "orders", "--yes") == {"name": "orders", "deleted": True}


@pytest.mark.parametrize(
    ("error", "code"), [(NotFound("no queue"), 5), (Forbidden("no right"), 4), (Conflict("x"), 1)]
)
def test_errors_of_the_server(shell: Shell, error: Exception, code: int) -> None:
    shell.client.queues.answers["get"] = error
    assert shell("queue", "show", "orders", status=code) == ""
    assert str(error) in shell.err


@pytest.mark.parametrize("command", ["create", "update"])
def test_who_mistypes_a_key_is_told_where_they_stand(shell: Shell, command: str) -> None:
    shell.client.queues.answers[command] = BadRequest("Object contains unknown field `lease`")
    shell("queue", command, "orders", "lease=1", status=2)
    assert "unknown field `lease`; `pushlane queue show NAME` lists the keys" in shell.err
    shell.client.queues.answers[command] = BadRequest("lease_ms is 0: at least 1")
    shell("queue", command, "orders", "lease_ms=0", status=2)
    assert "queue show" not in shell.err
