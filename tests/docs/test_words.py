"""Plain English: phrases that we keep out of what users read, each with a better one beside it.

They are in no page, no error, no help and no demo, nor in what editors and other tools show of the
SDKs and the API: docstrings, comments, descriptions. They are old, or read like a riddle, or are
translated too literally. A phrase is a regular expression over whole words, without regard to
capitals; line breaks count as spaces.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page import PAGES, name_of
from tests.repo import ROOT

BETTER = {
    r"mend(s|ed|ing)?": "fix",
    r"whence": "where … from",
    r"whither": "where … to",
    r"hither|thither": "here, there",
    r"so many": "this many, at most N",
    r"so often may": "how often … may",
    r"goes with neither": "can't be combined with",
    r"is no url of": "not a server URL",
    r"is it well": "is it healthy",
    r"lost to sight": "(say what can be seen)",
    r"for whom": "read this if you …",
    r"without more ado": "without further work",
    r"none the worse": "not affected",
    r"for want of": "because there is no",
    r"anew": "again",
    r"a python of": "Python",
    r"astray": "lost",
    r"hindered": "blocked, held up",
    r"nigh|lest|albeit|thereof|therein|whereof|wherein|hitherto|henceforth": "(plain words)",
    r"one object a line": "one object per line",
    r"one line an event": "one line per event",
    r"no good": "invalid",
    r"don't go together": "can't be combined",
    r"is no (url|receipt|json|toml|port|host|name|time|store|duration|number|socket)": "is not a …",
    r"show me, in a minute": "take the 1-minute tour",
    r"the server counts the same": "server totals match",
}

RECORDS = {"CHANGELOG.md"}
"""What was written then stays as it was."""

SDK = ROOT / "sdk_py" / "src"
SDK_JS = ROOT / "sdk_js" / "src"
SOURCES = sorted(
    path
    for folder in (SDK, "gateway", "dispatcher", "storage", "leases", "history", "spark")
    for path in (ROOT / folder).rglob("*.py")
)
SCRIPTS = sorted(
    path
    for folder in (SDK_JS, "sdk_js/demo")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".ts", ".html") and "dist" not in path.parts
)
DOCUMENTS = [ROOT / "docs" / name for name in ("asyncapi.json", "openapi.json")]
SHOWN = re.compile(r"/\*\*.*?\*/", re.DOTALL)
"""A comment that editors show with the name behind it."""
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
TEXT = re.compile(r"\"[^\"\n]+\"|`[^`]+`|>[^<>]+<")


def found(text: str) -> list[str]:
    """What should be said better, and how, in the order of the list."""
    plain = re.sub(r"`[^`\n]*`", "``", text)  # names of things are what they are
    plain = re.sub(r"\s+", " ", plain)
    return [
        f"{match[0]!r}: say {better!r}"
        for phrase, better in BETTER.items()
        for match in re.finditer(rf"\b(?:{phrase})\b", plain, re.IGNORECASE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page(page: Path) -> None:
    if name_of(page) not in RECORDS:
        assert found(page.read_text()) == []


def test_texts_of_the_code() -> None:
    """Errors, logs, help: every text that is not a docstring; of commands and SDK these, too."""
    bad = {name_of(path): found("\n".join(texts_of(path))) for path in SOURCES}
    assert {name: phrases for name, phrases in bad.items() if phrases} == {}


def test_texts_in_javascript() -> None:
    bad = {name_of(path): found(script_of(path)) for path in SCRIPTS}
    assert {name: phrases for name, phrases in bad.items() if phrases} == {}


def test_comments_in_javascript() -> None:
    sources = [path for path in SCRIPTS if path.is_relative_to(SDK_JS)]
    bad = {name_of(path): found(comments_of(path)) for path in sources}
    assert {name: phrases for name, phrases in bad.items() if phrases} == {}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_document(path: Path) -> None:
    assert found("\n".join(strings_in(json.loads(path.read_text())))) == []


def test_what_is_shown_is_looked_at() -> None:
    setting = "How long `connect` goes on trying"
    assert setting in "\n".join(texts_of(SDK / "pushlane" / "core" / "settings.py"))
    assert setting in comments_of(SDK_JS / "core" / "settings.ts")
    for path, summary in zip(DOCUMENTS, ("Messages are done.", "Publish messages."), strict=True):
        assert summary in strings_in(json.loads(path.read_text()))


def strings_in(node: Any) -> Iterator[str]:
    """Every text of a document, down to its leaves."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for part in node.values() if isinstance(node, dict) else node:
            yield from strings_in(part)


def comments_of(path: Path) -> str:
    """The comments that editors show, without the stars before their lines."""
    shown = "\n".join(SHOWN.findall(path.read_text()))
    return re.sub(r"^\s*/?\*+/?", "", shown, flags=re.MULTILINE)


def script_of(path: Path) -> str:
    """The texts of a script or page, without the quotes around them."""
    return "\n".join(text[1:-1] for text in TEXT.findall(COMMENT.sub("", path.read_text())))


def texts_of(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    is_help = path.parent.name == "commands" or path.stem.endswith("_command")
    is_read = is_help or path.is_relative_to(SDK)
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and not is_read
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
