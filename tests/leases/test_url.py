"""URLs of lease caches; `redis/test_url.py` has what comes after redis://."""

import subprocess
import sys

import pytest

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.memory import InstantLeases
from pushlane_leases.redis.cache import RedisLeases
from pushlane_leases.url import BadLeaseUrl, open_leases, probe_leases
from tools.services.ports import free_port
from tools.services.shared import Service


async def test_each_scheme() -> None:
    assert isinstance(open_leases("memory:"), InstantLeases)
    for url in ("redis://example.org", "rediss://example.org"):
        leases = open_leases(url)
        assert isinstance(leases, RedisLeases)
        await leases.close()


@pytest.mark.parametrize("url", ["", "memory", "memory:x", "redis:x", "mongo://x", "redis"])
def test_nothing_else(url: str) -> None:
    for use in (open_leases, probe_leases):
        with pytest.raises(BadLeaseUrl, match=f"bad lease URL '{url}': known are memory:, redis:"):
            use(url)


def test_a_look_from_outside(redis_service: Service) -> None:
    found = probe_leases(redis_service.redis_url)
    assert found is not None
    assert found.text.startswith(redis_service.redis_url)
    assert probe_leases("memory:") is None
    with pytest.raises(LeaseCacheError, match=r"redis://127\.0\.0\.1:\d+: ConnectionError"):
        probe_leases(f"redis://:secret@127.0.0.1:{free_port()}")


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    for use in (open_leases, probe_leases):
        with pytest.raises(BadLeaseUrl, match=r"pip install 'pushlane-server\[cluster\]'"):
            use("redis://:secret@example.org")


def test_who_has_no_redis_does_not_import_it() -> None:
    code = (
        "import sys, pushlane_leases.url as url, pushlane_gateway.server; "
        "url.open_leases('memory:'); assert 'redis' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
