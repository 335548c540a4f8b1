"""The core does no I/O, and whoever needs the wire schema only loads nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import pushlane

PACKAGE = Path(pushlane.__file__).parent
FORBIDDEN = {
    "asyncio", "concurrent", "datetime", "h11", "os", "pathlib", "random", "secrets", "select",
    "selectors", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "trio",
    "uuid", "websockets",
}  # fmt: skip
ALLOWED_PARTS = {"core", "wire"}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            names.add(node.module)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1, f"{path.name} reaches out of its package"
    return names


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=lambda p: p.name)
def test_the_core_does_no_io(path: Path) -> None:
    for name in imported(path):
        parts = name.split(".")
        assert parts[0] not in FORBIDDEN, name
        if parts[0] == "pushlane":
            assert parts[1] in ALLOWED_PARTS, name


def test_the_wire_alone_loads_no_client() -> None:
    code = "import sys, pushlane.wire; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    modules = set(result.stdout.split())
    assert "pushlane.wire" in modules
    assert not modules & {"asyncio", "websockets", "h11", "pushlane.core", "pushlane.asyncio"}


@pytest.mark.parametrize("name", pushlane.__all__)
def test_every_name_is_there_with_a_docstring(name: str) -> None:
    assert getattr(pushlane, name).__doc__


def test_the_version_is_that_of_the_distribution() -> None:
    assert pushlane.__version__ == metadata.version("pushlane")


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = pushlane.no_such_name
