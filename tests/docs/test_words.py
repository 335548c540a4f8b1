"""Plain English: the phrases of words.py are in no page, no error, no help and no demo."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import PAGES, name_of
from tests.docs.words import found
from tests.repo import ROOT

RECORDS = {"CHANGELOG.md"}
"""What was written then stays as it was."""

SOURCES = sorted(
    path
    for folder in ("sdk_py/src", "gateway", "dispatcher", "storage", "leases", "spark")
    for path in (ROOT / folder).rglob("*.py")
)
SCRIPTS = sorted(
    path
    for folder in ("sdk_js/src", "sdk_js/demo")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".ts", ".html") and "dist" not in path.parts
)
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
TEXT = re.compile(r"\"[^\"\n]+\"|`[^`]+`|>[^<>]+<")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page(page: Path) -> None:
    if name_of(page) not in RECORDS:
        assert found(page.read_text()) == []


def test_texts_of_the_code() -> None:
    """Errors, logs, help: every text that is not a docstring; of commands these, too."""
    bad = {name_of(path): found("\n".join(texts_of(path))) for path in SOURCES}
    assert {name: phrases for name, phrases in bad.items() if phrases} == {}


def test_texts_in_javascript() -> None:
    bad = {name_of(path): found(script_of(path)) for path in SCRIPTS}
    assert {name: phrases for name, phrases in bad.items() if phrases} == {}


def script_of(path: Path) -> str:
    """The texts of a script or page, without the quotes around them."""
    return "\n".join(text[1:-1] for text in TEXT.findall(COMMENT.sub("", path.read_text())))


def texts_of(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    is_help = path.parent.name == "commands" or path.stem.endswith("_command")
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and not is_help
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("Mend what was wrong.", ["'Mend': say 'fix'"]),
        ("send so\nmany a second", ["'so many': say 'this many, at most N'"]),
        ("recommend, amended, mendacious, `mend`", []),
    ],
)
def test_a_phrase_is_found(text: str, phrases: list[str]) -> None:
    assert found(text) == phrases
