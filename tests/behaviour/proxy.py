"""A proxy between client and server that does what some networks do: refuses, loses, cuts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Forwards to a port of this machine, all but upgrades: those get `answer`, and are cut.

    With an answer of None it swallows them. With `cuts_after` it cuts connections, whatever they
    carry, when they are that many seconds old.
    """

    def __init__(
        self,
        port: int,
        answer: bytes | None = None,
        *,
        lets_upgrades: bool = False,
        cuts_after: float | None = None,
    ) -> None:
        self._target = ("127.0.0.1", port)
        self._answer = answer
        self.lets_upgrades = lets_upgrades
        self._cuts_after = cuts_after
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._is_over = False
        self._lock = threading.Lock()
        self.upgrades = 0
        self.losses = 0
        """How many of the server's next words are to be lost, each with its connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        _in_thread(self._accept)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._is_over = True
        for found in (self._listener, *self._open):
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()

    def _keep(self, found: socket.socket) -> bool:
        """Close it with the others; at once, when that was done while it came."""
        with self._lock:
            if not self._is_over:
                self._open.append(found)
                return True
        found.close()
        return False

    def cut(self) -> None:
        """Cut all connections that there are."""
        for found in list(self._open):
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._keep(client):
                _in_thread(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        head = client.recv(65536)
        if not head:
            return  # it went, or we did
        if b"upgrade: websocket" in head.lower() and not self.lets_upgrades:
            self.upgrades += 1
            if self._answer is not None:
                client.sendall(self._answer)
                client.close()
            return
        server = socket.create_connection(self._target)
        if not self._keep(server):
            return
        server.sendall(head)
        if self._cuts_after is not None:
            _in_thread(lambda: self._cut_later(client))
        _in_thread(lambda: self._pump(server, client, can_lose=True))
        self._pump(client, server)

    def _cut_later(self, client: socket.socket) -> None:
        assert self._cuts_after is not None
        time.sleep(self._cuts_after)
        client.shutdown(socket.SHUT_RDWR)  # raises when it is gone already
        self.cuts += 1

    def _pump(
        self, source: socket.socket, target: socket.socket, *, can_lose: bool = False
    ) -> None:
        try:
            while data := source.recv(65536):
                if can_lose and self.losses:
                    self.losses -= 1
                    return
                target.sendall(data)
        finally:
            for found in (source, target):
                with suppress(OSError):
                    found.shutdown(socket.SHUT_RDWR)


def _in_thread(function: Callable[[], None]) -> None:
    def run() -> None:
        with suppress(OSError):
            function()

    threading.Thread(target=run, daemon=True).start()
