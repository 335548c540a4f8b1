"""Reading commands and their output off a page."""

from __future__ import annotations

import pytest

from tests.docs.console import Example, is_shown, read_examples


def test_commands_with_and_without_output() -> None:
    text = "$ one\n$ two \\\n    more\na\nb\n$ three\nc\n^C\n"
    assert read_examples(text, 10) == [
        Example("one", "", 10),
        Example("two \\\n    more", "a\nb\n", 11),
        Example("three", "c\n", 15, is_interrupted=True),
    ]


def test_output_of_nothing_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="line 3"):
        read_examples("printed\n", 3)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("", "", True),
        ("", "x\n", False),
        ("a.c\n", "a.c\n", True),
        ("a.c\n", "abc\n", False),
        ("id …\n", "id 17\n", True),
        ("id …\n", "id \n", False),
        ("…\n", "17\n", True),
        ("…\n", "17\n18\n", False),
        ("…\n", "pushlane: unauthorized: no\n", False),
        ("…\n", "pushlane serve: no\n", False),
        ("pushlane: …\n", "pushlane: unauthorized: no\n", True),
        ("a\n⋮\nb\n", "a\nb\n", True),
        ("a\n⋮\nb\n", "a\n1\n\n2\nb\n", True),
        ("a\n⋮\n", "a\nTraceback (most recent call last):\n", False),
        ("a\n⋮\n", "b\n", False),
    ],
)
def test_what_is_shown(shown: str, printed: str, same: bool) -> None:
    assert is_shown(shown, printed) is same
