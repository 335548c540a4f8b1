"""`make services`: both, in the foreground, with data that stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.repo import ROOT
from tools.services.ports import answers, free_port
from tools.services.shared import Service

PATIENCE_SECONDS = 300


class Services:
    def __init__(self, process: subprocess.Popen[str], cassandra: int, redis_port: int) -> None:
        self.process = process
        self.cassandra = cassandra
        self.redis = redis_port

    def wait(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def services(folder: Path, ports: tuple[int, int]) -> Iterator[Services]:
    options = [f"--cassandra-port={ports[0]}", f"--redis-port={ports[1]}", f"--folder={folder}"]
    with subprocess.Popen(
        [sys.executable, "-m", "tools.services", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Services(process, *ports)
        finally:
            process.kill()


def ready_line(running: Services) -> str:
    assert running.process.stdout is not None
    return running.process.stdout.readline()


def test_both_run_until_they_are_stopped_and_keep_their_data(tmp_path: Path) -> None:
    ports = (free_port(), free_port())
    expected = f"ready: cassandra://127.0.0.1:{ports[0]}/pushlane redis://127.0.0.1:{ports[1]}\n"
    for number, seen in ((signal.SIGINT, None), (signal.SIGTERM, b"1")):
        with services(tmp_path, ports) as running:
            assert ready_line(running) == expected
            with redis.Redis(port=ports[1]) as client:
                assert client.get("a") == seen
                client.set("a", 1)
            os.kill(running.process.pid, number)
            assert running.wait() == 0
        assert not any(answers("127.0.0.1", port) for port in ports)
    assert (tmp_path / "ring-of-1" / "cassandra-1" / "data").is_dir()


def test_a_port_that_is_taken_is_named(
    tmp_path: Path, redis_service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    with services(tmp_path, (free_port(), redis_service.port)) as running:
        assert running.wait() == 1
    expected = f"something listens on 127.0.0.1:{redis_service.port}: stop it"
    assert capfd.readouterr().err.startswith(expected)
