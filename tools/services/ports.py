"""Ports that are free."""

import random
import socket
from collections.abc import Sequence

FIRST, LAST = 20_000, 32_000
"""Below those that the kernel gives to outgoing connections: it takes none of them meanwhile."""
TRIES = 1_000

_random = random.SystemRandom()
"""Tests seed the shared generator: workers with the same seed would choose the same ports."""


def free_port(hosts: Sequence[str] = ("127.0.0.1",)) -> int:
    """A port that is free on each of the addresses."""
    for _ in range(TRIES):
        port = _random.randint(FIRST, LAST)
        if all(_is_free(host, port) for host in hosts):
            return port
    raise OSError(f"no port between {FIRST} and {LAST} is free")


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    found: dict[int, None] = {}
    while len(found) < count:
        found[free_port()] = None
    return list(found)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def answers(host: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True
