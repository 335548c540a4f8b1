"""Tables, objects, and a progress bar that only people see."""

from __future__ import annotations

import sys

import pytest

from pushlane.commands.output import MANY, age, print_object, print_table, progress


def test_objects(capsys: pytest.CaptureFixture[str]) -> None:
    print_object({"a": 1, "long_name": "x", "none": None, "in": {"ner": [1]}, "empty": ""})
    assert capsys.readouterr().out == (
        'a          1\nlong_name  x\nin.ner     [1]\nempty      ""\n'
    )
    print_object({})
    assert capsys.readouterr().out == ""


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "b"], [{"a": "xyz", "b": True, "c": 1}, {"b": 1.5}])
    assert capsys.readouterr().out == "A    B\nxyz  true\n-    1.5\n"


@pytest.mark.parametrize(
    ("out", "err", "total", "shown"),
    [
        (False, True, MANY, True),
        (False, True, None, True),
        (False, True, MANY - 1, False),
        (True, True, MANY, False),
        (False, False, MANY, False),
    ],
)
def test_a_bar_only_for_many_and_only_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    out: bool,
    err: bool,
    total: int | None,
    shown: bool,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: out)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: err)
    monkeypatch.setenv("TERM", "xterm")
    with progress("publishing", total) as advance:
        advance(7)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("publishing" in captured.err) is shown
    assert ("7/" in captured.err) is shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"), (0.9, "0s"), (7, "7s"), (60, "1m 0s"), (725, "12m 5s"), (3_599, "59m 59s"),
        (7_260, "2h 1m"), (266_400, "3d 2h"), (40_000_000, "462d 23h"),
    ],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds * 1000) == text
