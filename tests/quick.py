"""For `make quick`: leave out all tests that could start a process or need a service.

    python -m pytest -p tests.quick

A test is left out when its file, the file of one of its fixtures, or any module of `tests/`,
`bench/` or `tools/` that these import can start one. Most remain, and are fast.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
OURS = ("tests.", "bench.", "tools.")
STARTERS = ("subprocess", "multiprocessing", "pushlane.testing", "tools.services")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = {item for item in items if not all(map(starts_nothing, files_of(item)))}
    config.hook.pytest_deselected(items=list(slow))
    items[:] = [item for item in items if item not in slow]


def files_of(item: Any) -> Iterator[Path]:
    """Those of the test and of all its fixtures."""
    yield item.path
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        for definition in definitions:
            yield Path(definition.func.__code__.co_filename)


@cache
def starts_nothing(file: Path) -> bool:
    """Whether nothing that this file can reach starts processes."""
    seen: set[Path] = set()
    todo = [file]
    while todo:
        file = todo.pop()
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        for module in imported(file):
            if module.startswith(STARTERS):
                return False
            todo += places_of(module)
    return True


@cache
def imported(file: Path) -> list[str]:
    """What a file imports, also inside of functions."""
    return [name for node in ast.walk(ast.parse(file.read_text())) for name in names_in(node)]


def names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def places_of(name: str) -> list[Path]:
    """Where a module of ours may be; the name may also be that of something in it."""
    if not name.startswith(OURS):
        return []
    path = ROOT.joinpath(*name.split("."))
    files = [place.with_suffix(".py") for place in (path, path.parent)]
    return [*files, path / "__init__.py", path.parent / "__init__.py"]
