"""Looks at all WebSockets now and then: one task instead of a timer for each of them.

What it looks for takes many seconds to become true, so it matters little when exactly it is seen:
clients that vanished without a word, clients that take nothing of what waits for them, memory that
the system could have back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import trio

from pushlane_gateway.listener.hub import Hub


def find_trim() -> Callable[[], None]:
    """A function to call in a thread; where the C library has no such thing it does nothing."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)


SHARE = 8
"""How often it looks within the shortest time it is to measure."""
PAUSE = 500
"""Sockets after which others have their turn."""


async def watch(hub: Hub) -> None:
    settings = hub.settings
    shortest = min(
        settings.ping_ms, settings.silence_ms - settings.ping_ms, settings.write_stall_ms
    )
    trim = find_trim()
    while True:
        await trio.sleep(shortest / SHARE / 1000)
        if any([hub.budget.fell(), hub.waiting.fell()]):  # both are asked
            await trio.to_thread.run_sync(trim)
        for number, socket in enumerate(list(hub.sockets), 1):
            socket.check(trio.current_time())
            if number % PAUSE == 0:
                await trio.lowlevel.checkpoint()
