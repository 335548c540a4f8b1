"""A client that speaks raw bytes, blocking: it can do what no library would."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from urllib.parse import urlsplit

TIMEOUT = 20
PING, CONTINUATION, TEXT, BINARY = 9, 0, 1, 2
KEY = b"\0\0\0\0"
"""A mask that changes nothing."""

HELLO = b'{"op":"hello"}'


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    return frame_head(opcode, len(payload), fin=fin) + payload


def frame_head(opcode: int, size: int, *, fin: bool = True) -> bytes:
    """The beginning of a frame of this size."""
    first = (0x80 if fin else 0) | opcode
    if size < 126:
        return bytes((first, 0x80 | size)) + KEY
    if size < 65536:
        return struct.pack("!BBH", first, 0xFE, size) + KEY
    return struct.pack("!BBQ", first, 0xFF, size) + KEY


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return socket.create_connection((parts.hostname, parts.port), TIMEOUT)


def websocket(url: str, *frames: bytes, encoding: str = "json") -> socket.socket:
    """A WebSocket, with these frames sent behind the handshake, which was answered."""
    sock = connect(url)
    sock.sendall(
        b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: pushlane.v1.%b\r\n\r\n" % encoding.encode()
    )
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += _some(sock)
    assert answer.startswith(b"HTTP/1.1 101 "), answer
    for one in frames:
        send(sock, one)
    return sock


def post(url: str, path: str, size: int, body: bytes = b"", *headers: bytes) -> socket.socket:
    """A request with a body of this size, of which this much is sent."""
    return _post(url, path, body, b"Content-Length: %d" % size, *headers)


def post_chunks(url: str, path: str, body: bytes = b"") -> socket.socket:
    """A request with a body in chunks, of which this much is sent."""
    return _post(url, path, body, b"Transfer-Encoding: chunked")


def _post(url: str, path: str, body: bytes, *headers: bytes) -> socket.socket:
    sock = connect(url)
    lines = [
        b"POST %b HTTP/1.1" % path.encode(), b"Host: 127.0.0.1", b"Content-Type: application/json",
        *headers, b"", b"",
    ]  # fmt: skip
    send(sock, b"\r\n".join(lines) + body)
    return sock


def send(sock: socket.socket, data: bytes) -> bool:
    """False: the server has closed, or takes nothing more."""
    with suppress(OSError):
        sock.sendall(data)
        return True
    return False


def hear(sock: socket.socket) -> bytes:
    """The payload of the next frame, which is whole and not larger than 64 KiB."""
    head = _exactly(sock, 2)
    size = head[1]
    if size == 126:
        size = int.from_bytes(_exactly(sock, 2), "big")
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += _some(sock, size - len(data))
    return data


def _some(sock: socket.socket, most: int = 1) -> bytes:
    data = sock.recv(most)
    assert data, "the server closed"
    return data
