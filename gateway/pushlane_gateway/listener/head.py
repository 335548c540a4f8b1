r"""The head of a request: found, bounded and judged before h11 reads it.

h11 is lenient where it may be: lines that end with LF alone, headers folded over several lines,
Content-Length beside Transfer-Encoding. Two programs that read such a head differently, a proxy and
we, can be played against each other (request smuggling). So the raw bytes are looked at first, and
whatever has two readings is refused: every line ends with CR LF, no CR or LF stands alone, no line
begins with a blank, one way to say how long the body is, said once.

Nothing here waits: `read_head` looks at the bytes so far.
"""

from __future__ import annotations

import re

import h11

from pushlane_gateway.listener.refusal import Refusal
from pushlane_gateway.settings import GatewaySettings

END = b"\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n"

_TWO_READINGS = re.compile(rb"(?<!\r)\n|\r(?!\n)|\r\n[ \t]|\x00")
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_STRAY_LINES = re.compile(rb"(?:\r\n){1,2}")

_TLS = (b"\x16\x03", b"\x80")


def read_head(
    buffer: bytearray, settings: GatewaySettings
) -> tuple[h11.Request, h11.Connection] | None:
    """Take a complete head off the buffer, and give the parser that reads on behind it.

    None when more is to come. Raises Refusal.
    """
    _skip_stray_lines(buffer)
    end = buffer.find(END, 0, settings.head_bytes + len(END))
    if end < 0:
        _judge_beginning(buffer, settings)
        return None
    raw = bytes(buffer[: end + len(END)])
    _judge(raw, settings)
    del buffer[: len(raw)]
    return _parse(raw, settings)


def header(request: h11.Request, name: bytes) -> list[str]:
    """All values of a header."""
    return [value.decode("latin-1") for key, value in request.headers if key == name]


def _skip_stray_lines(buffer: bytearray) -> None:
    """RFC 9112 asks us to bear an empty line before a request: old clients send one after POST."""
    stray = _STRAY_LINES.match(buffer)
    if stray:
        del buffer[: stray.end()]


def _judge_beginning(buffer: bytearray, settings: GatewaySettings) -> None:
    """Don't wait for the end of what is wrong already."""
    if len(buffer) > settings.head_bytes:
        raise _too_large(settings)
    if buffer.startswith(PREFACE):
        raise _version()
    if buffer.startswith(_TLS):
        raise Refusal(400, "this is TLS, and the server speaks plain HTTP here")
    if _TWO_READINGS.search(buffer, 0, len(buffer) - buffer.endswith(b"\r")):
        raise _ambiguous()
    if buffer and not 0x21 <= buffer[0] < 0x7F:
        raise Refusal(400, "this is not an HTTP request")


def _judge(raw: bytes, settings: GatewaySettings) -> None:
    if raw.startswith(PREFACE):
        raise _version()
    if len(raw) > settings.head_bytes:
        raise _too_large(settings)
    if _TWO_READINGS.search(raw, 0, len(raw) - len(END)):
        raise _ambiguous()
    if _CONTROLS.search(raw):
        raise Refusal(400, "a control character in the request's head")
    if raw.count(b"\r\n") - 2 > settings.header_count:
        raise Refusal(431, f"more than {settings.header_count} headers", code="too_large")


def _parse(raw: bytes, settings: GatewaySettings) -> tuple[h11.Request, h11.Connection]:
    parser = h11.Connection(h11.SERVER, max_incomplete_event_size=settings.head_bytes)
    parser.receive_data(raw)
    try:
        request = parser.next_event()
    except h11.RemoteProtocolError:
        # h11's own text would quote the request.
        raise Refusal(400, "malformed HTTP request") from None
    assert type(request) is h11.Request, "a complete head is a request or an error"
    _judge_request(request)
    return request, parser


def _judge_request(request: h11.Request) -> None:
    if request.http_version not in (b"1.0", b"1.1"):
        raise _version()
    if not request.target.startswith(b"/") and request.target != b"*":
        raise Refusal(400, "the request's target must be a path")
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names:
        if b"content-length" in names:
            raise Refusal(400, "Content-Length and Transfer-Encoding in one request")
        if request.http_version == b"1.0":
            raise Refusal(400, "Transfer-Encoding in HTTP/1.0")


def _too_large(settings: GatewaySettings) -> Refusal:
    return Refusal(
        431, f"request line and headers over {settings.head_bytes} bytes", code="too_large"
    )


def _ambiguous() -> Refusal:
    return Refusal(400, "lines end with CR LF, and headers stand on one line")


def _version() -> Refusal:
    return Refusal(505, "HTTP/1.1 only")
