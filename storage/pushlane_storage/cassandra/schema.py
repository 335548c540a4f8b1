"""The schema, and the steps from one version of it to the next.

A keyspace's version stands in `schema_version`. Step n leads from version n to n + 1; its
statements may be run twice, and by two processes at once: tables are made with ids that both know,
else each node could make a table of its own under the same name. Steps are never changed once they
were released: what comes later is a step more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import NAMESPACE_URL, UUID, uuid5

from pushlane_storage.cassandra.address import Address
from pushlane_storage.cassandra.ring import Table
from pushlane_storage.cassandra.tables import NOTES, PROMPT, SCHEMA, TABLES, USAGE

Step = Callable[[str, UUID], list[str]]
"""The statements for a keyspace; the salt is its own, made once."""

NODES_FOR_SAFETY = 3
"""Replicas of a keyspace that is made without being told how many, if there are as many nodes."""


def create_keyspace(address: Address, nodes: int) -> str:
    replication = address.replication
    if replication is None:
        replication = max(1, min(NODES_FOR_SAFETY, nodes))
    if isinstance(replication, int):
        replication = {"replication_factor": replication}
    factors = "".join(f", '{name}': {count}" for name, count in replication.items())
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {address.keyspace} WITH replication ="
        f" {{'class': 'NetworkTopologyStrategy'{factors}}} AND durable_writes = true"
    )


def create_version_table(keyspace: str) -> str:
    return create_table(keyspace, SCHEMA, uuid5(NAMESPACE_URL, f"pushlane:{keyspace}"))


def create_table(keyspace: str, table: Table, salt: UUID) -> str:
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
    key = f"({', '.join(table.partition)})"
    primary = ", ".join([key, *table.clustering])
    options = f" AND {table.options}" if table.options else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {keyspace}.{table.name} ({columns},"
        f" PRIMARY KEY ({primary})) WITH ID = '{uuid5(salt, table.name)}'{options}"
    )


def _create_tables(keyspace: str, salt: UUID) -> list[str]:
    return [create_table(keyspace, table, salt) for table in TABLES]


def _replace_usage(keyspace: str, salt: UUID) -> list[str]:
    """Rows instead of counters. Version 1 had made a table `usage` that nothing ever wrote to.

    The new one has another name: two processes that migrate at once could not drop and make a table
    of the same name, the second one would drop what the first one has made.
    """
    return [create_table(keyspace, USAGE, salt), f"DROP TABLE IF EXISTS {keyspace}.usage"]


def _add_notes(keyspace: str, salt: UUID) -> list[str]:
    return [create_table(keyspace, NOTES, salt)]


def _ask_others_early(keyspace: str, _: UUID) -> list[str]:
    return [f"ALTER TABLE {keyspace}.{name} WITH {option}" for name, option in PROMPT.items()]


STEPS: Sequence[Step] = (_create_tables, _replace_usage, _add_notes, _ask_others_early)
