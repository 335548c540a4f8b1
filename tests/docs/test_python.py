"""Running the Python of a page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.docs.page import Block, read_blocks
from tests.docs.python import Python


@pytest.fixture(params=[True, False], ids=["shared", "alone"])
def python(request: pytest.FixtureRequest) -> Iterator[Python]:
    python = Python("page.md", shared=request.param)
    yield python
    python.close()


def run(python: Python, text: str) -> None:
    for block in read_blocks(text):
        python.run(block, block.text)


def test_a_block_that_fails_is_found_on_its_line(python: Python) -> None:
    with pytest.raises(AssertionError) as failure:
        run(python, "# Page\n\n```python\nok = 1\nassert ok == 2\n```\n")
    last = failure.traceback[-1]
    assert (str(last.path).endswith("page.md"), last.lineno + 1) == (True, 5)


def test_what_is_printed_is_what_the_comment_says(python: Python) -> None:
    run(python, "```python\nprint(1 + 1)  # 2\nprint(object())  # <object …>\n```\n")
    with pytest.raises(AssertionError, match="printed"):
        run(python, "```python\nprint(1 + 1)  # 3\n```\n")
    with pytest.raises(AssertionError, match="what does it print"):
        run(python, "```python\nprint(1 + 1)\n```\n")


def test_await_needs_no_function(python: Python) -> None:
    run(python, "```python\nimport asyncio\nprint(await asyncio.sleep(0, 5))  # 5\n```\n")


def test_names_are_kept_where_a_page_is_one_session() -> None:
    text = "```python\nx = 1\n```\n```python\nx + 1\n```\n"
    run(Python("page.md", shared=True), text)
    with pytest.raises(NameError):
        run(Python("page.md", shared=False), text)


def test_a_mark_belongs_to_the_block_right_below() -> None:
    text = "<!-- not run: why -->\n```sh\na\n```\n\n```sh\nb\n```\n"
    assert read_blocks(text) == [Block("sh", "a\n", 3, "why"), Block("sh", "b\n", 7, None)]
