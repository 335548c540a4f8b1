"""A Redis that a test may kill, pause and flush."""

from collections.abc import AsyncIterator, Iterator

import pytest

from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.redis.url import RedisLimits
from tools.services.redis import Redis, running_redis

QUICK = RedisLimits(connect_ms=300, answer_ms=300)


@pytest.fixture
def server() -> Iterator[Redis]:
    with running_redis() as server:
        yield server


@pytest.fixture
async def leases(server: Redis) -> AsyncIterator[RedisLeases]:
    """A cache on it, with time-outs that a test can wait for."""
    leases = RedisLeases(server.url, QUICK)
    yield leases
    await leases.close()
