"""Servers start, are ready, and end with their block."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from bench.gateway import machine
from bench.gateway.process import SERVER_CORE, DidNotStart, accepts, find, free_port, running
from bench.gateway.systems import nats_missing, rabbitmq_missing, redis_missing

SERVER = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); s.accept()"


def test_a_server_runs_on_its_core_until_the_block_ends(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", f"{SERVER}; input(); s.accept()", str(port)]
    with running(command, tmp_path, lambda: accepts(port)) as process:
        assert os.sched_getaffinity(process.pid) == {SERVER_CORE}
    assert process.returncode is not None


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such disk')"]
    with (
        pytest.raises(DidNotStart, match="no such disk"),
        running(command, tmp_path, lambda: False),
    ):
        pass


def test_a_server_ends_when_the_block_fails(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(OSError, match="ours"), running(command, tmp_path, lambda: True) as process:
        raise OSError("ours")
    assert process.returncode is not None


def test_a_port_that_nobody_listens_on() -> None:
    port = free_port()
    assert not accepts(port)
    with socket.create_server(("127.0.0.1", port)):
        assert accepts(port)


def test_a_command_is_found_in_a_folder_first(tmp_path: Path) -> None:
    assert find("no-such-command-at-all", tmp_path) is None
    (tmp_path / "sh").touch()
    assert find("sh", tmp_path) == str(tmp_path / "sh")
    (tmp_path / "sh").unlink()
    assert find("sh", tmp_path) not in (None, str(tmp_path / "sh"))


def test_peers_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("bench.gateway.systems.TOOLS", tmp_path)
    monkeypatch.setattr("bench.gateway.systems.RABBITMQ", tmp_path)
    assert "nats-server" in str(nats_missing())
    assert "rabbitmq-server" in str(rabbitmq_missing())
    assert "redis-server" in str(redis_missing())


def test_shares_of_the_cpu() -> None:
    before = machine.Load((0.0, 0.0, 0.0), 100, 10, 1_000)
    after = machine.Load((0.0, 0.0, 0.0), 175, 11, 1_100)
    assert machine.shares(before, after) == (0.75, 0.01)


def test_the_load_is_read() -> None:
    found = machine.load()
    assert 0 < found.busy < found.total
    assert len(found.averages) == 3


def test_the_shape_names_no_host() -> None:
    found = machine.shape()
    assert found.cores > 0
    assert found.memory_gib > 0
    assert socket.gethostname() not in repr(found)
