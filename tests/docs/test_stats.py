"""docs/stats.md explains every field, and no other."""

import re

from pushlane_dispatcher.core.explain import Stats
from tests.repo import ROOT

PAGE = (ROOT / "docs" / "stats.md").read_text()
PARTS = ("ready", "reserved", "leased", "delayed", "retrying", "blocked", "leaving")


def test_fields() -> None:
    explained = PAGE.split("## What to look at")[0]
    assert re.findall(r"^\| `(\w+)` \|", explained, re.MULTILINE) == sorted(
        Stats.__struct_fields__, key=lambda name: explained.find(f"| `{name}` |")
    )


def test_the_sum_is_as_the_page_says() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert tuple(rows[1:8]) == PARTS
    assert "the sum of the next seven" in PAGE
