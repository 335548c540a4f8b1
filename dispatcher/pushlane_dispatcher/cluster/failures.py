"""Why there is no link.

    LinkFailed
    ├── LinkRefused        a node, or a stranger, was there, and they don't belong together
    └── LinkUnreachable    nobody was there, or not long enough

Each has a code, under which it is counted and logged; those of refusals also travel.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pushlane_dispatcher.cluster.links.greeting import Greeting


class Refusal(Enum):
    OTHER_CLUSTER = "other_cluster"
    """The two nodes have different cluster names."""
    WRONG_KEY = "wrong_key"
    """The other side doesn't know the cluster's key."""
    OLD_VERSION = "old_version"
    """The dialling node speaks only versions of the link protocol that are too old …"""
    NEW_VERSION = "new_version"
    """… or too new for the listening one."""
    OTHER_PROCESS = "other_process"
    """The address belongs to another process than the one that was expected there."""
    ITSELF = "itself"
    """A node dialled its own address."""
    BUSY = "busy"
    """Too many connections are in their handshake, or there are too many links."""
    NOT_A_LINK = "not_a_link"
    """What came is no link's handshake: a stranger, or an address of another service."""
    CERTIFICATE = "certificate"
    """No TLS: one doesn't trust the other's certificate, or one speaks TLS and the other not."""
    OTHER = "other"
    """A reason that this version doesn't know."""


class Unreached(Enum):
    NOBODY_LISTENS = "nobody_listens"
    """The machine answered that nobody listens there: the process is gone, or not there yet."""
    TIMED_OUT = "timed_out"
    """No answer, or no complete handshake, in time: nothing is known of the process."""
    LOST = "lost"
    """The connection ended in the middle of the handshake."""
    NO_ADDRESS = "no_address"
    """The name has no address, or the text is none."""
    NETWORK = "network"
    """The network doesn't lead there, or another fault of it."""


class LinkFailed(Exception):
    """Base of both."""

    code: Refusal | Unreached
    message: str


class LinkRefused(LinkFailed):
    def __init__(self, code: Refusal, message: str, answered: Greeting | None = None) -> None:
        super().__init__(f"{code.value}: {message}")
        self.code: Refusal = code
        self.message = message
        self.answered = answered
        """With `OTHER_PROCESS` and `ITSELF`: the node that answered. It has proved that it belongs
        to the cluster, so the process that was expected there no longer has that address."""


class LinkUnreachable(LinkFailed):
    def __init__(self, code: Unreached, message: str) -> None:
        super().__init__(f"{code.value}: {message}")
        self.code: Unreached = code
        self.message = message

    @property
    def nobody_listens(self) -> bool:
        """Whether the machine is up and said that nobody listens there."""
        return self.code is Unreached.NOBODY_LISTENS
