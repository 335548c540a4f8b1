"""Blocks of `python`: programs, or what one types into `python -m asyncio`.

A `print` says in a comment behind it what it prints, with `…` for what can't be told before:

    print(message.body)  # {'id': 1}
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import re
from contextlib import redirect_stdout
from typing import Any

from tests.docs.console import is_shown
from tests.docs.page import Block

_PRINT = re.compile(r"^\s*print\(.*\)(?P<comment>  # (?P<shown>.*))?$", re.MULTILINE)


def expected(source: str) -> str:
    """What the comments say that is printed."""
    prints = list(_PRINT.finditer(source))
    assert all(found["comment"] for found in prints), f"what does it print?\n{source}"
    return "".join(found["shown"] + "\n" for found in prints)


class Python:
    """Runs blocks; all in one event loop, and with `shared` in one namespace, too."""

    def __init__(self, page: str, *, shared: bool) -> None:
        self._page = page
        self._shared: dict[str, Any] | None = _namespace() if shared else None
        self._runner = asyncio.Runner()

    def run(self, block: Block, source: str) -> None:
        """Run a block, of which `source` is what it says here; a traceback names page and line."""
        code = compile(
            "\n" * (block.line - 1) + source,
            self._page,
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )
        namespace = _namespace() if self._shared is None else self._shared
        output = io.StringIO()
        with redirect_stdout(output):
            result = eval(code, namespace)
            if inspect.iscoroutine(result):
                self._runner.run(result)
        shown, printed = expected(source), output.getvalue()
        assert is_shown(shown, printed), f"line {block.line}\nshown:\n{shown}\nprinted:\n{printed}"

    def close(self) -> None:
        self._runner.close()


def _namespace() -> dict[str, Any]:
    return {"__name__": "__main__"}
