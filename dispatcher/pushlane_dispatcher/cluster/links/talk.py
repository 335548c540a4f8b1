"""One side of a handshake: the words that come and go, and what a stranger may cost."""

from __future__ import annotations

import re
import ssl
from contextlib import suppress
from typing import Any, TypeVar, overload

import trio

from pushlane_dispatcher.cluster.failures import LinkRefused, LinkUnreachable, Refusal, Unreached
from pushlane_dispatcher.cluster.links.framing import HEADER_BYTES, framed
from pushlane_dispatcher.cluster.links.greeting import PREFACE, Word, decode, encode
from pushlane_dispatcher.cluster.settings import ClusterSettings

W = TypeVar("W", bound=Word)
V = TypeVar("V", bound=Word)

_TEXT = b"This port is for the nodes of a Pushlane cluster; clients have another one.\n"
HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%b" % (len(_TEXT), _TEXT)
)

_ENDS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_HTTP = re.compile(rb"[A-Z]{1,16}( |\Z)")


LOST = "the connection ended during the handshake; its own log may say why"


class Talk:
    """Raises LinkRefused for what is no handshake, LinkUnreachable when the stream ends."""

    def __init__(self, stream: trio.abc.Stream, settings: ClusterSettings) -> None:
        self._stream = stream
        self._most = settings.stranger_bytes
        self._linger_ms = settings.linger_ms
        self._read = 0
        self._got = bytearray()
        self.heard = b""
        """The last word that came, as it came."""

    async def say(self, data: bytes) -> None:
        """The other side may be gone: what it said before that is still worth hearing."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._stream.send_all(data)

    async def say_word(self, word: Word) -> bytes:
        """Says it; gives it as it went."""
        sent = encode(word)
        await self.say(framed(sent))
        return sent

    @overload
    async def hear(self, kind: type[W], /) -> W: ...

    @overload
    async def hear(self, kind: type[W], or_else: type[V], /) -> W | V: ...

    async def hear(self, *kinds: type[Any]) -> Word:
        """The next word, which must be one of these."""
        while len(self._got) < HEADER_BYTES:
            await self._more()
            if self._got[0]:
                raise _stranger()  # no word is as long as that
        size = int.from_bytes(self._got[:HEADER_BYTES], "big")
        if size > self._most:
            raise _stranger()
        while len(self._got) < HEADER_BYTES + size:
            await self._more()
        self.heard = bytes(self._got[HEADER_BYTES : HEADER_BYTES + size])
        del self._got[: HEADER_BYTES + size]
        try:
            word = decode(self.heard)
        except ValueError:
            raise _stranger() from None
        if type(word) not in kinds:
            raise _stranger()
        return word

    async def hear_preface(self) -> None:
        """Who doesn't begin with it is no node; browsers and the like are told."""
        while len(self._got) < len(PREFACE):
            await self._more()
            if not PREFACE.startswith(self._got[: len(PREFACE)]):
                if _HTTP.match(self._got):
                    await self.part(HTTP_ANSWER)
                raise _stranger()
        del self._got[: len(PREFACE)]

    async def part(self, last: bytes) -> None:
        """Say this, and wait until the other side has gone: to close before that, while it still
        sends, would reset the connection, and what was said might be lost."""
        with trio.move_on_after(self._linger_ms / 1000), suppress(LinkRefused, LinkUnreachable):
            await self.say(last)
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await self._stream.send_eof()
            while True:
                self._got.clear()
                await self._more()

    def rest(self) -> bytes:
        """What came behind the last word."""
        return bytes(self._got)

    async def _more(self) -> None:
        if self._read >= self._most:
            raise _stranger()
        try:
            data = await self._stream.receive_some(self._most - self._read)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            if _alerted(error):
                raise LinkRefused(Refusal.CERTIFICATE, no_tls(error)) from None
            data = b""
        if not data:
            raise LinkUnreachable(Unreached.LOST, LOST)
        self._read += len(data)
        self._got += data


def no_tls(error: BaseException) -> str:
    """Why there is no TLS, in OpenSSL's words, which say nothing of what was sent; empty: the
    connection just ended."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, _ENDS) and cause.reason:
        return cause.reason.replace("_", " ").lower()
    return ""


def _alerted(error: BaseException) -> bool:
    """With TLS 1.3 the dialling side learns only now that its certificate was not liked."""
    cause = error.__cause__
    return isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or "")


def _stranger() -> LinkRefused:
    return LinkRefused(Refusal.NOT_A_LINK, "it does not speak the protocol of links")
