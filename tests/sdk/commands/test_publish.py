"""`pushlane publish`: what is sent, what is printed, what is said of failures."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from pushlane.core.publication import Published
from pushlane.wire.errors import (
    BadRequest,
    ConnectionLost,
    Forbidden,
    QueueFull,
    TooLarge,
    Unauthorized,
)
from tests.sdk.commands.shell import Shell


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Makes some bytes the command's stdin."""
    from pushlane.commands import bodies

    def give(content: bytes) -> None:
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        monkeypatch.setattr(bodies.read_batches, "__defaults__", (reader,))

    return give


def test_ids_are_printed(shell: Shell) -> None:
    assert shell("publish", "orders", "a", "b") == "id-0\nid-1\n"
    assert [queue for queue, _ in shell.client.published] == ["orders", "orders"]
    assert shell.err == ""


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ('{"id":  1}', b'{"id":  1}'),
        ("[1, 2]", b"[1, 2]"),
        ("17", b"17"),
        ("-5", b"-5"),
        ("1.50", b"1.50"),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
        ("true", b"true"),
        ("null", b"null"),
        ('"a"', b'"a"'),
        (" 1 ", b"1"),
        ("hello", b'"hello"'),
        ("hello world", b'"hello world"'),
        ("{id: 1}", b'"{id: 1}"'),
        ("NaN", b'"NaN"'),
        ("01", b'"01"'),
        ("1 2", b'"1 2"'),
        ("True", b'"True"'),
        ('"\\ud800"', b'"\\"\\\\ud800\\""'),
        ("", b'""'),
        ("grün", '"grün"'.encode()),
    ],
)
def test_json_goes_as_json_all_else_as_a_string(shell: Shell, text: str, body: bytes) -> None:
    shell("publish", "orders", text)
    assert shell.client.bodies == [body]


def test_text_is_text(shell: Shell) -> None:
    shell("publish", "orders", "--text", "17", "null")
    assert shell.client.bodies == [b'"17"', b'"null"']


def test_flags_may_come_last_and_bodies_after_two_hyphens(shell: Shell) -> None:
    shell("publish", "orders", "a", "--json")
    shell("publish", "orders", "--", "--json", "-x")
    assert shell.client.bodies == [b'"a"', b'"--json"', b'"-x"']


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--delay", "5s"], "Unknown option: --delay. Did you mean --delay-ms?"),
        (["--delay=5s"], "Unknown option: --delay=5s"),
        (["a", "--prio", "3"], "Unknown option: --prio"),
        (["a", "-x"], "Unknown option: -x"),
        (["--key", "-", "a"], "- stands for stdin"),
        (["a", "--priority", "high"], "high"),
    ],
)
def test_a_mistyped_option_is_an_error_and_no_message(
    shell: Shell, args: list[str], said: str
) -> None:
    shell("publish", "orders", *args, status=2)
    assert said in shell.err
    assert shell.client.published == []


def test_behind_two_hyphens_all_is_a_message(shell: Shell) -> None:
    shell("publish", "orders", "--key", "k", "a", "--", "--delay", "5s", "-", "--", "--help")
    texts = [b'"a"', b'"--delay"', b'"5s"', b'"-"', b'"--"', b'"--help"']
    assert shell.client.bodies == texts
    assert {item.key for _, item in shell.client.published} == {"k"}


def test_help(shell: Shell) -> None:
    for args in (["publish", "--help"], ["publish", "orders", "-h"]):
        said = shell(*args)
        assert "Usage: pushlane publish [OPTIONS] QUEUE" in said
        assert "--delay-ms" in said
        assert "--url" in said
    assert "Publish messages" in shell("--help")


def test_options(shell: Shell) -> None:
    shell(
        *["publish", "orders", "a", "--key", "k", "--dedup", "d", "--priority", "9"],
        *["--delay-ms", "5", "--ttl-ms", "6", "--header", "a=1", "--header", "b=x=y"],
    )
    ((_, item),) = shell.client.published
    assert (item.key, item.dedup, item.priority, item.delay_ms, item.ttl_ms) == ("k", "d", 9, 5, 6)
    assert item.headers == {"a": "1", "b": "x=y"}


def test_a_message_a_line_from_stdin(shell: Shell, stdin: Callable[[bytes], None]) -> None:
    stdin(b'first\n\n  \n{"n": 2}\r\nlast')
    assert shell("publish", "orders", "-") == "id-0\nid-1\nid-2\n"
    assert shell.client.bodies == [b'"first"', b'{"n": 2}', b'"last"']


