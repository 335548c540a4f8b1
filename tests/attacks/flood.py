"""A program that floods a server: `python -m tests.attacks.flood URL KIND CONNECTIONS`.

Each connection sends a megabyte a second, or a whole frame at once where the frame is the attack.

It says `flooding` when all connections are there, and goes on until it is killed. What the server
closes comes back after a moment, as an attacker would.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable

from tests.attacks import raw

CHUNK = 64 * 1024
RATE = 1_000_000
WHOLE = {"hellos"}
AWAY_S = 0.5

_held = b",".join(b'"p.%d"' % number for number in range(1, 400_000))
_huge = b'{"op":"hello","token":"x","resume":{"session":"s","held":{"1":[%b]}}}' % _held[:3_900_000]

HELLO = raw.frame(raw.TEXT, raw.HELLO)

Open = Callable[[str], socket.socket]


def opened(*frames: bytes) -> Open:
    """A WebSocket that begins with these."""
    return lambda url: raw.websocket(url, *frames)


KINDS: dict[str, tuple[Open, bytes]] = {
    "pings": (opened(HELLO), raw.frame(raw.PING) * (CHUNK // 6)),
    "pings before hello": (opened(), raw.frame(raw.PING) * (CHUNK // 6)),
    "continuations": (
        opened(HELLO, raw.frame(raw.TEXT, fin=False)),
        raw.frame(raw.CONTINUATION, fin=False) * (CHUNK // 6),
    ),
    "tiny fragments": (
        opened(HELLO, raw.frame(raw.TEXT, b"x", fin=False)),
        raw.frame(raw.CONTINUATION, b"x", fin=False) * (CHUNK // 7),
    ),
    "empty messages": (opened(), raw.frame(raw.TEXT) * (CHUNK // 6)),
    "hellos": (opened(), raw.frame(raw.TEXT, _huge)),
    "tiny chunks": (lambda url: raw.post_chunks(url, "/v1/pipe"), b"1\r\nx\r\n" * (CHUNK // 6)),
}
"""How a connection is opened, and what is sent again and again."""


class Attacker:
    def __init__(self, url: str, kind: str) -> None:
        self._url = url
        self._open, self._chunk = KINDS[kind]
        self._sock: socket.socket | None = None
        self._back_at = 0.0
        self._left = b""

    def open(self) -> None:
        self._sock = self._open(self._url)
        self._sock.setblocking(False)
        self._left = self._chunk

    def push(self) -> int:
        """Send what goes; how many bytes that was."""
        if self._sock is None:
            if time.monotonic() >= self._back_at:
                self.open()
            return 0
        try:
            sent = self._sock.send(self._left[:CHUNK])
        except BlockingIOError:
            return 0
        except OSError:
            self._sock.close()
            self._sock, self._back_at = None, time.monotonic() + AWAY_S
            return 0
        self._left = self._left[sent:] or self._chunk
        return sent


def main(url: str, kind: str, connections: int) -> None:
    attackers = [Attacker(url, kind) for _ in range(connections)]
    for attacker in attackers:
        attacker.open()
    print("flooding", flush=True)
    rate = connections * RATE * (10 if kind in WHOLE else 1)
    since, sent = time.monotonic(), 0
    while True:
        for attacker in attackers:
            sent += attacker.push()
        ahead = since + sent / rate - time.monotonic()
        time.sleep(max(0.002, ahead))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
