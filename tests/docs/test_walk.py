"""The walk through the files in docs/architecture.md: the files exist, and a message meets them."""

import re
from pathlib import PurePosixPath

import pytest

from bench.walk import place, walk
from tests.repo import ROOT

PAGE = ROOT / "docs" / "architecture.md"


def named() -> list[str]:
    """Paths from the root; a bare name stands in the folder of the one before it."""
    text = PAGE.read_text().partition("<!-- walk:begin -->")[2].partition("<!-- walk:end -->")[0]
    found: list[str] = []
    for name in re.findall(r"`([^`]+\.py)`", text):
        found.append(name if "/" in name else str(PurePosixPath(found[-1]).parent / name))
    return found


@pytest.mark.parametrize("path", sorted(set(named())))
def test_each_file_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_a_message_meets_them() -> None:
    """Save what only a queue of several shards, a repeat or the store's own threads meet."""
    elsewhere = {"route.py", "dedup.py", "committer.py"}
    met = {place(code) for calls in walk() for code in calls}
    assert {path for path in named() if PurePosixPath(path).name not in elsewhere} <= met


def test_the_walk_is_as_short_as_the_page_says() -> None:
    """A few more may slip in: timers of the server run beside it."""
    most = [int(number) for number in re.findall(r"(\d+) for a", PAGE.read_text())]
    for calls, number in zip(walk(), most, strict=True):
        assert len(set(calls)) <= number + 8
