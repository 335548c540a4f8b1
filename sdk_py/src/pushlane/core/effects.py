"""What the core wants done. The shell carries effects out in order.

`link` numbers the connections of a client from 1: what a shell reports of an older one is ignored.
A `ticket` is whatever the caller gave with its request (a future, say); the core only hands it
back, exactly once, in a Resolve or a Reject.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pushlane.wire.errors import PushlaneError

from .choice import Transport
from .lease import Lease
from .subscription import Subscription

State: TypeAlias = Literal["connecting", "open", "polling", "closed"]


class Effect(Struct, gc=False):
    """Something for the shell to do."""


class Dial(Effect):
    """Get a token, open a connection, then say `connected` or `lost`.

    With `poll` there is nothing to open: hello opens the pipe (see pipe.py).
    """

    link: int
    transport: Transport = "ws"


class Probe(Effect):
    """Try whether a WebSocket can be had, up to its welcome, and say `probed`."""

    link: int


class Send(Effect):
    """Write a frame."""

    link: int
    data: bytes


class Hangup(Effect):
    """Close the connection with this code (within a bounded time) and forget it."""

    link: int
    code: int
    reason: str = ""


class Resolve(Effect):
    """A request succeeded."""

    ticket: Any
    value: Any = None


class Reject(Effect):
    """A request failed."""

    ticket: Any
    error: PushlaneError


class Ready(Effect):
    """A subscription has messages to take."""

    subscription: Subscription


class Lost(Effect):
    """The lease of a message in somebody's hands is over: cancel the handler."""

    lease: Lease


class Ended(Effect):
    """A subscription is over: without an error because it was closed."""

    subscription: Subscription
    error: PushlaneError | None


class StateChanged(Effect):
    """The client's public state; `closed` is final, with the error that led to it, if any."""

    state: State
    error: PushlaneError | None = None


AnyEffect: TypeAlias = (
    Dial | Probe | Send | Hangup | Resolve | Reject | Ready | Lost | Ended | StateChanged
)
