"""Tests on mock time: it jumps as soon as nothing else is left to do."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock


def _run(main: Callable[[], Any], *, clock: trio.abc.Clock | None, **options: Any) -> Any:
    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), **options)


def on_mock_time(items: list[pytest.Item], folder: Path) -> None:
    """The tests of this folder, and not of those in it."""
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and item.path.parent == folder
            and iscoroutinefunction(item.obj)
        ):
            item.add_marker(pytest.mark.trio(run=_run), append=False)
