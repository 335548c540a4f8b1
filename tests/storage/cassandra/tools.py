"""Stores on real Cassandra nodes, for tests.

Connecting and making tables takes seconds, so a process does so once for each kind of cluster, in a
keyspace of its own: others may own slots in theirs.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import msgspec
import trio

from pushlane_storage.cassandra.address import Address, parse
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.driver_ring import DriverRing
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from tests.held import held
from tests.services import service

NODE = "cassandra"
RING = "cassandra-ring"
SURE = Limits(request_ms=60_000, change_ms=60_000, connect_ms=60_000, close_ms=60_000)
"""The machines that run these tests are slow at times."""

_open = ExitStack()
_connections: dict[str, Connection] = {}
_lock = threading.Lock()


def address_of(kind: str, keyspace: str = f"tests_{os.getpid()}") -> Address:
    return parse(service(kind).cassandra_url(keyspace).removeprefix("cassandra:"))


def connection_to(kind: str) -> Connection:
    """The connection that this process has for all its tests."""
    with _lock:
        if kind not in _connections:
            made = Connection.connect(address_of(kind), SURE)
            _open.callback(made.close)
            _connections[kind] = made
        return _connections[kind]


atexit.register(_open.close)


async def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for what threads and servers do."""
    for _ in range(int(seconds * 100)):
        if condition():
            return
        await trio.sleep(0.01)
    raise AssertionError("it did not come to pass")


@asynccontextmanager
async def connected_store(
    kind: str = NODE, limits: Limits = SURE, **options: Any
) -> AsyncIterator[CassandraStore]:
    connection = await trio.to_thread.run_sync(connection_to, kind)
    async with CassandraStore.open(
        connection.address, limits, connection=connection, **options
    ) as store:
        yield store


async def open_store(kind: str = NODE, limits: Limits = SURE, **options: Any) -> CassandraStore:
    """To be let go."""
    return await held(connected_store(kind, limits, **options))


async def open_ring(kind: str = NODE, limits: Limits = SURE) -> DriverRing:
    """A bare ring; the tables are there when a store was opened before."""
    connection = await trio.to_thread.run_sync(connection_to, kind)
    return DriverRing(connection, limits, owns=False)


def quick(**changes: int) -> Limits:
    """Who is alive shows at once, for a moment; who is dead, after longer than any slow moment."""
    brief = msgspec.structs.replace(SURE, beat_ms=100, judge_ms=8_000, poll_ms=50, alive_ms=1)
    return msgspec.structs.replace(brief, **changes)
