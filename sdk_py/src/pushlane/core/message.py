"""What every shell's Message has in common: what was delivered, for reading.

Bodies are decoded when they are first asked for. They are copied out of their frame first: one
small message that somebody keeps must not keep a frame of megabytes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from pushlane.wire.frames import DeadInfo

from .lease import Lease, Phase

_DECODER = msgspec.json.Decoder()
_UNREAD = object()


class BaseMessage:
    """A message as it was delivered."""

    __slots__ = ("_body", "_lease", "_raw")

    def __init__(self, lease: Lease) -> None:
        body = lease.message.body
        self._lease = lease
        self._raw = None if body is UNSET else bytes(body)
        self._body: Any = _UNREAD
        lease.message.body = UNSET

    @property
    def id(self) -> str:
        """The message's id: the same in every delivery."""
        return self._lease.message.id

    @property
    def body(self) -> Any:
        """The JSON value that was published; None also for a message of bytes (see `data`)."""
        if self._body is _UNREAD:
            self._body = None if self._raw is None else _DECODER.decode(self._raw)
        return self._body

    @property
    def raw(self) -> bytes | None:
        """The body as JSON text, byte for byte as it was published."""
        return self._raw

    @property
    def data(self) -> bytes | None:
        """The bytes that were published, if it was bytes."""
        return self._lease.message.data

    @property
    def key(self) -> str | None:
        """Messages with the same key come in order, one at a time."""
        return self._lease.message.key

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were published; empty without any."""
        return self._lease.message.headers or {}

    @property
    def attempt(self) -> int:
        """1 for the first."""
        return self._lease.message.attempt

    @property
    def fence(self) -> int | None:
        """Grows with every delivery of this message: hand it to your database, which can shut out
        an older holder by it. None with `ack="none"`."""
        return self._lease.message.fence

    @property
    def published_at(self) -> int:
        """When it was stored, in Unix milliseconds."""
        return self._lease.message.published_at

    @property
    def dead(self) -> DeadInfo | None:
        """In a dead-letter queue: why it is there, and where it came from."""
        return self._lease.message.dead

    @property
    def lost(self) -> bool:
        """Whether the lease is lost: stop work, it will be delivered again, perhaps elsewhere."""
        return self._lease.lost

    @property
    def is_settled(self) -> bool:
        """Whether it was acked, nacked or rejected here, or lost."""
        return self._lease.phase in (Phase.SETTLING, Phase.OVER)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} attempt={self.attempt}>"
