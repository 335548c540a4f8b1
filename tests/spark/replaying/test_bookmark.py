"""Bookmarks: written whole, and only those that fit are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from pushlane_spark.errors import BookmarkUnfit
from pushlane_spark.replaying.bookmark import Bookmark, load, name_of, save

HERE = Bookmark("r", 1, "q", 0, 4, 7, 10)


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    assert load(path, "r") is None
    save(path, HERE)
    assert load(path, "r") == HERE
    assert [file.name for file in tmp_path.iterdir()] == ["mark"]
    with pytest.raises(BookmarkUnfit, match="another replay"):
        load(path, "s")


@pytest.mark.parametrize("text", ["", "{}", "nonsense"])
def test_what_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "mark").write_text(text)
    with pytest.raises(BookmarkUnfit, match="can't be read as a bookmark"):
        load(tmp_path / "mark", "r")


def test_where_none_can_be(tmp_path: Path) -> None:
    with pytest.raises(BookmarkUnfit, match="can't be read"):
        load(tmp_path, "r")
    with pytest.raises(BookmarkUnfit, match="can't be written"):
        save(tmp_path / "nowhere" / "mark", HERE)


def test_names() -> None:
    assert name_of("a", ["b"]) == name_of("a", ("b",))
    assert name_of("a", "b") != name_of("a", "c")
