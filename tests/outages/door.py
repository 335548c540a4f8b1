"""A door: a port that stays while what stands behind it changes, hangs or gets slow.

Clients know one address; behind it is the gateway that serves at the moment. Redis has a door as
well, with a delay when it is to be slow. A door that is held is a network that is cut: nothing is
lost, nothing gets through, and nobody is told. A door that is shut is a port nobody listens on.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Protocol

HOST = "127.0.0.1"
CHUNK = 1 << 16

Pair = tuple[socket.socket, socket.socket]


class Place(Protocol):
    """Where a door is."""

    address: str

    @property
    def within(self) -> Sequence[str]:
        """What to put before a command that is to run there."""
        ...

    def inside(self) -> AbstractContextManager[None]:
        """The sockets that a thread makes in the block are made there."""
        ...


class Here:
    address = HOST
    within: Sequence[str] = ()

    def inside(self) -> AbstractContextManager[None]:
        return nullcontext()


class Door:
    def __init__(self, port: int = 0, place: Place | None = None) -> None:
        """`port` is what it leads to."""
        self._leads_to = HOST, port
        self.place = place or Here()
        self._listener = self._opened(0)
        self.port = int(self._listener.getsockname()[1])
        self._pairs: set[Pair] = set()
        self._lock = threading.Lock()
        self._is_over = False
        self._free = threading.Event()
        self._free.set()
        self.delay_s = 0.0
        """How long everything waits here, on its way there and on its way back."""
        self._listen()

    @property
    def url(self) -> str:
        return f"http://{self.place.address}:{self.port}"

    def lead_to(self, port: int, host: str = HOST) -> None:
        """To somebody else from now on; who is inside is shown out."""
        self._leads_to = host, port
        self.cut()

    def lead_on(self, port: int) -> None:
        """Whoever comes from now on; who is inside stays."""
        self._leads_to = HOST, port

    def hold(self) -> None:
        """Let nothing through, and tell nobody, until `let_go`."""
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    def shut(self) -> None:
        """Refuse whoever comes, until `reopen_if_shut`; who is inside is shown out."""
        _close((self._listener,))
        self.cut()

    def reopen_if_shut(self) -> None:
        if self._listener.fileno() != -1:
            return
        self._listener = self._opened(self.port)
        self._listen()

    def leads_to(self, port: int, host: str = HOST) -> bool:
        return self._leads_to == (host, port)

    def cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _close(pair)

    def close(self) -> None:
        _close((self._listener,))
        with self._lock:
            self._is_over = True
        self.let_go()
        self.cut()

    def _opened(self, port: int) -> socket.socket:
        with self.place.inside():
            return socket.create_server((self.place.address, port))

    def _listen(self) -> None:
        _in_thread(partial(self._accept, self._listener))

    def _accept(self, listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            _in_thread(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        self._free.wait()
        target = self._leads_to
        try:
            with self.place.inside():
                server = socket.create_connection(target)
        except OSError:
            client.close()
            return
        pair = (client, server)
        try:
            with self._lock:
                self._pairs.add(pair)
                if self._is_over or target != self._leads_to:  # while it came
                    return
            for side in pair:
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _in_thread(lambda: self._pump(pair, server, client))
            self._pump(pair, client, server)
        finally:
            self._part(pair)

    def _pump(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(CHUNK):
                if self.delay_s:
                    time.sleep(self.delay_s)
                self._free.wait()
                target.sendall(data)
        finally:
            self._part(pair)

    def _part(self, pair: Pair) -> None:
        with self._lock:
            self._pairs.discard(pair)
        _close(pair)


def _close(sockets: tuple[socket.socket, ...]) -> None:
    """Shut down first: whoever waits in a call on it is to notice."""
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


def _in_thread(function: Callable[[], None]) -> None:
    def run() -> None:
        with suppress(OSError):
            function()

    threading.Thread(target=run, daemon=True).start()
