"""Redis: one server that is ours, on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tools.services.folder import scratch_folder
from tools.services.ports import free_port
from tools.services.process import CannotStart, Process, need

HOST = "127.0.0.1"
START_SECONDS = 30
STOP_SECONDS = 10
SLOTS = 16_384
TRIES = 5
"""Somebody may take a port between our look at it and the start."""
TAKEN = "Address already in use"


class Redis:
    def __init__(
        self, folder: Path, port: int, *, keep: bool = False, options: Sequence[str] = (),
        host: str = HOST, within: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`within` stands before its command."""
        self.host = host
        self.port = port
        self.bus = 0
        """The port that the nodes of a cluster talk on."""
        self._keep = keep
        data = folder / "redis"
        data.mkdir(exist_ok=True)
        self.process = Process(
            f"Redis on port {port}",
            [
                *within,
                *(need("redis-server", "redis-server"), "--bind", host, "--port", str(port)),
                *("--save", "", "--appendonly", "yes" if keep else "no", "--dir", str(data)),
                *options,
            ],
            folder / "redis.log",
        )

    @property
    def url(self) -> str:
        return f"redis://{self.host}:{self.port}"

    def client(self, seconds: float = 10) -> redis.Redis:
        """One that waits so long for an answer, and tries once."""
        never = Retry(NoBackoff(), 0)
        return redis.Redis(self.host, self.port, socket_timeout=seconds, retry=never)

    def start(self) -> None:
        """Start it, also again on the same port, and wait until it answers."""
        self.process.start()
        self.process.until(self.answers, START_SECONDS)

    def answers(self) -> bool:
        with self.client() as client:
            try:
                # Somebody else may listen on this port while ours fails to.
                found = client.info("server")["process_id"]
            except redis.RedisError:
                return False
        return bool(found == self.process.pid)

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def stop(self) -> None:
        """In good order where the data matters."""
        if self._keep:
            self.process.terminate(STOP_SECONDS)
        else:
            self.process.kill()


@contextmanager
def running_redis(*, folder: Path | None = None, port: int | None = None) -> Iterator[Redis]:
    """A Redis until the end of the block; with a folder it keeps its data there, for the next."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with scratch_folder() as scratch:

        def make() -> Redis:
            return Redis(folder or scratch, port or free_port(), keep=folder is not None)

        with _run(make, TRIES if port is None else 1) as server:
            yield server


@contextmanager
def running_redis_at(host: str, port: int, within: Sequence[str]) -> Iterator[Redis]:
    """One at an address of its own, where nobody else is: whoever reaches it is let in."""
    with scratch_folder() as scratch:

        def make() -> Redis:
            options = ["--protected-mode", "no"]
            return Redis(scratch, port, options=options, host=host, within=within)

        with _run(make, 1) as server:
            yield server


@contextmanager
def running_redis_cluster(size: int = 1) -> Iterator[list[Redis]]:
    """A Redis Cluster without replicas; also one alone refuses what would cross hash slots."""
    with scratch_folder() as scratch, ExitStack() as running:
        nodes = [partial(_make_node, scratch, number) for number in range(size)]
        servers = [running.enter_context(_run(make, TRIES)) for make in nodes]
        _join(servers)
        yield servers


def _make_node(scratch: Path, number: int) -> Redis:
    folder = scratch / f"node-{number}"
    folder.mkdir(exist_ok=True)
    bus = free_port()
    server = Redis(
        folder, free_port(), options=["--cluster-enabled", "yes", "--cluster-port", str(bus)]
    )
    server.process.log = scratch / f"redis-{number}.log"
    server.bus = bus
    return server


def _join(servers: Sequence[Redis]) -> None:
    """Spread the slots, make the nodes known to each other, and wait until all agree."""
    each = -(-SLOTS // len(servers))
    for number, server in enumerate(servers):
        with server.client() as client:
            low, high = number * each, min(number * each + each, SLOTS) - 1
            client.execute_command("CLUSTER ADDSLOTSRANGE", low, high)
            for other in servers[:number]:
                client.execute_command("CLUSTER MEET", HOST, other.port, other.bus)
    for server in servers:
        server.process.until(partial(_is_whole, server, len(servers)), START_SECONDS)


def _is_whole(server: Redis, size: int) -> bool:
    with server.client() as client:
        info = client.execute_command("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and info["cluster_size"] == str(size))


@contextmanager
def _run(make: Callable[[], Redis], tries: int) -> Iterator[Redis]:
    server = _start(make, tries)
    try:
        yield server
        if server.process.died:
            raise server.process.fault("ended by itself")
    finally:
        server.stop()


def _start(make: Callable[[], Redis], tries: int) -> Redis:
    """One that runs; each that finds its ports taken is followed by one with other ports."""
    while True:
        tries -= 1
        server = make()
        try:
            server.start()
        except BaseException as fault:
            server.stop()
            if not (tries and isinstance(fault, CannotStart) and TAKEN in str(fault)):
                raise
        else:
            return server
