"""Opening the sides of a copy by their URLs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.copy.errors import NotCopyable
from pushlane_storage.copy.sides import Source, Target
from pushlane_storage.url import BadStoreUrl, parse_cassandra, shown


def place_of(url: str) -> Path | Address:
    """A folder, or a keyspace. A path without a scheme is a folder."""
    scheme, colon, rest = url.partition(":")
    if not colon or not re.fullmatch("[a-z][a-z0-9+.-]*", scheme):
        scheme, rest = "sqlite", url
    if scheme == "memory":
        raise NotCopyable(
            "a store in memory ends with its server, and can't be copied: give sqlite:DIR or"
            " cassandra://HOST/KEYSPACE"
        )
    if scheme == "sqlite":
        if not rest or "\0" in rest:
            raise NotCopyable(f"{url!r} names no folder: give one, such as sqlite:./pushlane-data")
        return Path(rest)
    if scheme != "cassandra":
        raise NotCopyable(
            f"{shown(url)} is not a store: give sqlite:DIR or cassandra://HOST/KEYSPACE"
        )
    try:
        return parse_cassandra(url)
    except BadStoreUrl as error:
        raise NotCopyable(str(error)) from error


def check_different(source: str, target: str) -> None:
    """Two places, as far as their names tell."""
    one, other = place_of(source), place_of(target)
    if isinstance(one, Path) and isinstance(other, Path):
        same = one.resolve() == other.resolve()
    else:
        same = one == other
    if same:
        raise NotCopyable(f"source and target are the same: {shown(source)}")


@asynccontextmanager
async def open_source(url: str, limits: Limits) -> AsyncIterator[Source]:
    place = place_of(url)
    if isinstance(place, Path):
        from pushlane_storage.copy import sqlite_source

        async with sqlite_source.open_source(f"sqlite:{place}", place) as sqlite:
            yield sqlite
    else:
        from pushlane_storage.copy import cassandra_source

        async with cassandra_source.open_source(shown(url), place, limits) as cassandra:
            yield cassandra


@asynccontextmanager
async def open_target(url: str, limits: Limits) -> AsyncIterator[Target]:
    place = place_of(url)
    if isinstance(place, Path):
        from pushlane_storage.copy import sqlite_target

        async with sqlite_target.open_target(f"sqlite:{place}", place) as sqlite:
            yield sqlite
    else:
        from pushlane_storage.copy import cassandra_target

        async with cassandra_target.open_target(shown(url), place, limits) as cassandra:
            yield cassandra
