"""These tests run on mock time: it jumps as soon as nothing else is left to do."""

from collections.abc import Callable
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock


def _run(main: Callable[[], Any], *, clock: trio.abc.Clock | None, **options: Any) -> Any:
    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), **options)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and item.path.parent == here
            and iscoroutinefunction(item.obj)
        ):
            item.add_marker(pytest.mark.trio(run=_run), append=False)
