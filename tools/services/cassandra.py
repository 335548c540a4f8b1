"""Cassandra: one node, or a ring of three, on loopback addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cassandra import ConsistencyLevel, DriverException, RequestExecutionException
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
)
from cassandra.policies import WhiteListRoundRobinPolicy

from tools.services.cassandra_files import (
    Options,
    cassandra_jars,
    command,
    configuration,
    write_files,
)
from tools.services.folder import scratch_folder
from tools.services.ports import answers, free_port
from tools.services.process import Process, need

START_SECONDS = 180
"""For one node; it takes 7 s on a quiet machine, three together 30 s."""
STOP_SECONDS = 30
RING_OF_THREE = 3
TOKENS = 1 << 64
PROTOCOL = 5
"""Else the driver begins with the newest that it knows, and goes down from there."""
WHOLE = "SELECT parent_id FROM system_distributed.parent_repair_history LIMIT 1"
"""Of a table that Cassandra replicates three times by itself: at ALL, every node must be seen."""


class Site(NamedTuple):
    """Where a node runs."""

    host: str
    within: Sequence[str] = ()
    """Stands before its command."""


class Node:
    """One process. It may be killed, paused, and started again on the same data."""

    def __init__(self, host: str, port: int, process: Process, size: int) -> None:
        self.host = host
        self.port = port
        self.process = process
        self._size = size

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it answers and sees all others."""
        self.process.start()
        if wait:
            self.wait()

    def wait(self) -> None:
        self.process.until(self.answers, START_SECONDS * self._size)

    def restart(self) -> None:
        self.process.kill()
        self.start()

    def stop(self) -> None:
        """In good order: the others know at once that it is gone."""
        self.process.terminate(STOP_SECONDS)

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def answers(self) -> bool:
        """Whether it serves CQL, and sees a ring of three whole."""
        return answers(self.host, self.port) and self._asked()

    def _asked(self) -> bool:
        profile = ExecutionProfile(
            WhiteListRoundRobinPolicy([self.host]),
            consistency_level=(
                ConsistencyLevel.ALL if self._size == RING_OF_THREE else ConsistencyLevel.ONE
            ),
            request_timeout=10,
        )
        cluster = Cluster(
            [self.host],
            port=self.port,
            protocol_version=PROTOCOL,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
            connect_timeout=10,
        )
        with suppress(NoHostAvailable, DriverException, RequestExecutionException, OSError):
            try:
                cluster.connect().execute(WHOLE)
                return True
            finally:
                cluster.shutdown()
        return False


class Ring:
    """Nodes that know each other; often just one."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.hosts = [node.host for node in nodes]
        self.port = nodes[0].port

    def url(self, keyspace: str) -> str:
        return f"cassandra://{','.join(self.hosts)}:{self.port}/{keyspace}"

    def start(self) -> None:
        for node in self.nodes:
            node.start(wait=False)
        self.wait()

    def wait(self) -> None:
        """Until every node answers and sees the others."""
        for node in self.nodes:
            node.wait()

    def stop(self, *, gently: bool) -> None:
        for node in self.nodes:
            if gently:
                node.process.terminate(STOP_SECONDS)
            else:
                node.process.kill()


def make_ring(
    folder: Path, sites: Sequence[Site], options: Options, port: int | None,
    storage_port: int | None,
) -> Ring:  # fmt: skip
    """Nothing runs yet. Fixed tokens and seeds on all sides: nobody waits for anybody."""
    size = len(sites)
    assert size in (1, RING_OF_THREE)
    hosts = [site.host for site in sites]
    java, jars = need("java", "openjdk-17-jre-headless"), cassandra_jars()
    port = port or free_port(hosts)
    storage_port = storage_port or free_port(hosts)
    nodes = []
    for number, (host, within) in enumerate(sites):
        place = folder / f"cassandra-{number + 1}"
        place.mkdir(parents=True, exist_ok=True)
        token = (2 * number + 1) * TOKENS // (2 * size) - TOKENS // 2
        write_files(place, configuration(host, hosts, token, port, storage_port, options))
        run = [*within, *command(java, jars, place, options)]
        process = Process(f"Cassandra on {host}:{port}", run, folder / f"{place.name}.log")
        nodes.append(Node(host, port, process, size))
    return Ring(nodes)


@contextmanager
def running_cassandra(
    size: int = 1,
    options: Options | None = None,
    *,
    folder: Path | None = None,
    on_disk: bool = False,
    port: int | None = None,
    storage_port: int | None = None,
    sites: Sequence[Site] = (),
) -> Iterator[Ring]:
    """A node, or a ring of three, until the end of the block; on loopback, or on other sites.

    With a folder it keeps its data there for the next start, which must name the same ports. Else
    the data goes with it; `on_disk` keeps it out of memory meanwhile, for honest figures.
    """
    options = options or Options(heap_mb=512 if size == 1 else 400)
    sites = sites or [Site(f"127.0.0.{number}") for number in range(1, size + 1)]
    if folder is not None:
        with _run(make_ring(folder, sites, options, port, storage_port), gently=True) as ring:
            yield ring
    else:
        with (
            scratch_folder(on_disk=on_disk) as scratch,
            _run(make_ring(scratch, sites, options, port, storage_port), gently=False) as ring,
        ):
            yield ring


@contextmanager
def _run(ring: Ring, *, gently: bool) -> Iterator[Ring]:
    try:
        ring.start()
        yield ring
        for node in ring.nodes:
            if node.process.died:
                raise node.process.fault("ended by itself")
    finally:
        ring.stop(gently=gently)