def test_stdin_stands_where_its_sign_does(shell: Shell, stdin: Callable[[bytes], None]) -> None:
    stdin(b"2\n3\n")
    shell("publish", "orders", "1", "-", "4")
    assert shell.client.bodies == [b"1", b"2", b"3", b"4"]


def test_many_lines_go_in_batches(shell: Shell, stdin: Callable[[bytes], None]) -> None:
    stdin(b"".join(b"%d\n" % number for number in range(5_000)))
    assert len(shell("publish", "orders", "-").splitlines()) == 5_000
    assert shell.client.bodies == [b"%d" % number for number in range(5_000)]
    assert max(shell.client.batches) <= 1_000
    assert len(shell.client.batches) < 500, "not one by one"


def test_lines_that_are_not_utf8_are_refused_and_the_others_sent(
    shell: Shell, stdin: Callable[[bytes], None]
) -> None:
    stdin(b"a\n\xff\nb\n")
    shell("publish", "orders", "-", status=2)
    assert shell.client.bodies == [b'"a"', b'"b"']
    assert "not UTF-8" in shell.err
    assert "1 of 3 failed" in shell.err


def test_json_is_an_object_a_line(shell: Shell) -> None:
    shell.client.outcomes = {
        1: Published("id-first", duplicate=True),
        2: Published(None, error=QueueFull("orders is full")),
    }
    assert shell.lines("publish", "orders", "a", "b", "c", status=1) == [
        {"id": "id-0", "duplicate": False},
        {"id": "id-first", "duplicate": True},
        {"error": {"code": "queue_full", "message": "orders is full"}},
    ]
    assert "queue_full: orders is full. Repeat with backoff" in shell.err
    assert "1 of 3 failed" in shell.err


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([TooLarge("x")], 2),
        ([Forbidden("x")], 4),
        ([QueueFull("x")], 1),
        ([Forbidden("x"), Forbidden("x")], 4),
        ([Forbidden("x"), TooLarge("x")], 1),
    ],
)
def test_the_exit_code_is_that_of_the_errors(shell: Shell, errors: list[Any], code: int) -> None:
    shell.client.outcomes = {
        number: Published(None, error=error) for number, error in enumerate(errors)
    }
    shell("publish", "orders", *["a"] * len(errors), status=code)


def test_only_the_first_failures_are_told(shell: Shell) -> None:
    error = QueueFull("orders is full")
    shell.client.outcomes = {number: Published(None, error=error) for number in range(30)}
    shell("publish", "orders", *["a"] * 30, status=1)
    assert shell.err.count("orders is full") == 10
    assert "30 of 30 failed" in shell.err


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (["publish", "orders"], "one message per line from stdin"),
        (["publish", "orders", "a", "b", "--dedup", "d"], "one BODY"),
        (["publish", "orders", "-", "--dedup", "d"], "one BODY"),
        (["publish", "orders", "a", "--header", "x"], "NAME=VALUE"),
        (["publish", "orders", "a", "--header", "=x"], "NAME=VALUE"),
        (["publish", "orders", "[" * 5_000 + "]" * 5_000], "nested deeper than 500"),
        (["publish", "orders", "a", "--token-file", "/no/such/file"], "can't be read"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_sent(shell: Shell, args: list[str], hint: str) -> None:
    assert shell(*args, status=2) == ""
    assert hint in shell.err
    assert shell.err.startswith("pushlane: ")
    assert shell.client.published == []


@pytest.mark.parametrize(
    ("error", "code", "hint"),
    [
        (ConnectionLost("no connection to ws://x"), 3, "PUSHLANE_URL"),
        (Unauthorized("no such key"), 4, "pushlane token create"),
        (BadRequest("bad URL"), 2, "bad URL"),
    ],
)
def test_no_connection(shell: Shell, error: Any, code: int, hint: str) -> None:
    shell.client.refuses = error
    assert shell("publish", "orders", "a", status=code) == ""
    assert hint in shell.err
    assert str(error) in shell.err


def test_which_server_and_as_whom(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "token").write_text("from-file\n")
    shell("publish", "orders", "a", "--url", "wss://x", "--token-file", str(tmp_path / "token"))
    monkeypatch.setenv("PUSHLANE_TOKEN", "from-variable")
    shell("publish", "orders", "a")
    first, second = shell.client.servers
    assert (first.url, first.token()) == ("wss://x", "from-file")
    assert (second.url, second.token()) == (None, "from-variable")
    assert "from-file" not in repr(first)
