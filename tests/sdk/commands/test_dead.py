"""`pushlane dead`: which queue is meant, and what is done with it."""

from __future__ import annotations

import pytest

from pushlane.wire.errors import NotFound
from tests.sdk.commands.shell import Shell

LETTER = {
    "id": "x",
    "body": 1,
    "attempt": 5,
    "published_at": 0,
    "dead": {"cause": "max_attempts", "queue": "orders", "id": "y", "error": "timeout"},
}


@pytest.mark.parametrize(
    ("row", "queue"),
    [
        ({"config": {"dead_letter": None}}, "orders.dead"),
        ({"config": {}}, "orders.dead"),
        ({"dead_letter": "graveyard"}, "graveyard"),
        ({"config": {"dead_letter": "graveyard"}}, "graveyard"),
    ],
)
def test_the_dead_letters_of_a_queue_are_found(
    shell: Shell, row: dict[str, object], queue: str
) -> None:
    shell.client.queues.answers = {"get": row, "peek": {"messages": [LETTER]}}
    assert shell.json("dead", "list", "orders", "--max", "5") == [LETTER]
    assert shell.client.queues.calls == [("get", "orders"), ("peek", queue, {"limit": 5})]


def test_a_queue_of_dead_letters_may_be_named_itself(shell: Shell) -> None:
    shell("dead", "redrive", "orders.dead")
    assert shell.client.queues.calls == [("redrive", "orders.dead")]


def test_a_queue_that_keeps_none(shell: Shell) -> None:
    shell.client.queues.answers["get"] = {"config": {"dead_letter": ""}}
    shell("dead", "list", "orders", status=2)
    assert "keeps no dead letters" in shell.err


def test_the_list_says_why_they_died(shell: Shell) -> None:
    shell.client.queues.answers["peek"] = {"messages": [LETTER]}
    head, row = shell("dead", "list", "orders").splitlines()
    assert head.split() == ["ID", "PUBLISHED_AT", "ATTEMPT", "CAUSE", "ERROR", "BODY"]
    assert row.split()[-3:] == ["max_attempts", "timeout", "1"]
    assert row.split()[0] == "x", "the id that it has here"


def test_none_yet(shell: Shell) -> None:
    shell.client.queues.answers["peek"] = NotFound("no queue orders.dead")
    assert shell("dead", "list", "orders") == ""
    assert "no dead letters" in shell.err
    assert shell.json("dead", "list", "orders") == []


def test_no_such_queue(shell: Shell) -> None:
    shell.client.queues.answers["get"] = NotFound("no queue orders")
    shell("dead", "list", "orders", status=5)


def test_redrive(shell: Shell) -> None:
    shell.client.queues.answers["redrive"] = {"redriven": 3}
    assert shell("dead", "redrive", "orders", "--max", "3", "--to", "b") == "redriven: 3\n"
    assert shell("dead", "redrive", "orders", "--dry-run") == "would redrive: 3\n"
    assert shell.json("dead", "redrive", "orders") == {"redriven": 3}
    calls = [call[1:] for call in shell.client.queues.calls if call[0] == "redrive"]
    assert calls == [
        ("orders.dead", {"max": 3, "to": "b"}),
        ("orders.dead", {"dry_run": True}),
        ("orders.dead",),
    ]


def test_purge(shell: Shell) -> None:
    assert shell("dead", "purge", "orders", "--yes") == "purged the dead letters of orders\n"
    assert shell.client.queues.calls[-1] == ("purge", "orders.dead")
    shell.client.queues.answers["purge"] = {"purged": 3}
    assert shell.json("dead", "purge", "orders", "--yes") == {"purged": 3}
