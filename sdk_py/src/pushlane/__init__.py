"""Pushlane for Python: the client side, and the language that both sides speak.

    import asyncio
    import pushlane

    async def main():
        async with pushlane.connect() as client:
            await client.publish("orders", {"order": 17})

A message begins and ends here: a producer hands it to this package, and a consumer gets it back
from it. `pushlane.core` decides without I/O, `pushlane.asyncio` does the I/O; what it offers is
here too, under its plain name. `pushlane.wire` is the schema of the frames in between and is the
one part that the server imports too; `pushlane.cli` is the `pushlane` command. This package imports
nothing of the server, so that a client never has to install one.

Names are loaded when they are first used: who needs the wire schema only, as the server does, loads
neither asyncio nor a WebSocket library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .asyncio.client import Client, connect
    from .asyncio.message import Message
    from .asyncio.queues import Queues
    from .asyncio.subscription import Subscription
    from .core.publication import Item, Published
    from .core.settings import Settings
    from .wire.errors import (
        BadRequest,
        Conflict,
        ConnectionLost,
        Forbidden,
        Internal,
        LeaseLost,
        NotFound,
        PushlaneError,
        QueueFull,
        Throttled,
        TooLarge,
        Unauthorized,
        Unavailable,
    )

    __version__: str

__all__ = [
    "BadRequest",
    "Client",
    "Conflict",
    "ConnectionLost",
    "Forbidden",
    "Internal",
    "Item",
    "LeaseLost",
    "Message",
    "NotFound",
    "Published",
    "PushlaneError",
    "QueueFull",
    "Queues",
    "Settings",
    "Subscription",
    "Throttled",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "connect",
]

_HOMES = {
    "Client": "asyncio.client",
    "connect": "asyncio.client",
    "Message": "asyncio.message",
    "Queues": "asyncio.queues",
    "Subscription": "asyncio.subscription",
    "Item": "core.publication",
    "Published": "core.publication",
    "Settings": "core.settings",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # pyproject.toml is the one place that says it.
        value = import_module("importlib.metadata").version(__name__)
    elif name in __all__:
        value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'wire.errors')}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
