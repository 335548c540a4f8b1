"""The docs are true: their Python runs, and what they link to is there."""

import re
from pathlib import Path

import pytest

from tests.repo import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("sdk_*/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def run_python_blocks(page: Path) -> int:
    """Run each Python block of a page on its own; a traceback names the page and its line."""
    text = page.read_text()
    blocks = [block for block in FENCE.finditer(text) if block[1] == "python"]
    for block in blocks:
        above = text.count("\n", 0, block.start(2))
        exec(compile("\n" * above + block[2], page, "exec"), {"__name__": "__main__"})
    return len(blocks)


def dead_links(page: Path) -> list[str]:
    """The links of a page to files that don't exist; those to other hosts are not followed."""
    links = LINK.findall(FENCE.sub("", page.read_text()))
    local = [link.split("#")[0] for link in links if not re.match(r"\w+:", link)]
    return [link for link in local if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path) -> None:
    run_python_blocks(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_failing_block_is_found_on_its_line(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```sh\nno python\n```\n\n```python\nok = 1\nassert ok == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        run_python_blocks(page)
    last = failure.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(page), 9)


def test_every_block_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\ntext\n```python\nimport trio\n```\n")
    assert run_python_blocks(page) == 2


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "[here](page.md) [part](page.md#part) [top](#top) [web](https://example.org/x)\n"
        "[gone](gone.md)\n```\nnot a [link](at-all.md)\n```\n"
    )
    assert dead_links(page) == ["gone.md"]
