"""The client without I/O: every decision of the SDK, none of its sockets, clocks or dice.

The shells (`pushlane.asyncio`, and more to come) open sockets, sleep, and wake whoever waits; what
to send, when to connect again, what to repeat and whom to tell is decided here. `client.py` is the
door: events are its methods, each with the time as `now` in milliseconds; what the shell has to do
comes out as `effects`. Nothing here awaits, reads a clock or draws a random number.
"""

from .client import ClientCore
from .settings import DEFAULTS, Settings

__all__ = ["DEFAULTS", "ClientCore", "Settings"]
