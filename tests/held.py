"""Stores that a test opens by a call, and closes wherever it likes.

The code opens a store for a block. A test may open many, close one in the middle or in a fixture,
and go on: so each has a task of its own, which holds the block open.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import trio

T = TypeVar("T")


class _Holder:
    def __init__(self) -> None:
        self.opened = trio.Event()
        self.end = trio.Event()
        self.ended = trio.Event()
        self.found: Any = None
        self.error: Exception | None = None

    async def hold(self, context: AbstractAsyncContextManager[Any]) -> None:
        try:
            async with context as self.found:
                self.opened.set()
                await self.end.wait()
        except Exception as error:
            self.error = error
        finally:
            self.opened.set()
            self.ended.set()


_holders: dict[int, _Holder] = {}
"""By the identity of what they hold."""


async def held(context: AbstractAsyncContextManager[T]) -> T:
    """What the block yields, until it is given to `let_go`."""
    holder = _Holder()
    trio.lowlevel.spawn_system_task(holder.hold, context)
    try:
        await holder.opened.wait()
    except BaseException:
        holder.end.set()
        raise
    if holder.error is not None:
        raise holder.error
    found: T = holder.found
    _holders[id(found)] = holder
    return found


async def let_go(found: Any) -> None:
    """End the block, or close what was opened without one. Safe to repeat."""
    holder = _holders.get(id(found))
    if holder is None:
        await found.close()
        return
    holder.end.set()
    with trio.CancelScope(shield=True):
        await holder.ended.wait()
    if holder.error is not None:
        raise holder.error
