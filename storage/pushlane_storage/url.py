"""Store URLs: `memory:`, `sqlite:DIR` and `cassandra://HOST/KEYSPACE`."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple

from pushlane_storage.cassandra.address import Address, BadAddress, parse
from pushlane_storage.cassandra.limits import Limits as CassandraLimits
from pushlane_storage.errors import OpenError
from pushlane_storage.interface import Backend
from pushlane_storage.memory import MemoryStore
from pushlane_storage.sqlite.limits import Limits as SqliteLimits
from pushlane_storage.sqlite.store import SqliteStore


class BadStoreUrl(OpenError):
    """A store URL that can't be understood."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"bad store URL {shown(url)!r}: {reason}; known are {', '.join(FORMS)}")
        self.url = url


FORMS = ("memory:", "sqlite:DIR", "cassandra://HOST/KEYSPACE")


def shown(url: str) -> str:
    """A URL for others to read: without the password."""
    return re.sub(r"(//[^:@/]*):.*@", r"\1:***@", url)


class StoreLimits(NamedTuple):
    """The bounds of whichever store it is; None: its own defaults."""

    sqlite: SqliteLimits | None = None
    cassandra: CassandraLimits | None = None


DEFAULT_LIMITS = StoreLimits()
Opener = Callable[[str, str, StoreLimits], AbstractAsyncContextManager[Backend]]


@asynccontextmanager
async def open_store(url: str, limits: StoreLimits = DEFAULT_LIMITS) -> AsyncIterator[Backend]:
    """The store that a URL names; `OpenError` says why it can't be.

    When the block ends it finishes what is under way, and lets go of files, locks and connections.
    """
    async with _opener(url)(url, url.partition(":")[2], limits) as backend:
        yield backend


def probe_store(url: str, limits: StoreLimits = DEFAULT_LIMITS) -> list[tuple[str, str, str]]:
    """A look from outside at a store that others serve: (what, `ok` or so, found). It blocks.

    Nothing for those that a process has to itself; `BadStoreUrl`. Changes nothing.
    """
    _opener(url)
    if not url.startswith("cassandra:"):
        return []
    address = parse_cassandra(url)
    from pushlane_storage.cassandra.probe import probe

    return [*probe(address, limits.cassandra)]


@asynccontextmanager
async def _memory(url: str, rest: str, _: StoreLimits) -> AsyncIterator[Backend]:
    if rest:
        raise BadStoreUrl(url, "nothing comes after memory:")
    yield MemoryStore()


@asynccontextmanager
async def _sqlite(url: str, rest: str, limits: StoreLimits) -> AsyncIterator[Backend]:
    if not rest or "\0" in rest:
        raise BadStoreUrl(url, "a folder comes after sqlite:")
    store = await SqliteStore.open(rest, limits.sqlite)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def _cassandra(url: str, _: str, limits: StoreLimits) -> AsyncIterator[Backend]:
    address = parse_cassandra(url)
    from pushlane_storage.cassandra.store import CassandraStore

    async with CassandraStore.open(address, limits.cassandra) as store:
        yield store


def parse_cassandra(url: str) -> Address:
    """Where a replicated store is; `BadStoreUrl` when that can't be understood."""
    scheme, _, rest = url.partition(":")
    if scheme != "cassandra":
        raise BadStoreUrl(url, "only cassandra://HOST/KEYSPACE can be migrated")
    try:
        return parse(rest)
    except BadAddress as error:
        raise BadStoreUrl(url, str(error)) from None


def _opener(url: str) -> Opener:
    scheme, colon, _ = url.partition(":")
    opener = _OPENERS.get(scheme) if colon else None
    if opener is None:
        raise BadStoreUrl(url, f"unknown scheme {scheme!r}" if colon else "it has no scheme")
    return opener


_OPENERS: dict[str, Opener] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "cassandra": _cassandra,
}
