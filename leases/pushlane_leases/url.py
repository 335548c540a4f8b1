"""Lease URLs: `memory:`, `redis://HOST:PORT/DB` and `rediss://…`.

redis-py comes with the extra `cluster`, and takes a third of a second and 25 MB to import: only who
uses it pays.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from pushlane_leases.interface import LeaseCache
from pushlane_leases.memory import InstantLeases

MEMORY = "memory:"
FORMS = (MEMORY, "redis://HOST:PORT/DB", "rediss://HOST:PORT/DB")


class BadLeaseUrl(ValueError):
    """A lease URL that can't be understood. The message shows no password."""


class RedisMissing(BadLeaseUrl):
    """A URL that can't be used here: the extra `cluster` is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "leases in Redis need the Redis client: pip install 'pushlane-server[cluster]'"
            " (in a checkout: make setup)"
        )


class Probe(NamedTuple):
    """What was found of a cache; `fault` is what to do about it, if anything."""

    text: str
    fault: str | None


def open_leases(url: str) -> LeaseCache:
    """The cache that a URL names, inside trio. It need not be there; `BadLeaseUrl`."""
    if url == MEMORY:
        return InstantLeases()
    _check(url)
    from pushlane_leases.redis.cache import RedisLeases

    return RedisLeases(url)


def probe_leases(url: str) -> Probe | None:
    """A look at a cache from outside; None when it would be in the server's own memory.

    `BadLeaseUrl`, or `LeaseCacheError` when nobody answers. Changes nothing.
    """
    if url == MEMORY:
        return None
    _check(url)
    from pushlane_leases.redis.probe import probe

    return probe(url)


def _check(url: str) -> None:
    if not url.startswith(("redis://", "rediss://")):
        raise BadLeaseUrl(f"bad lease URL {url!r}: known are {', '.join(FORMS)}")
    if find_spec("redis") is None:
        raise RedisMissing
