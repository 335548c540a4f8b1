"""A trio loop in a thread of its own, for callers that can't await: hypothesis' state machines.

One task holds the context (a back end with its connections and nurseries) and runs every call, so
whatever it opened is closed by the task that opened it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

import outcome
import trio

C = TypeVar("C")
R = TypeVar("R")


class Portal(Generic[C]):
    def __init__(self, context: Callable[[], AbstractAsyncContextManager[C]]) -> None:
        self._answers: SimpleQueue[outcome.Outcome[Any]] = SimpleQueue()
        self._calls, self._received = trio.open_memory_channel[Callable[[], Awaitable[Any]]](0)
        self._context = context
        self._thread = Thread(target=self._run, name="portal")
        self._thread.start()
        self._token, self.held = self._answers.get().unwrap()

    def call(self, function: Callable[..., Awaitable[R]], *args: object) -> R:
        """Run an async function in the loop and wait for what it returns or raises."""

        async def call() -> R:
            return await function(*args)

        trio.from_thread.run(self._calls.send, call, trio_token=self._token)
        result: R = self._answers.get().unwrap()
        return result

    def close(self) -> None:
        trio.from_thread.run_sync(self._calls.close, trio_token=self._token)
        self._thread.join()
        self._answers.get().unwrap()

    def _run(self) -> None:
        self._answers.put(outcome.capture(trio.run, self._serve))

    async def _serve(self) -> None:
        async with self._context() as held:
            self._answers.put(outcome.Value((trio.lowlevel.current_trio_token(), held)))
            async for call in self._received:
                self._answers.put(await outcome.acapture(call))
