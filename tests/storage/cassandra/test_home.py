"""Data centres: whose slots a process may take, and how the keyspace's replication decides it."""

from __future__ import annotations

import msgspec
import pytest
import trio

from pushlane_storage.cassandra.home import Home, find_home
from pushlane_storage.cassandra.store import CassandraStore
from tests.held import held, let_go
from tests.storage.cassandra.tools import NODE, connection_to, open_store, quick
from tests.storage.samples import claimed, messages


@pytest.mark.parametrize(
    ("home", "dc", "free", "refused"),
    [
        (Home(), "", False, None),
        (Home("east"), "east", False, None),
        (Home("east", "east"), "", False, None),
        (Home("", "east"), "east", False, None),
        (Home("east"), "", True, "belongs to data centre (none)"),
        (Home(), "east", True, "belongs to data centre east"),
        (Home("east"), "west", True, "belongs to data centre west"),
        (Home("east", "west"), "", True, "belongs to data centre (none)"),
        (Home("east", adopts=True), "", True, None),
        (Home("east", adopts=True), "", False, "was not given back"),
        (Home("east", adopts=True), "west", True, "belongs to data centre west"),
    ],
)
def test_whose_slots_may_be_taken(home: Home, dc: str, free: bool, refused: str | None) -> None:
    why = home.refusal(dc, is_free=free)
    assert why is None if refused is None else why is not None and why.startswith(refused)


async def test_a_server_may_name_its_data_centre_later() -> None:
    """On a real node: the keyspace has replicas in one data centre only."""
    store = await open_store(NODE, quick())
    owner = await claimed(store)
    segment = await owner.append(0, messages(2))
    connection = await trio.to_thread.run_sync(connection_to, NODE)
    [host] = connection.cluster.metadata.all_hosts()
    assert await trio.to_thread.run_sync(find_home, connection) == Home("", host.datacenter)
    await let_go(store)

    named = msgspec.structs.replace(connection.address, dc=host.datacenter)
    store = await held(CassandraStore.open(named, quick()))
    again = await claimed(store, owner.shard.queue_id)
    assert again.epoch == owner.epoch + 1
    assert await store.segments(owner.shard, segment.bucket, 0, 9) == [segment]
    await again.append(0, messages(1))
    await let_go(store)
