"""One ring and one Redis for all tests in here. Whoever breaks them fixes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tools.services.cassandra import Ring, running_cassandra
from tools.services.redis import Redis, running_redis


@pytest.fixture(scope="session")
def whole_ring() -> Iterator[Ring]:
    with running_cassandra(3) as ring:
        yield ring


@pytest.fixture
def ring(whole_ring: Ring) -> Iterator[Ring]:
    """To be broken: afterwards all nodes are there again, whatever a test left of them."""
    yield whole_ring
    for node in whole_ring.nodes:
        if not node.process.running:
            node.start(wait=False)
        node.resume()
    whole_ring.wait()


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    with running_redis() as redis:
        yield redis
