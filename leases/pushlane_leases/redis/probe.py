"""A look at a Redis from outside the server: for `pushlane doctor`."""

from __future__ import annotations

import time

from pushlane_leases.interface import LeaseCacheError
from pushlane_leases.redis.connection import Connection
from pushlane_leases.redis.url import RedisLimits, make_pool, shown
from pushlane_leases.url import Probe

OLDEST = (6, 2)
"""The scripts use ZRANDMEMBER."""


def probe(url: str) -> Probe:
    """Changes nothing. `BadLeaseUrl` when it is one, `LeaseCacheError` when nobody answers."""
    connection = Connection(make_pool(url, RedisLimits()))
    try:
        connection.exchange([("PING",)])
        started = time.perf_counter()
        [server, memory] = connection.exchange([("INFO", "server"), ("INFO", "memory")])
        took = (time.perf_counter() - started) * 1000
    except LeaseCacheError as error:
        raise LeaseCacheError(f"{shown(url)}: {error}") from error
    finally:
        connection.close()
    if isinstance(server, Exception) or isinstance(memory, Exception):
        raise LeaseCacheError(f"{shown(url)} doesn't say what it is")
    return judge(shown(url), {**_fields(server), **_fields(memory)}, took)


def judge(place: str, info: dict[str, str], took: float) -> Probe:
    version = info["redis_version"]
    text = f"{place}, Redis {version}, {took:.1f} ms a round trip"
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Probe(text, f"it is too old: {oldest} is the oldest that works")
    if info["maxmemory"] != "0" and info["maxmemory_policy"] == "noeviction":
        return Probe(text, "full, it refuses to write: set maxmemory-policy volatile-ttl")
    return Probe(text, None)


def _fields(info: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in info.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}
