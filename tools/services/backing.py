"""What a cluster on this machine stands on: a Cassandra and a Redis, started unless they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.services.cassandra import running_cassandra
from tools.services.cassandra_files import Options
from tools.services.ports import free_port
from tools.services.redis import running_redis

KEYSPACE = "pushlane"


class Backing(NamedTuple):
    """URLs."""

    store: str
    leases: str

    def options(self, name: str) -> list[str]:
        """Of `pushlane serve`, for a node of this name."""
        return [
            "--store", self.store, "--leases", self.leases, "--set", f"cluster.name={name}",
        ]  # fmt: skip


@contextmanager
def running_backing(
    folder: Path, *, ring: int = 1, store: str | None = None, leases: str | None = None
) -> Iterator[Backing]:
    """What is not named is started, with its data in the folder, and ends with the block."""
    with ExitStack() as services:
        if leases is None:
            leases = services.enter_context(running_redis(folder=folder, port=free_port())).url
        if store is None:
            found = running_cassandra(
                ring,
                Options(sync="batch" if ring == 1 else "periodic"),
                folder=folder / f"ring-of-{ring}",
            )
            store = services.enter_context(found).url(KEYSPACE)
        yield Backing(store, leases)
