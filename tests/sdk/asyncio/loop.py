"""Runs a test's coroutine on asyncio, within a bounded time, and finds what it left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any


def on_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The suite's own loop is trio's, so asyncio's tests are plain functions to pytest."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        async def main() -> None:
            async with asyncio.timeout(30):
                await test(**fixtures)
            await asyncio.sleep(0.01)  # for the servers of the tests to end theirs
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks left behind: {left}"

        asyncio.run(main())

    return run
