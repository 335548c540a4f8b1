"""`make cluster` as a process: what it says, what goes on when a server dies, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from pushlane.commands.cluster import COLUMNS
from tests.docs.console import is_shown, read_examples
from tests.docs.page import read_blocks
from tests.repo import ROOT
from tools.cluster import PORT, main
from tools.services.ports import answers
from tools.services.shared import Service

PATIENCE_SECONDS = 120


class Running:
    def __init__(self, process: subprocess.Popen[str], count: int) -> None:
        assert process.stdout is not None
        self.process = process
        lines = [process.stdout.readline() for _ in range(count + 1)]
        found = [re.fullmatch(r"(node-\d): ready on (\S+), pid (\d+)\n", one) for one in lines[:-1]]
        assert all(found), lines
        self.told = lines[-1]
        self.names = [one[1] for one in found if one]
        self.urls = [one[2] for one in found if one]
        self.pids = [int(one[3]) for one in found if one]

    def status(self, number: int = 0) -> dict[str, Any]:
        with urlopen(f"{self.urls[number]}/v1/cluster", timeout=PATIENCE_SECONDS) as answer:
            status: dict[str, Any] = json.loads(answer.read())
            return status

    def states(self, number: int = 0) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.status(number)["nodes"]}


@contextmanager
def running(*options: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tools.cluster", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def check_page(cluster: Running) -> None:
    """What docs/cluster.md shows of two servers is what was printed, but for the ports."""
    blocks = read_blocks((ROOT / "docs" / "cluster.md").read_text())
    shells = [block for block in blocks if block.language == "console"]
    examples = [one for block in shells for one in read_examples(block.text, block.line)]
    [shown] = [one.shown for one in examples if one.command == "make cluster"]
    lines = [line for line in shown.splitlines() if not line.startswith("node-3")]
    for port, url in enumerate(cluster.urls, PORT):
        lines = [line.replace(f"http://127.0.0.1:{port}", url) for line in lines]
    printed = [
        f"{name}: ready on {url}, pid {pid}"
        for name, url, pid in zip(cluster.names, cluster.urls, cluster.pids, strict=True)
    ]
    told = "".join(f"{line}\n" for line in [*printed, cluster.told.strip()])
    assert is_shown("".join(f"{line}\n" for line in lines), told)


def test_the_page_shows_the_columns_of_the_status() -> None:
    text = (ROOT / "docs" / "cluster.md").read_text()
    [block] = [one for one in read_blocks(text) if "pushlane cluster status\nNAME" in one.text]
    assert block.text.splitlines()[1].split() == [column.upper() for column in COLUMNS]


def shared(cassandra: Service, redis: Service, keyspace: str) -> list[str]:
    return ["--store", cassandra.cassandra_url(keyspace), "--leases", redis.redis_url]


def test_servers_see_each_other_one_dies_and_ctrl_c_ends_the_rest(
    cassandra_service: Service, redis_service: Service
) -> None:
    options = shared(cassandra_service, redis_service, "made_cluster")
    with running("--nodes", "2", "--port", "0", *options) as process:
        cluster = Running(process, 2)
        assert cluster.names == ["node-1", "node-2"]
        assert cluster.urls[0] in cluster.told
        check_page(cluster)
        both = {"node-1": "up", "node-2": "up"}
        until(lambda: cluster.states(0) == both and cluster.states(1) == both)
        os.kill(cluster.pids[1], signal.SIGKILL)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("node-2 has ended")
        until(lambda: cluster.states(0) == {"node-1": "up"})
        [gone] = cluster.status(0)["gone"]
        assert gone["name"] == "node-2"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    for url in cluster.urls:
        assert not answers("127.0.0.1", urlsplit(url).port or 0)


def test_it_ends_when_no_server_is_left(cassandra_service: Service, redis_service: Service) -> None:
    options = shared(cassandra_service, redis_service, "made_cluster")
    with running("--nodes", "1", "--port", "0", *options) as process:
        cluster = Running(process, 1)
        os.kill(cluster.pids[0], signal.SIGKILL)
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr is not None
        assert "all servers have ended" in process.stderr.read()


def test_a_server_that_cannot_start_shows_its_log(redis_service: Service) -> None:
    options = ["--port", "0", "--store", "mongo://x", "--leases", redis_service.redis_url]
    with running(*options) as process:
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr is not None
        assert "mongo" in process.stderr.read()


def test_a_port_that_is_taken_is_named(redis_service: Service) -> None:
    with running("--port", str(redis_service.port)) as process:
        assert process.wait(PATIENCE_SECONDS) == 1
        assert process.stderr is not None
        assert f"something listens on 127.0.0.1:{redis_service.port}" in process.stderr.read()


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--help"], 0, "usage: make cluster"),
        (["--nodes", "0"], 2, "0: from 1 to 16 servers"),
        (["--ring", "2"], 2, "invalid choice: 2"),
    ],
)
def test_options(
    options: list[str], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(options)
    assert end.value.code == code
    assert text in "".join(capsys.readouterr())
