"""Floods: whatever one client sends, its neighbour is served as before.

Each figure is held against one of the same moment, from the same server before the flood, and a
loaded machine gets several tries: a stall that the flood causes is there each time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.attacks.flood import KINDS
from tests.attacks.victim import Neighbour, make_key
from tests.gateway.process import serving

TRIES = 5
LEAST_S = 0.020


@contextmanager
def flooding(url: str, kind: str, connections: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.attacks.flood", url, kind, str(connections)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attack:
        assert attack.stdout is not None
        try:
            assert attack.stdout.readline() == b"flooding\n"
            yield
            assert attack.poll() is None, "the attack failed"
        finally:
            attack.kill()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("flooded")) as process:
        yield process.url


@pytest.mark.parametrize("connections", [1, 50])
@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbour_hardly_notices(url: str, kind: str, connections: int) -> None:
    assert_hardly_notices(Neighbour(url), url, kind, connections)


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server that asks for keys, and one."""
    folder = tmp_path_factory.mktemp("keyed")
    key = make_key(folder)
    with serving(folder) as process:
        yield process.url, key


@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_one_with_a_key(keyed: tuple[str, str], kind: str) -> None:
    """To the attackers nobody says welcome."""
    url, key = keyed
    assert_hardly_notices(Neighbour(url, key), url, kind, 50)


def assert_hardly_notices(neighbour: Neighbour, url: str, kind: str, connections: int) -> None:
    found = []
    for _ in range(TRIES):
        quiet = neighbour.p99()
        with flooding(url, kind, connections):
            flooded = neighbour.p99()
        found.append(f"{quiet * 1000:.1f} -> {flooded * 1000:.1f} ms")
        if flooded < max(3 * quiet, LEAST_S):
            break
    else:
        pytest.fail(f"p99 before and in the flood: {found}")
    neighbour.close()
    print(kind, connections, found)
