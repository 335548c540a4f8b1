"""A page of documentation, as the blocks of it that can be run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.repo import ROOT

PATTERNS = ("*.md", "docs/**/*.md", "gateway/*.md", "sdk_*/*.md")
PAGES = sorted(page for pattern in PATTERNS for page in ROOT.glob(pattern))

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """What stands between two fences."""

    language: str
    text: str
    line: int
    """Of its first line, from 1."""
    why_not: str | None
    """Why it can't be run, where the page says so: `<!-- not run: … -->` above it."""


def read_blocks(text: str) -> list[Block]:
    return [
        Block(
            found["language"],
            found["text"],
            text.count("\n", 0, found.start("text")) + 1,
            found["why"],
        )
        for found in _BLOCK.finditer(text)
    ]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
