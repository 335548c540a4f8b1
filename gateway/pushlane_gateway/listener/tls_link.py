"""A connection with TLS: the `ssl` module works on buffers in memory, a Link moves the bytes.

Done by hand because trio's SSLStream can only be written to by a task that waits; here a flush is a
plain call, as it is without TLS. What was encrypted can't be taken back, so ciphertext that the
kernel has no room for stays here (`unsent`), and until it has gone nothing more is encrypted.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable

from pushlane_gateway.listener.link import READ_BYTES, Link, LinkLost

ENCRYPT_BYTES = 64 * 1024
"""What is encrypted at once: this much may be stuck behind a slow client, and no more."""
HANDSHAKE_BYTES = 150 * 1024
"""What OpenSSL keeps for a handshake message that is not complete: it makes room for as much as the
first bytes announce, and a greeting may announce 128 KiB."""

_PLAIN = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
"""What OpenSSL calls a client that speaks HTTP without TLS."""


class TlsFailed(Exception):
    """No TLS handshake: not TLS at all, no common version or cipher, or the client went away."""


class PlainHttp(TlsFailed):
    """A client that speaks HTTP without TLS: it understands a plain answer."""


class TlsLink(Link):
    __slots__ = ("_cipher_in", "_cipher_out", "_partial", "_tls", "_waiting")

    secure = True

    def __init__(self, sock: socket.socket, peer: str, context: ssl.SSLContext) -> None:
        super().__init__(sock, peer)
        self._cipher_in = ssl.MemoryBIO()
        self._cipher_out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._cipher_in, self._cipher_out, server_side=True)
        self._waiting = b""
        self._partial = False

    async def handshake(self, stall_ms: int, hold: Callable[[int], None] = lambda _: None) -> None:
        """Agree on keys; raises TlsFailed. `hold` hears how many bytes are kept until then."""
        try:
            while not self._shake():
                hold(HANDSHAKE_BYTES if self._partial else 0)
                await self.send_all(b"", stall_ms)
                await self.wait_readable()
            await self.send_all(b"", stall_ms)
            self._empty = False  # what came with the end of the handshake waits to be decrypted
        except (ssl.SSLError, LinkLost) as error:
            if isinstance(error, ssl.SSLError) and error.reason in _PLAIN:
                raise PlainHttp("HTTP without TLS") from None
            with contextlib.suppress(LinkLost):
                self._push()  # the alert that tells the client why
            raise TlsFailed(str(error)) from None

    def refuse_plain(self, answer: bytes) -> None:
        """Answer a client without TLS. It is little: what doesn't go at once never will."""
        with contextlib.suppress(LinkLost):
            Link.write_now(self, answer)
        Link.end_writing(self)

    def receive_now(self) -> bytes | None:
        while True:
            data = self._decrypt()
            if data is not None:
                self._empty = False  # there may be more that was received and not decrypted
                return data
            cipher = super().receive_now()
            if cipher is None:
                return None
            if not cipher:
                return b""
            self._cipher_in.write(cipher)

    def write_now(self, data: bytes | memoryview) -> int:
        written = 0
        while self._push() and written < len(data):
            try:
                written += self._tls.write(data[written : written + ENCRYPT_BYTES])
            except ssl.SSLError as error:
                raise LinkLost(*error.args) from None
        return written

    @property
    def unsent(self) -> bool:
        return bool(self._waiting) or self._cipher_out.pending > 0

    def end_writing(self) -> None:
        with contextlib.suppress(ssl.SSLError, LinkLost):
            try:
                self._tls.unwrap()
            except ssl.SSLWantReadError:
                self._push()
        super().end_writing()

    def _shake(self) -> bool:
        """One step; while it isn't over the bytes that come are the handshake's."""
        cipher = Link.receive_now(self)
        if cipher:
            self._cipher_in.write(cipher)
        elif cipher == b"":
            raise TlsFailed("the client went away")
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            if cipher:  # to what is complete there is an answer
                self._partial = not self._cipher_out.pending
            return False
        return True

    def _decrypt(self) -> bytes | None:
        try:
            return self._tls.read(READ_BYTES)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError:
            # A proper goodbye (SSLZeroReturnError) or rubbish: nothing more will come.
            return b""

    def _push(self) -> bool:
        """Write the ciphertext that waits; whether all of it went."""
        cipher = self._waiting + self._cipher_out.read()
        sent = super().write_now(cipher) if cipher else 0
        self._waiting = cipher[sent:]
        return not self._waiting
