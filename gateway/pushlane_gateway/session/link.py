"""What a session needs of a socket: a WebSocket of the listener's, a pipe, or one of the tests'."""

from __future__ import annotations

from typing import Protocol

from pushlane.wire.codec import Codec
from pushlane_dispatcher.port import Claims
from pushlane_gateway.listener.socket import SocketClosed

__all__ = ["Link", "SocketClosed"]


class Link(Protocol):
    """One WebSocket after its handshake, or what stands in for it.

    All but `receive` and `drain` are plain calls.
    """

    @property
    def codec(self) -> Codec: ...

    @property
    def limit(self) -> str:
        """The shared limit that it counts for."""
        ...

    @property
    def authorization(self) -> str | None:
        """The Authorization header's value: never to be logged."""
        ...

    @property
    def peer(self) -> str:
        """For logs."""
        ...

    @property
    def outbox_bytes(self) -> int:
        """What waits to be written."""
        ...

    @property
    def last_sent_at(self) -> float:
        """When it was last written to, in trio's time."""
        ...

    def admit(self, claims: Claims | None) -> None:
        """The client is welcome: from now on its frames may be large.

        `claims`: of whose share they are. None: it is just anybody, where all may come.
        """
        ...

    async def receive(self) -> list[bytes]:
        """All whole messages that one read completed; raises SocketClosed."""
        ...

    def send(self, frame: bytes) -> None:
        """Put a frame into the outbox; after a close nothing happens."""
        ...

    def hurry(self) -> None:
        """Have what waits written now, to everybody."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close after what is in the outbox, within a bounded time."""
        ...

    def abort(self) -> None:
        """Cut the connection now."""
        ...

    async def drain(self, below: int) -> None:
        """Wait until the outbox has less than this; raises SocketClosed."""
        ...
