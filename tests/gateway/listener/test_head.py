"""Heads of requests: taken when complete, refused when they have two readings or are too large."""

import pytest

from pushlane_gateway.listener.head import header, read_head
from pushlane_gateway.listener.refusal import Refusal
from pushlane_gateway.settings import GatewaySettings
from tests.gateway.listener.rig import head

SETTINGS = GatewaySettings(head_bytes=400, header_count=5)
GET = "GET / HTTP/1.1"
HOST = "Host: localhost"

AMBIGUOUS = {
    "LF alone": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "one LF alone": b"GET / HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    "an LF at the end": b"GET / HTTP/1.1\r\nHost: localhost\r\n\n",
    "a CR alone": b"GET / HTTP/1.1\r\nHost: local\rhost\r\n\r\n",
    "CR CR LF": b"GET / HTTP/1.1\r\nHost: localhost\r\r\n\r\n",
    "a NUL": head(GET, HOST, "X: a\0b"),
    "a folded header": head(GET, HOST, "X: a", " b"),
    "a folded header, with a tab": head(GET, HOST, "X: a", "\tb"),
    "a folded first header": head(GET, " Host: localhost"),
    "a blank before the colon": head(GET, HOST, "Content-Length : 3"),
    "both lengths": head(GET, HOST, "Content-Length: 3", "Transfer-Encoding: chunked"),
    "both, the other way round": head(GET, HOST, "Transfer-Encoding: chunked", "Content-Length: 3"),
    "two lengths": head(GET, HOST, "Content-Length: 3", "Content-Length: 4"),
    "two lengths in one": head(GET, HOST, "Content-Length: 3, 4"),
    "a signed length": head(GET, HOST, "Content-Length: +3"),
    "a hexadecimal length": head(GET, HOST, "Content-Length: 0x3"),
    "a length without digits": head(GET, HOST, "Content-Length: "),
    "another coding": head(GET, HOST, "Transfer-Encoding: gzip"),
    "chunked not last": head(GET, HOST, "Transfer-Encoding: chunked, identity"),
    "chunked twice": head(GET, HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
    "chunked with something before it": head(GET, HOST, "Transfer-Encoding: \x0bchunked"),
    "chunked in 1.0": head("GET / HTTP/1.0", HOST, "Transfer-Encoding: chunked"),
    "no Host": head(GET),
    "two Hosts": head(GET, HOST, "Host: elsewhere"),
    "a whole URL": head("GET http://elsewhere/ HTTP/1.1", HOST),
    "CONNECT": head("CONNECT elsewhere:443 HTTP/1.1", HOST),
    "no version": head("GET /", HOST),
    "a blank too many": head("GET  / HTTP/1.1", HOST),
    "a blank first": head(" GET / HTTP/1.1", HOST),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "bytes": b"\xff\xfe\xfd",
}


def trickle(raw: bytes) -> None:
    """Read it byte by byte, as if each were a packet of its own."""
    buffer = bytearray()
    for byte in raw:
        buffer.append(byte)
        assert read_head(buffer, SETTINGS) is None


@pytest.mark.parametrize("raw", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_whatever_has_two_readings_is_refused(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        read_head(bytearray(raw), SETTINGS)
    assert refusal.value.status == 400


@pytest.mark.parametrize("raw", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_byte_by_byte_it_is_refused_as_well(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        trickle(raw)
    assert refusal.value.status == 400


def test_a_head_is_taken_off_once_complete() -> None:
    raw = head(GET, HOST, "X-Two: a", "x-two: b")
    buffer = bytearray()
    for byte in raw[:-1]:
        buffer.append(byte)
        assert read_head(buffer, SETTINGS) is None
    buffer += raw[-1:] + b"behind"
    found = read_head(buffer, SETTINGS)
    assert found is not None
    assert found[0].target == b"/"
    assert header(found[0], b"x-two") == ["a", "b"]
    assert buffer == b"behind"


def test_empty_lines_before_a_request_are_borne_but_not_for_ever() -> None:
    assert read_head(bytearray(b"\r\n" + head(GET, HOST)), SETTINGS) is not None
    with pytest.raises(Refusal):
        read_head(bytearray(b"\r\n" * 5 + head(GET, HOST)), SETTINGS)


@pytest.mark.parametrize("raw", [head(GET, HOST, "X: " + "y" * 400), b"GET /" + b"a" * 500])
def test_too_many_bytes_are_431(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        read_head(bytearray(raw), SETTINGS)
    assert (refusal.value.status, refusal.value.code) == (431, "too_large")


def test_the_limits_themselves_are_fine_and_one_more_is_not() -> None:
    lines = [GET, HOST, "X: "]
    lines[2] += "y" * (SETTINGS.head_bytes - len(head(*lines)))
    assert read_head(bytearray(head(*lines)), SETTINGS) is not None
    lines[2] += "y"
    with pytest.raises(Refusal) as refusal:
        read_head(bytearray(head(*lines)), SETTINGS)
    assert refusal.value.status == 431
    assert read_head(bytearray(head(GET, HOST, *["X: y"] * 4)), SETTINGS) is not None


def test_too_many_headers_are_431() -> None:
    with pytest.raises(Refusal) as refusal:
        read_head(bytearray(head(GET, HOST, *["X: y"] * 5)), SETTINGS)
    assert refusal.value.status == 431


@pytest.mark.parametrize(
    "raw",
    [b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", head("GET / HTTP/2.0", HOST)],
)
def test_other_versions_are_505(raw: bytes) -> None:
    with pytest.raises(Refusal) as refusal:
        read_head(bytearray(raw), SETTINGS)
    assert refusal.value.status == 505
    assert b"505 HTTP Version Not Supported" in refusal.value.answer()
