import pytest

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.probe import judge, probe
from pushlane_leases.url import BadLeaseUrl
from tools.services.redis import Redis

FINE = {"redis_version": "7.0.15", "maxmemory": "0", "maxmemory_policy": "noeviction"}


def test_a_redis_that_is_there(server: Redis) -> None:
    text, fault = probe(server.url)
    assert text.startswith(f"{server.url}, Redis ")
    assert text.endswith(" ms a round trip")
    assert fault is None
    with server.client() as client:
        assert client.dbsize() == 0
        client.config_set("maxmemory", "100mb")
    assert probe(server.url).fault == "full, it refuses to write: set maxmemory-policy volatile-ttl"


def test_nobody_there(server: Redis) -> None:
    server.kill()
    with pytest.raises(LeaseCacheError, match="refused"):
        probe(server.url)
    with pytest.raises(BadLeaseUrl):
        probe("redis://")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, None),
        ({"redis_version": "6.2.0"}, None),
        ({"redis_version": "6.0.16"}, "it is too old: 6.2 is the oldest that works"),
        ({"maxmemory": "1", "maxmemory_policy": "volatile-ttl"}, None),
    ],
)
def test_what_it_thinks_of_it(changed: dict[str, str], fault: str | None) -> None:
    assert judge("redis://x", FINE | changed, 1.0).fault == fault
