"""What waits to be written to one client: appended by plain calls, written many at a time.

`put` only appends. The flusher, or a session about to wait for its client, calls `flush`, which
joins what is there and writes it without waiting. Only when the kernel takes no more does the
outbox get a task of its own, until all is written: a slow reader costs a task, nobody else waits
for it, and its own session sees `waiting` grow.
"""

from __future__ import annotations

import trio

from pushlane_gateway.listener.hub import Hub
from pushlane_gateway.listener.link import Link, LinkLost


class Outbox:
    __slots__ = (
        "_chunks",
        "_due",
        "_hub",
        "_link",
        "_moved",
        "_piece",
        "blocked_since",
        "sent_at",
        "waiting",
    )

    def __init__(self, link: Link, hub: Hub) -> None:
        self._link = link
        self._hub = hub
        self._chunks: list[bytes] = []
        self._piece: memoryview | None = None
        self._due = False
        self._moved: trio.Event | None = None
        self.waiting = 0
        """Bytes that wait."""
        self.blocked_since: float | None = None
        """Since when the client has taken nothing, while something waits."""
        self.sent_at = trio.current_time()
        """When something was written last."""

    def put(self, data: bytes) -> None:
        """Append; cuts the connection at the hard limit. Without effect when it is closed."""
        if self._link.closed:
            return
        self._chunks.append(data)
        self.waiting += len(data)
        if self.waiting > self._hub.settings.outbox_bytes:
            self._hub.counters.overflows += 1
            self.abort()
        elif not self._due and self.blocked_since is None:
            self._due = True
            self._hub.flusher.add(self)

    def flush(self) -> None:
        """Write what goes without waiting."""
        self._due = False
        if self.waiting and self.blocked_since is None and not self._write():
            self.blocked_since = trio.current_time()
            self._hub.nursery.start_soon(self._write_on)

    async def drain(self, below: int) -> None:
        """Wait until less than this waits (1: until all has gone), or the connection is closed."""
        while not self._link.closed and (
            self.waiting >= below or (below == 1 and self.blocked_since is not None)
        ):
            if self._moved is None:
                self._moved = trio.Event()
            await self._moved.wait()

    def abort(self) -> None:
        """Throw away what waits, and cut the connection."""
        self._chunks = []
        self._piece = None
        self.waiting = 0
        self._link.abort()
        self._tell()

    async def _write_on(self) -> None:
        """The client is slow: write whenever it has taken something."""
        while not self._link.closed:
            await self._link.wait_writable()
            if self._write():
                break
        self.blocked_since = None
        self._tell()

    def _write(self) -> bool:
        """Write until the kernel takes no more; whether nothing is left to write."""
        try:
            while self.waiting or self._link.unsent:
                piece = self._piece if self._piece is not None else self._next_piece()
                written = self._link.write_now(piece)
                if written:
                    self.waiting -= written
                    self.sent_at = trio.current_time()
                    if self.blocked_since is not None:
                        self.blocked_since = self.sent_at
                    if self._moved is not None:
                        self._tell()
                self._piece = piece[written:] if written < len(piece) else None
                if self._piece is not None or self._link.unsent:
                    return False
        except LinkLost:
            self.abort()
        return True

    def _next_piece(self) -> memoryview:
        """What to write next: all that waits, or a part that a kernel buffer can hold."""
        most = self._hub.settings.write_bytes
        chunks, self._chunks = self._chunks, []
        if self.waiting > most:
            size = count = 0
            while count < len(chunks) and size < most:
                size += len(chunks[count])
                count += 1
            self._chunks = chunks[count:]
            del chunks[count:]
        return memoryview(b"".join(chunks))

    def _tell(self) -> None:
        if self._moved is not None:
            self._moved.set()
            self._moved = None
