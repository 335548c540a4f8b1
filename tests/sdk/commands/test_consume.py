"""`pushlane consume`: what is printed, what is run, and how each message is settled."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pushlane.wire.errors import Forbidden, LeaseLost, NotFound
from pushlane.wire.frames import DeadInfo
from tests.sdk.commands.shell import FakeMessage, Shell


def give(shell: Shell, *raws: bytes, **fields: Any) -> list[FakeMessage]:
    shell.client.messages = [
        FakeMessage(f"id-{number}", raw, **fields) for number, raw in enumerate(raws)
    ]
    return shell.client.messages


def test_bodies_are_printed_and_acked(shell: Shell) -> None:
    messages = give(shell, b'"hello"', b'{"a":  1}', b"17", b"null", '"ü"'.encode())
    assert shell("consume", "orders", "--max", "5") == 'hello\n{"a":  1}\n17\nnull\nü\n'
    assert [message.settled for message in messages] == ["ack"] * 5


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"config": {"paused": True}}, "orders is paused: nothing comes until"),
        (NotFound("no queue orders"), "there was no queue orders: it is made now"),
        (Forbidden("no right to look"), ""),
        ({"config": {"paused": False}}, ""),
    ],
)
def test_what_keeps_messages_back_is_said(shell: Shell, row: object, said: str) -> None:
    shell.client.queues.answers["get"] = row
    give(shell, b"1")
    assert shell("consume", "orders", "--max", "1") == "1\n"
    assert said in shell.err
    assert bool(shell.err) == bool(said)


def test_bytes_are_printed_as_they_are(shell: Shell) -> None:
    shell.client.messages = [FakeMessage("a", data=b"plain")]
    assert shell("consume", "orders", "--max", "1") == "plain\n"


def test_whole_messages_as_json_a_line_each(shell: Shell) -> None:
    dead = DeadInfo(cause="max_attempts", queue="o", id="x", attempts=5, dead_at=9, error="e")
    give(shell, b'{"a":\n 1, "b": "x\\ny"}', key="k", headers={"h": "v"}, dead=dead)
    (message,) = shell.lines("consume", "orders", "--max", "1")
    assert message == {
        "id": "id-0",
        "body": {"a": 1, "b": "x\ny"},
        "key": "k",
        "headers": {"h": "v"},
        "attempt": 1,
        "fence": 7,
        "published_at": 1_763_251_200_000,
        "dead": {
            "cause": "max_attempts",
            "queue": "o",
            "id": "x",
            "attempts": 5,
            "dead_at": 9,
            "error": "e",
        },
    }
    shell.client.messages = [FakeMessage("a", data=b"\x00\xff")]
    (message,) = shell.lines("consume", "orders", "--max", "1")
    assert message["data"] == "AP8="
    assert "body" not in message


def test_it_takes_no_more_than_asked_for(shell: Shell) -> None:
    messages = give(shell, b"1", b"2", b"3")
    assert shell("consume", "orders", "--max", "2", "--lease-ms", "5000") == "1\n2\n"
    assert [message.settled for message in messages] == ["ack", "ack", None]
    assert shell.client.subscribed == [("orders", 2, 5000)]
    give(shell, b"1")
    shell("consume", "orders", "--idle", "0.05")
    assert shell.client.subscribed[1] == ("orders", 64, None)


def test_it_ends_when_nothing_comes(shell: Shell) -> None:
    give(shell, b"1")
    started = time.monotonic()
    assert shell("consume", "orders", "--idle", "0.2") == "1\n"
    assert 0.2 <= time.monotonic() - started < 60


# --exec


def test_a_program_gets_the_body_and_what_is_known(shell: Shell, tmp_path: Path) -> None:
    (message,) = give(shell, b'{"a": 1}', key="k", headers={"h": "v"}, attempt=3)
    out = shell("consume", "orders", "--max", "1", "--exec", "cat; echo; env | grep ^MESSAGE_")
    body, *variables = out.splitlines()
    assert body == '{"a": 1}'
    found = dict(line.split("=", 1) for line in variables)
    assert found == {
        "MESSAGE_ID": "id-0",
        "MESSAGE_QUEUE": "orders",
        "MESSAGE_KEY": "k",
        "MESSAGE_ATTEMPT": "3",
        "MESSAGE_FENCE": "7",
        "MESSAGE_HEADERS": '{"h":"v"}',
    }
    assert message.settled == "ack"


def test_with_json_it_gets_the_whole_message(shell: Shell) -> None:
    give(shell, b"1")
    out = shell("consume", "orders", "--max", "1", "--json", "--exec", "cat")
    assert json.loads(out)["id"] == "id-0"


def test_one_that_fails_nacks_and_the_others_go_on(shell: Shell) -> None:
    messages = give(shell, b"1", b"2", b"3")
    command = 'read n; test "$n" != 2 || exit 3'
    shell("consume", "orders", "--max", "3", "--exec", command, status=1)
    assert [message.settled for message in messages] == ["ack", f"nack: `{command}` ended with 3",
                                                         "ack"]  # fmt: skip
    assert "id-1: " in shell.err
    assert "failed on 1 messages" in shell.err


def test_one_that_reads_nothing_of_a_large_body_is_fine(shell: Shell) -> None:
    (message,) = give(shell, b'"' + b"x" * 1_000_000 + b'"')
    shell("consume", "orders", "--max", "1", "--exec", "true")
    assert message.settled == "ack"


def test_one_that_is_killed_counts_as_failed(shell: Shell) -> None:
    (message,) = give(shell, b"1")
    shell("consume", "orders", "--max", "1", "--exec", "kill -9 $$", status=1)
    assert message.settled == "nack: `kill -9 $$` ended with -9"


def test_a_lost_lease_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    give(shell, b"1", b"2")

    async def lose(message: FakeMessage, *_: object) -> None:
        raise LeaseLost("too late")

    monkeypatch.setattr(FakeMessage, "__aexit__", lose)
    shell("consume", "orders", "--max", "2", status=1)
    assert shell.err.count("its lease was lost") == 2


@pytest.mark.parametrize("args", [["--max", "0"], ["--max", "-1"], ["--idle=-1"], ["--idle=nan"]])
def test_numbers_that_make_no_sense(shell: Shell, args: list[str]) -> None:
    shell("consume", "orders", *args, status=2)
    assert "at least" in shell.err
    assert shell.client.subscribed == []


def test_no_such_queue(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.client.refuses = NotFound("no queue orders")
    shell("consume", "orders", status=5)
    assert "no queue orders" in shell.err
