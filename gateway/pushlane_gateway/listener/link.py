"""A connection as the rest of the listener sees it: reads and writes that never block.

trio's streams would do, but for two things. Writes must be possible from plain functions, because
one flush serves many sockets and a task switch costs more than a frame. And a read must be possible
"if there is something", so that an ASGI app that only looks in (`is_disconnected`) gets an answer.
So this is a bare non-blocking socket, with trio waiting for it when there is nothing to do.

The end of a connection is no error here: `receive` gives b"" whether the client said goodbye, was
reset or timed out. Writing to it raises LinkLost.
"""

from __future__ import annotations

import contextlib
import socket
import struct

import trio

READ_BYTES = 64 * 1024
"""What one read takes: some hundred small frames, and no more than a kernel buffer holds."""

_RESET = struct.pack("ii", 1, 0)


class LinkLost(OSError):
    """The client can't be written to any more."""


class Link:
    """A plain connection; TlsLink is the same with TLS."""

    __slots__ = ("_empty", "_quick", "_sock", "closed", "peer")

    secure = False

    def __init__(self, sock: socket.socket, peer: str) -> None:
        self._sock = sock
        self._empty = False
        """The last read took all there was: the next one need not try before it waits."""
        self._quick = False
        self.peer = peer
        self.closed = False

    async def receive(self) -> bytes | None:
        """What the client sent; b"" at the end; None after `wake`. Cancelled, it loses nothing."""
        if self._quick:
            # The last read didn't wait, so others have not had their turn since.
            await trio.lowlevel.checkpoint()
        data = None
        if not self._empty:
            data = self.receive_now()
        self._empty = self._empty and data is not None
        self._quick = data is not None
        if data is not None:
            return data
        try:
            while not self.closed:
                await trio.lowlevel.wait_readable(self._sock)
                data = self.receive_now()
                if data is not None:
                    return data
        except trio.ClosedResourceError:  # `wake`, or it was closed
            pass
        return b"" if self.closed else None

    def receive_now(self) -> bytes | None:
        """What is there; None when there is nothing yet."""
        try:
            data = self._sock.recv(READ_BYTES)
            self._empty = 0 < len(data) < READ_BYTES
            return data
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def write_now(self, data: bytes | memoryview) -> int:
        """Write what goes without waiting; says how much that was. Raises LinkLost."""
        try:
            return self._sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LinkLost(*error.args) from None

    @property
    def unsent(self) -> bool:
        """Whether what was written is still here and waits for `write_now(b"")`."""
        return False

    async def wait_readable(self) -> bool:
        """Wait until there is something to read; False after `wake` or when it was closed."""
        if self.closed:
            return False
        try:
            await trio.lowlevel.wait_readable(self._sock)
        except trio.ClosedResourceError:
            return False
        return True

    async def wait_writable(self) -> None:
        """Wait until writing can go on; returns early after `wake` or when it was closed."""
        if not self.closed:
            with contextlib.suppress(trio.ClosedResourceError):
                await trio.lowlevel.wait_writable(self._sock)

    async def send_all(self, data: bytes | memoryview, stall_ms: int) -> None:
        """Write it all; raises LinkLost, also when the client takes nothing for this long."""
        view = memoryview(data)
        view = view[self.write_now(view) :]
        while view or self.unsent:
            with trio.move_on_after(stall_ms / 1000) as scope:
                await self.wait_writable()
            if scope.cancelled_caught:
                raise Stalled
            view = view[self.write_now(view) :]

    def wake(self) -> None:
        """Let whoever waits in `receive` return with None."""
        if not self.closed:
            trio.lowlevel.notify_closing(self._sock)

    def end_writing(self) -> None:
        """Tell the client that nothing more will come."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close; what was written still goes out."""
        if not self.closed:
            self.closed = True
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    def abort(self) -> None:
        """Cut the connection: what was not sent is thrown away, and the kernel's memory freed."""
        if not self.closed:
            with contextlib.suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.close()


class Stalled(LinkLost):
    """The client took nothing for too long."""
