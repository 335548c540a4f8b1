"""The schema of a keyspace: made, made by several at once, brought up to date, refused."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest
import trio
from trio.testing import MockClock

from pushlane import cli
from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.connection import Connection
from pushlane_storage.cassandra.decisions import Decisions
from pushlane_storage.cassandra.ring import Ring, Row, Table
from pushlane_storage.cassandra.schema import STEPS, Migration, create_keyspace, migrate
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.errors import (
    KeyspaceMissing,
    KeyspaceNewer,
    KeyspaceUnusable,
    Unreachable,
)
from pushlane_storage.interface import StoreRefused
from pushlane_storage.queue import QueueConfig
from tests.held import held, let_go
from tests.repo import ROOT
from tests.services import service
from tests.storage.cassandra.tools import NODE, RING, SURE, address_of, connection_to
from tests.storage.samples import claimed, messages, unique

Fresh = Callable[[str], Address]


@pytest.fixture
async def fresh() -> AsyncIterator[Fresh]:
    """An address with a keyspace that is not there yet."""
    made: list[tuple[Connection, str]] = []

    def make(kind: str) -> Address:
        keyspace = unique("k").replace("-", "_")
        made.append((connection_to(kind), keyspace))
        return address_of(kind, keyspace)

    yield make
    for connection, keyspace in made:
        await trio.to_thread.run_sync(
            connection.execute, f"DROP KEYSPACE IF EXISTS {keyspace}", 60.0
        )


def tables_of(keyspace: str, kind: str = NODE) -> list[str]:
    query = f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
    return [row["table_name"] for row in connection_to(kind).execute(query)]


def option_of(keyspace: str, table: str, option: str) -> object:
    query = f"SELECT {option} FROM system_schema.tables WHERE keyspace_name = '{keyspace}'"
    [row] = connection_to(NODE).execute(f"{query} AND table_name = '{table}'")
    return row[option]


KNOWN = len(STEPS)
PROMPT = "100ms"
"""As Cassandra writes it."""


def more_columns(keyspace: str, salt: UUID) -> list[str]:
    return [f"ALTER TABLE {keyspace}.nodes ADD IF NOT EXISTS colour text"]


async def test_an_empty_keyspace_is_made_and_served(fresh: Fresh) -> None:
    address = fresh(NODE)
    store = await held(CassandraStore.open(address, SURE))
    owner = await claimed(store)
    segment = await owner.append(0, messages(2))
    await let_go(store)
    assert len(tables_of(address.keyspace)) == 16
    assert option_of(address.keyspace, "nodes", "read_repair") == "BLOCKING"
    for table in tables_of(address.keyspace):
        assert option_of(address.keyspace, table, "speculative_retry") == PROMPT, table
    off = msgspec.structs.replace(address, migrate=False)
    store = await held(CassandraStore.open(off, SURE))
    assert await store.segments(owner.shard, segment.bucket, 0, 9) == [segment]
    await let_go(store)


async def test_a_keyspace_that_must_be_there(fresh: Fresh) -> None:
    address = msgspec.structs.replace(fresh(NODE), migrate=False)
    with pytest.raises(KeyspaceMissing, match="run `pushlane store migrate`"):
        await held(CassandraStore.open(address, SURE))
    assert tables_of(address.keyspace) == []


@pytest.mark.parametrize("kind", [NODE, RING])
async def test_several_migrate_at_once(fresh: Fresh, kind: str) -> None:
    """On a ring each asks another node."""
    address = fresh(kind)
    stores: list[CassandraStore] = []

    async def open_one(host: str) -> None:
        alone = msgspec.structs.replace(address, hosts=[host])
        stores.append(await held(CassandraStore.open(alone, SURE)))

    async with trio.open_nursery() as nursery:
        for host in (address.hosts * 3)[:3]:
            nursery.start_soon(open_one, host)
    first, second, third = stores
    row = await first.catalog.create("t", "q", QueueConfig())
    assert await second.catalog.read("t", "q") == row
    owner = await claimed(second)
    segment = await owner.append(0, messages(2))
    assert await third.segments(owner.shard, segment.bucket, 0, 9) == [segment]
    for store in stores:
        await let_go(store)
    assert await migrate(address, SURE) == (KNOWN, KNOWN)


async def test_a_newer_keyspace_is_refused(fresh: Fresh) -> None:
    address = fresh(NODE)
    newer = [*STEPS, more_columns]
    store = await held(CassandraStore.open(address, SURE, steps=newer))
    await let_go(store)
    for allowed in (True, False):
        changed = msgspec.structs.replace(address, migrate=allowed)
        with pytest.raises(
            KeyspaceNewer, match=f"schema {KNOWN + 1}, this version knows up to {KNOWN}"
        ):
            await held(CassandraStore.open(changed, SURE))


async def test_an_older_keyspace_is_brought_up_to_date(fresh: Fresh) -> None:
    address = fresh(NODE)
    store = await held(CassandraStore.open(address, SURE))
    row = await store.catalog.create("t", "q", QueueConfig())
    await let_go(store)
    newer = [*STEPS, more_columns]
    off = msgspec.structs.replace(address, migrate=False)
    with pytest.raises(
        KeyspaceMissing, match=f"has schema {KNOWN}, this version needs schema {KNOWN + 1}"
    ):
        await held(CassandraStore.open(off, SURE, steps=newer))
    store = await held(CassandraStore.open(address, SURE, steps=newer))
    assert await store.catalog.read("t", "q") == row
    await let_go(store)
    store = await held(CassandraStore.open(off, SURE, steps=newer))
    await let_go(store)


async def test_a_keyspace_of_version_4_gets_members(fresh: Fresh) -> None:
    """Also when a process died in the middle of the step, behind any of its statements."""
    address = fresh(NODE)
    store = await held(CassandraStore.open(address, SURE))
    await let_go(store)
    connection = connection_to(NODE)

    async def execute(statement: str) -> None:
        await trio.to_thread.run_sync(connection.execute, statement, 60.0)

    there = f"{address.keyspace}.nodes", f"{address.keyspace}.roster"
    for undo in ([], [f"DROP TABLE {there[1]}"], [f"ALTER TABLE {there[0]} DROP draining"]):
        for statement in undo:
            await execute(statement)
        await execute(
            f"UPDATE {address.keyspace}.schema_version SET version = 4"
            " WHERE id = 'pushlane' IF EXISTS"
        )
        assert await migrate(address, SURE) == (4, KNOWN)
        store = await held(CassandraStore.open(address, SURE))
        ownership = store.ownership
        await ownership.set_draining(ownership.process, True)
        await ownership.lost()
        assert ownership.draining
        [member] = await ownership.members()
        assert member.process == ownership.process
        await let_go(store)


async def test_a_keyspace_of_version_5_waits_for_no_dead_replica(fresh: Fresh) -> None:
    address = fresh(NODE)
    store = await held(CassandraStore.open(address, SURE))
    await let_go(store)
    for statement in (
        f"ALTER TABLE {address.keyspace}.nodes WITH speculative_retry = 'ALWAYS'",
        f"ALTER TABLE {address.keyspace}.roster WITH speculative_retry = 'MIN(99p,100ms)'",
        f"UPDATE {address.keyspace}.schema_version SET version = 5 WHERE id = 'pushlane' IF EXISTS",
    ):
        await trio.to_thread.run_sync(connection_to(NODE).execute, statement, 60.0)
    assert await migrate(address, SURE) == (5, KNOWN)
    for table in tables_of(address.keyspace):
        assert option_of(address.keyspace, table, "speculative_retry") == PROMPT, table


async def test_a_step_that_failed_is_taken_again(fresh: Fresh) -> None:
    address = fresh(NODE)

    def broken(keyspace: str, salt: UUID) -> list[str]:
        return [*more_columns(keyspace, salt), "CREATE NONSENSE"]

    with pytest.raises(KeyspaceUnusable, match="NONSENSE"):
        await held(CassandraStore.open(address, SURE, steps=[*STEPS, broken]))
    store = await held(CassandraStore.open(address, SURE, steps=[*STEPS, more_columns]))
    await let_go(store)


@pytest.mark.parametrize(
    ("replication", "nodes", "text"),
    [
        (None, 1, "'replication_factor': 1"),
        (None, 3, "'replication_factor': 3"),
        (None, 9, "'replication_factor': 3"),
        (2, 9, "'replication_factor': 2"),
        ({"a": 3, "b": 1}, 9, "'a': 3, 'b': 1"),
    ],
)
def test_replication(replication: int | dict[str, int] | None, nodes: int, text: str) -> None:
    address = Address(hosts=["h"], keyspace="k", replication=replication)
    assert f"'NetworkTopologyStrategy', {text}}}" in create_keyspace(address, nodes)


async def test_nobody_answers() -> None:
    address = Address(hosts=["127.0.0.1"], port=1, keyspace="k")
    with pytest.raises(Unreachable, match=r"can't be reached at 127\.0\.0\.1:1"):
        await held(CassandraStore.open(address, SURE))


class Command:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *args: str) -> tuple[object, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["pushlane", "store", "migrate", *args])
        with pytest.raises(SystemExit) as end:
            cli.main()
        return end.value.code or 0, *self._capsys.readouterr()


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_the_command(command: Command) -> None:
    keyspace = unique("k").replace("-", "_")
    url = service(NODE).cassandra_url(keyspace)
    assert command(url) == (0, f"keyspace {keyspace} has version {KNOWN} now, it had 0\n", "")
    assert command(url) == (0, f"keyspace {keyspace} has version {KNOWN} already\n", "")
    status, out, _ = command(url, "--json")
    assert status == 0
    assert msgspec.json.decode(out) == {"keyspace": keyspace, "before": KNOWN, "version": KNOWN}
    connection_to(NODE).execute(f"DROP KEYSPACE {keyspace}", 60.0)


def test_the_examples_in_the_docs(command: Command) -> None:
    """In a keyspace of another name, on another port."""
    keyspace = unique("k").replace("-", "_")
    page = (ROOT / "docs" / "cassandra.md").read_text()
    [block] = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ours = service(NODE).cassandra_url(keyspace)
    block = block.replace("cassandra://127.0.0.1:9042/pushlane", ours)
    block = block.replace("keyspace pushlane", f"keyspace {keyspace}")
    examples = block.split("$ pushlane store migrate ")[1:]
    assert len(examples) == 2
    for example in examples:
        url, printed = example.split("\n", 1)
        assert command(url) == (0, printed, "")
    connection_to(NODE).execute(f"DROP KEYSPACE {keyspace}", 60.0)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite:data", "only cassandra://HOST/KEYSPACE can be migrated"),
        ("cassandra://host", "a keyspace comes after the hosts"),
        ("cassandra://127.0.0.1:1/k", "can't be reached"),
    ],
)
def test_the_command_refuses(command: Command, url: str, text: str) -> None:
    status, out, err = command(url)
    assert (status, out) == (2, "")
    assert err.startswith("pushlane store: ")
    assert text in err


class Late(Decisions):
    """A row that can be read only after some tries."""

    def __init__(self, refusals: list[StoreRefused]) -> None:
        self.refusals = refusals

    async def read(self, table: Table, key: tuple[Any, ...]) -> Row | None:
        await trio.lowlevel.checkpoint()
        if self.refusals:
            raise self.refusals.pop()
        return {"version": len(STEPS), "nonce": "00" * 16}


def checking(refusals: list[StoreRefused]) -> Migration:
    connection = connection_to(NODE)

    class Listed(Migration):
        async def _has_version_table(self) -> bool:
            return True

    return Listed(connection, cast(Ring, None), Late(refusals), bytes)


async def test_a_table_that_is_listed_and_not_there_yet(autojump_clock: MockClock) -> None:
    await checking([StoreRefused("table schema_version does not exist")] * 6).check()
    with pytest.raises(Unreachable, match="does not exist"):
        await checking([StoreRefused("table schema_version does not exist")] * 7).check()
    with pytest.raises(Unreachable, match="unauthorized"):
        await checking([StoreRefused("unauthorized")]).check()
