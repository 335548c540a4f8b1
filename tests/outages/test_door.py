"""Doors: what goes through, and where to."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.outages.door import HOST, Door


class Echo:
    """Answers every word with its name before it."""

    def __init__(self, name: bytes) -> None:
        self._name = name
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while word := client.recv(100):
                client.sendall(self._name + word)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def echoes() -> Iterator[tuple[Echo, Echo]]:
    both = Echo(b"a"), Echo(b"b")
    yield both
    for each in both:
        each.close()


@pytest.fixture
def door(echoes: tuple[Echo, Echo]) -> Iterator[Door]:
    door = Door(echoes[0].port)
    yield door
    door.close()


def enter(door: Door) -> socket.socket:
    return socket.create_connection((HOST, door.port), 20)


def say(inside: socket.socket, word: bytes) -> bytes:
    inside.sendall(word)
    return inside.recv(100)


def test_words_go_through(door: Door) -> None:
    with enter(door) as one, enter(door) as two:
        assert [say(one, b"1"), say(two, b"2"), say(one, b"3")] == [b"a1", b"a2", b"a3"]


def test_who_is_inside_is_shown_out_and_comes_to_another(
    door: Door, echoes: tuple[Echo, Echo]
) -> None:
    with enter(door) as inside:
        assert say(inside, b"1") == b"a1"
        door.lead_to(echoes[1].port)
        assert inside.recv(100) == b""
    with enter(door) as inside:
        assert say(inside, b"2") == b"b2"


def test_a_delay(door: Door) -> None:
    with enter(door) as inside:
        assert say(inside, b"1") == b"a1"
        door.delay_s = 0.1
        began = time.monotonic()
        assert say(inside, b"2") == b"a2"
        assert time.monotonic() - began >= 0.2, "on its way there, and on its way back"


def test_it_leads_nowhere(door: Door) -> None:
    nobody = socket.create_server((HOST, 0))
    port = nobody.getsockname()[1]
    nobody.close()
    door.lead_to(port)
    with enter(door) as inside:
        assert inside.recv(100) == b""


def test_who_is_inside_stays_when_others_are_led_elsewhere(
    door: Door, echoes: tuple[Echo, Echo]
) -> None:
    with enter(door) as before:
        assert say(before, b"1") == b"a1"
        door.lead_on(echoes[1].port)
        with enter(door) as after:
            assert [say(after, b"2"), say(before, b"3")] == [b"b2", b"a3"]


def test_a_held_one_lets_nothing_through_and_loses_nothing(door: Door) -> None:
    with enter(door) as inside:
        assert say(inside, b"1") == b"a1"
        door.hold()
        with enter(door) as newcomer:
            for each in (inside, newcomer):
                each.sendall(b"2")
                each.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    each.recv(100)
                each.settimeout(20)
            door.let_go()
            assert [inside.recv(100), newcomer.recv(100)] == [b"a2", b"a2"]


def test_a_shut_one_refuses_until_it_is_opened_again(door: Door) -> None:
    with enter(door) as inside:
        assert say(inside, b"1") == b"a1"
        door.shut()
        assert inside.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        enter(door)
    door.reopen_if_shut()
    door.reopen_if_shut()
    with enter(door) as inside:
        assert say(inside, b"2") == b"a2"


def test_a_closed_one(door: Door) -> None:
    with enter(door) as inside:
        assert say(inside, b"1") == b"a1"
        door.close()
        assert inside.recv(100) == b""
    with pytest.raises(OSError):  # noqa: PT011
        enter(door)


def test_who_comes_while_it_is_closed_is_shown_out(echoes: tuple[Echo, Echo]) -> None:
    door = Door(echoes[0].port)
    door.close()
    ours, theirs = socket.socketpair()
    with ours:
        door._serve(theirs)  # accepted before, and served only now
        assert ours.recv(1) == b""
        assert theirs.fileno() == -1
    assert door._pairs == set()
