"""Carrying a command out: connect, do it, and end with the right code and a line that helps."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
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
        async with server.connect() as client:
            return await command(client)

    try:
        return asyncio.run(main())
    except PushlaneError as error:
        fail(explain_error(error), exit_code(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
