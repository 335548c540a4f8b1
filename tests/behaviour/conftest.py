"""A server for each store, shared by all tests of a process, and a world for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from pushlane import testing
from tests.behaviour.places import places_of
from tests.behaviour.worlds import SHELLS, STORES, World

_numbers = count(1)


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, testing.server]]:
    running: dict[str, testing.server] = {}
    yield running
    for server in running.values():
        server.__exit__(None, None, None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        places = places_of(metafunc.function.__name__)
        metafunc.parametrize("world", places, indirect=True, ids=["-".join(p) for p in places])


@pytest.fixture
def world(request: pytest.FixtureRequest, servers: dict[str, testing.server]) -> World:
    shell, transport, store = request.param
    if store not in servers:
        server = STORES[store]("shared")
        server.start()
        servers[store] = server
    return World(SHELLS[shell], transport, servers[store], f"q-{next(_numbers)}")


@pytest.fixture
def own_world(world: World, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world whose server the test may harm."""
    server = STORES[request.node.callspec.params["world"][2]]("own")
    with server:
        yield World(world.shell, world.transport, server, world.queue)
