"""Members: the processes that share a store, as they show themselves to each other; and owners of
slots among them."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

PROCESS_BYTES = 16
"""Random bytes of a process's id."""
GATEWAY, DISPATCHER = ROLES = ("gateway", "dispatcher")
"""What a process may be: one that serves clients, and one that may own slots."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A process among those that share a store, as it shows itself to the others."""

    process: str
    """Fresh with each start, and whenever a process goes on that was fenced."""
    name: str
    """What people call it; the same over restarts when the operator names it."""
    address: str = ""
    """HOST:PORT of its internal listener, where peers reach it; empty: nowhere."""
    url: str = ""
    """Where clients reach it."""
    cell: str = ""
    roles: tuple[str, ...] = ()
    """Of `ROLES`."""
    version: str = ""
    """Of the software."""
    links: tuple[int, int] = (1, 1)
    """The lowest and the highest version of the link protocol that it speaks."""
    weight: int = 100
    draining: bool = False
    """It gives its slots away, because it stops or because an operator wants it."""
    placed: bool = False
    """A peer has reached it: it takes part in placement."""
    started_at: int = 0
    """Unix milliseconds."""
    beat: int = 0
    """The number of its last heartbeat."""


class Owner(NamedTuple):
    """Who has a slot."""

    process: str
    name: str
    """The one given with the claim."""
    epoch: int
    """The newest of the slot."""
