"""A Redis of one's own."""

import os
import signal
from pathlib import Path

import pytest
import redis

from tests.tools.test_process import wait_died, wait_gone
from tools.services import folder
from tools.services import redis as redis_service
from tools.services.ports import free_port
from tools.services.process import CannotStart
from tools.services.redis import running_redis, running_redis_cluster


def test_it_serves_until_the_block_ends() -> None:
    with running_redis() as server, server.client() as client:
        client.set("a", 1)
        assert redis.Redis.from_url(server.url).get("a") == b"1"
        pid = server.process.pid
    wait_gone(pid)


def test_a_kill_and_a_restart_on_the_same_port() -> None:
    with running_redis() as server, server.client() as client:
        client.set("a", 1)
        server.kill()
        assert not server.answers()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        server.start()
        assert client.get("a") is None, "it persists nothing"


def test_paused_it_does_not_answer() -> None:
    with running_redis() as server:
        server.pause()
        with server.client(0.2) as impatient, pytest.raises(redis.TimeoutError):
            impatient.ping()
        server.resume()
        assert server.answers()


def test_with_a_folder_the_data_stays(tmp_path: Path) -> None:
    for expected in (None, b"1"):
        with running_redis(folder=tmp_path) as server, server.client() as client:
            assert client.get("a") == expected
            client.set("a", 1)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept after a failure goes with the test."""
    monkeypatch.setattr(folder, "MEMORY", tmp_path)


@pytest.mark.usefixtures("logs")
def test_a_port_that_is_taken() -> None:
    port = free_port()
    with (
        running_redis(port=port),
        pytest.raises(CannotStart, match=f"Redis on port {port} ended"),
        running_redis(port=port),
    ):
        pass


@pytest.mark.usefixtures("logs")
def test_a_server_that_dies_by_itself_is_a_failure() -> None:
    def die() -> None:
        with running_redis() as server:
            os.kill(server.process.pid, signal.SIGKILL)
            wait_died(server.process)

    with pytest.raises(CannotStart, match="ended by itself; its log is"):
        die()


def test_a_cluster_is_whole_when_it_is_given_out() -> None:
    with running_redis_cluster(3) as servers:
        for number, server in enumerate(servers):
            with redis.RedisCluster(server.host, server.port) as client:
                client.set(f"key-{number}", number)
                assert client.get(f"key-{number}") == str(number).encode()
        assert sum(server.client().dbsize() for server in servers) == 3


def test_ports_that_somebody_took_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first choice of each, of the bus too, is taken when Redis comes to it."""
    with running_redis() as other:
        free = [free_port() for _ in range(7)]
        chosen = iter([other.port, free[0], free[1], other.port, free[2], free[3], free[4]])
        monkeypatch.setattr(redis_service, "free_port", lambda: next(chosen))
        with running_redis() as alone:
            assert alone.port == free[0]
        with running_redis_cluster() as (node,):
            assert (node.bus, node.port) == (free[2], free[3])
        assert next(chosen) == free[4]
