"""Carrying a command out: connect, do it, and end with the right code and a line that helps.

SIGTERM is taken as Ctrl-C is: what a command has begun it ends, stops or gives back. A second one
ends it at once.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from pushlane.commands.exits import INTERRUPTED, exit_code, explain_error, fail
from pushlane.commands.server import Server
from pushlane.wire.errors import PushlaneError

if TYPE_CHECKING:
    from pushlane.asyncio.client import Client

T = TypeVar("T")


def run(server: Server, command: Callable[[Client], Awaitable[T]]) -> T:
    """What the command returns. Faults end the process."""

    async def main() -> T:
        _stop_on_sigterm()
        async with server.connect() as client:
            return await command(client)

    try:
        return asyncio.run(main())
    except PushlaneError as error:
        fail(explain_error(error), exit_code(error))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(INTERRUPTED)


def _stop_on_sigterm() -> None:
    """Cancel the current task, the first time."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        task.cancel()

    # Elsewhere than in a main thread on Unix, SIGTERM does what it does.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        loop.add_signal_handler(signal.SIGTERM, stop)
