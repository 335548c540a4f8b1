"""Redis: one server that is ours, on a port of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tools.services.folder import scratch_folder
from tools.services.ports import free_port
from tools.services.process import Process, need

HOST = "127.0.0.1"
START_SECONDS = 30
STOP_SECONDS = 10
SLOTS = 16_384


class Redis:
    def __init__(
        self, folder: Path, port: int, *, keep: bool = False, options: Sequence[str] = ()
    ) -> None:
        self.host = HOST
        self.port = port
        self.bus = 0
        """The port that the nodes of a cluster talk on."""
        self._keep = keep
        data = folder / "redis"
        data.mkdir(exist_ok=True)
        self.process = Process(
            f"Redis on port {port}",
            [
                *(need("redis-server", "redis-server"), "--bind", HOST, "--port", str(port)),
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
        with _run(Redis(folder, port or free_port(), keep=True)) as server:
            yield server
    else:
        with scratch_folder() as scratch, _run(Redis(scratch, port or free_port())) as server:
            yield server


@contextmanager
def running_redis_cluster(size: int = 1) -> Iterator[list[Redis]]:
    """A Redis Cluster without replicas; also one alone refuses what would cross hash slots."""
    with scratch_folder() as scratch, ExitStack() as running:
        servers = []
        for number in range(size):
            (folder := scratch / f"node-{number}").mkdir()
            options = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
            server = Redis(folder, free_port(), options=options)
            server.process.log = scratch / f"redis-{number}.log"
            servers.append(running.enter_context(_run(server)))
            server.bus = int(options[-1])
        _join(servers)
        yield servers


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
def _run(server: Redis) -> Iterator[Redis]:
    try:
        server.start()
        yield server
        if server.process.died:
            raise server.process.fault("ended by itself")
    finally:
        server.stop()
