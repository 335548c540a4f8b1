"""Listing: only what the caller may see is read, in order, in full pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane_gateway.auth.rule import Rule, allow
from pushlane_gateway.http.listing import Stretch, list_visible, stretches
from pushlane_storage.queue import QueueConfig, QueueRow

names = st.text("ab-.z", min_size=1, max_size=3).filter(lambda name: name[0] != ".")
patterns = st.one_of(st.just("*"), names, names.map(lambda name: name + "*"))


def row(name: str) -> QueueRow:
    return QueueRow("t", name, name, QueueConfig(), 1)


@given(st.sets(names), st.lists(patterns, min_size=1, max_size=5), st.integers(1, 4))
async def test_every_visible_queue_is_listed_once_and_nothing_else(
    there: set[str], wanted: list[str], limit: int
) -> None:
    async def rows_after(after: str, most: int) -> list[QueueRow]:
        return [row(name) for name in sorted(there) if name > after][:most]

    rules = [Rule("publish", pattern) for pattern in wanted]
    visible = sorted(name for name in there if allow(rules, "publish", name))
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page, after = await list_visible(rows_after, wanted, after, limit)
        assert len(page) == limit or after is None
        assert after is None or after == page[-1].name
        seen += [found.name for found in page]
    assert seen == visible


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["b", "a*", "ab", "ab*", "a"], [Stretch("a", True), Stretch("b", False)]),
        (["*", "a"], [Stretch("", True)]),
        ([], []),
    ],
)
def test_no_stretch_lies_within_another(wanted: list[str], found: list[Stretch]) -> None:
    assert stretches(wanted) == found
