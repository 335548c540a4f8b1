"""What the docs link to is there, headings too; tests/docs runs what they show."""

import re
from pathlib import Path

import pytest

from tests.docs.page import PAGES
from tests.repo import ROOT

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def dead_links(page: Path) -> list[str]:
    """The links of a page that lead nowhere; those to other hosts are not followed."""
    links = LINK.findall(FENCE.sub("", page.read_text()))
    return [link for link in links if not re.match(r"\w+:", link) and not leads(page, link)]


def leads(page: Path, link: str) -> bool:
    """Whether there is such a file, and such a heading in it."""
    path, _, heading = link.partition("#")
    target = page.parent / path if path else page
    if not heading:
        return target.exists()
    return target.exists() and heading in headings(target.read_text())


def headings(text: str) -> set[str]:
    """As links name them: in small letters, with hyphens, without punctuation."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in LINK.findall(index.read_text())}
    assert {page for page in index.parent.glob("*.md") if page != index} <= linked


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# The top, really\n"
        "[here](page.md) [top](#the-top-really) [web](https://example.org/x)\n"
        "[gone](gone.md) [no part](page.md#part)\n```\n# not a [link](at-all.md)\n```\n"
    )
    assert dead_links(page) == ["gone.md", "page.md#part"]
