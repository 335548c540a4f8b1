"""A server for each store, shared by all tests of a process, and a world for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product

import pytest

from pushlane import testing
from tests.behaviour.worlds import SHELLS, STORES, TRANSPORTS, World

_PLACES = list(product(SHELLS, TRANSPORTS, STORES))
_numbers = count(1)


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, testing.server]]:
    running: dict[str, testing.server] = {}
    yield running
    for server in running.values():
        server.__exit__(None, None, None)


@pytest.fixture(params=_PLACES, ids=["-".join(place) for place in _PLACES])
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
