"""`pushlane queue` and `pushlane explain`: what they ask of the server, and what they print."""

from __future__ import annotations

import sys
import time
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


@pytest.mark.parametrize(("flag", "call"), [("--ensure", "ensure"), ("--replace", "replace")])
def test_what_becomes_of_one_that_is_there(shell: Shell, flag: str, call: str) -> None:
    shell.client.queues.answers[call] = ROW
    assert shell.json("queue", "create", "orders", "lease_ms=5000", flag) == ROW
    assert shell.client.queues.calls == [(call, "orders", {"lease_ms": 5000})]


def test_it_can_not_be_left_alone_and_replaced(shell: Shell) -> None:
    shell("queue", "create", "orders", "--ensure", "--replace", status=2)
    assert "can't be combined" in shell.err
    assert shell.client.queues.calls == []


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


def test_what_no_server_can_do_yet_is_not_shown(shell: Shell) -> None:
    shell.client.queues.answers["get"] = {**ROW, "encrypted": False, "durability": "all"}
    shown = shell("queue", "show", "orders")
    assert "encrypted" not in shown
    assert "durability" in shown
    assert shell.json("queue", "show", "orders")["encrypted"] is False


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
    assert [line.split()[0] for line in shell("queue", "list").splitlines()] == ["NAME", "a", "b"]
    assert shell.client.queues.calls == [
        ("list", {"limit": 500, "after": None, "stats": True}),
        ("list", {"limit": 500, "after": "a", "stats": True}),
    ]
    shell.client.queues.answers["list"] = list(pages)
    assert [row["name"] for row in shell.json("queue", "list")] == ["a", "b"]


def test_the_list_says_how_each_queue_is_doing(shell: Shell) -> None:
    now = time.time() * 1000
    busy = {"depth": 12, "in_flight": 3, "oldest_at": now - 93_784_500, "consumers": 2, "as_of": 1}
    idle = {"depth": 0, "in_flight": None, "oldest_at": None, "consumers": None, "as_of": 1}
    shell.client.queues.answers["list"] = {
        "queues": [
            {"name": "busy", "config": {"paused": False}, "stats": busy},
            {"name": "idle", "config": {"paused": True}, "stats": idle},
            {"name": "new", "config": {}, "stats": None},
        ]
    }
    assert shell("queue", "list").splitlines() == [
        "NAME  DEPTH  IN_FLIGHT  OLDEST  CONSUMERS  PAUSED",
        "busy  12     3          1d 2h   2          -",
        "idle  0      -          -       -          paused",
        "new   -      -          -       -          -",
    ]


def test_a_list_of_an_earlier_server(shell: Shell) -> None:
    answers = [BadRequest("unknown field `stats`"), {"queues": [{"name": "a"}]}]
    shell.client.queues.answers["list"] = answers
    assert shell("queue", "list").split()[-6:] == ["a", "-", "-", "-", "-", "-"]


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


@pytest.mark.parametrize("command", [["queue", "explain"], ["explain"]])
def test_explain_of_an_unknown_id_exits_with_5(shell: Shell, command: list[str]) -> None:
    answer = {"state": "unknown", "why": "no such message"}
    shell.client.queues.answers["explain"] = answer
    assert "unknown" in shell(*command, "orders", "no-id", status=5)
    assert "orders knows nothing of no-id" in shell.err
    assert shell.json(*command, "orders", "no-id", status=5) == answer


def test_explain_of_a_delay_says_until_when(shell: Shell) -> None:
    answer = {"state": "delayed", "until": 1_763_251_200_500}
    shell.client.queues.answers["explain"] = answer
    assert "until  2025-11-16 00:00:00.500Z" in shell("explain", "orders", "id")


@pytest.mark.parametrize(
    ("command", "what"), [("queue", "messages of orders"), ("dead", "dead letters of orders")]
)
def test_purge_says_how_many(shell: Shell, command: str, what: str) -> None:
    shell.client.queues.answers["purge"] = {"purged": 42}
    assert shell(command, "purge", "orders", "--yes") == f"purged 42 {what}\n"
    assert shell.json(command, "purge", "orders", "--yes") == {"purged": 42}
    shell.client.queues.answers["purge"] = {}
    assert shell(command, "purge", "orders", "--yes") == f"purged all {what}\n"


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
