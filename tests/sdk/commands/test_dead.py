"""`pushlane dead`: which queue is meant, and what is done with it."""

from __future__ import annotations

import pytest

from pushlane.wire.errors import NotFound
from tests.sdk.commands.shell import Shell

LETTER = {
    "id": "x",
    "body": 1,
    "attempt": 1,
    "published_at": 0,
    "dead": {
        "cause": "max_attempts",
        "queue": "orders",
        "id": "y",
        "attempts": 7,
        "dead_at": 9,
        "error": "timeout",
    },
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
    assert shell.client.queues.calls == [
        ("get", "orders"),
        ("peek", queue, {"limit": 5, "after": None}),
    ]


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
    assert head.split() == ["ID", "WAS_ID", "ATTEMPTS", "CAUSE", "ERROR", "DEAD_AT", "BODY"]
    assert row.split()[:5] == ["x", "y", "7", "max_attempts", "timeout"]


def test_a_mistyped_cause_is_refused_with_those_there_are(shell: Shell) -> None:
    shell("dead", "redrive", "orders", "--cause", "rejcted", status=2)
    assert "rejcted" in shell.err
    for cause in ("max_attempts", "max_deliveries", "expired", "rejected", "overflow", "damaged"):
        assert cause in shell.err
    assert shell.client.queues.calls == []


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


def test_a_long_list_comes_in_pages(shell: Shell) -> None:
    pages = [{"messages": [LETTER] * 500, "next": "a"}, {"messages": [LETTER] * 2, "next": "b"}]
    shell.client.queues.answers["peek"] = pages
    assert len(shell.json("dead", "list", "orders", "--max", "502")) == 502
    assert [call[2] for call in shell.client.queues.calls if call[0] == "peek"] == [
        {"limit": 500, "after": None},
        {"limit": 2, "after": "a"},
    ]


def test_a_redrive_of_some(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 10_000_000 * 1_000_000)
    shell("dead", "redrive", "orders", "--cause", "expired", "--key", "k", "--rate", "50",
          "--older-than", "1h", "--newer-than", "2h")  # fmt: skip
    assert shell.client.queues.calls[-1] == (
        "redrive",
        "orders.dead",
        {
            "cause": "expired",
            "key": "k",
            "until_at": 10_000_000 - 3_600_000,
            "from_at": 10_000_000 - 7_200_000,
            "rate": 50,
        },
    )


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--older-than", "soon"), "not a duration"),
        (("--rate", "0"), ""),
        (("--max", "0"), ""),
    ],
)
def test_what_makes_no_sense(shell: Shell, flags: tuple[str, str], text: str) -> None:
    shell("dead", "redrive", "orders", *flags, status=2)
    assert text in shell.err
    assert not [call for call in shell.client.queues.calls if call[0] == "redrive"]


def test_purge(shell: Shell) -> None:
    assert shell("dead", "purge", "orders", "--yes") == "purged all dead letters of orders\n"
    assert shell.client.queues.calls[-1] == ("purge", "orders.dead")
    shell.client.queues.answers["purge"] = {"purged": 3}
    assert shell.json("dead", "purge", "orders", "--yes") == {"purged": 3}
