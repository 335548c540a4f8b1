"""Nodes that are set up wrongly, beside two that are well: each is reported by name, in the log, by
`pushlane cluster status` and by `pushlane doctor`, and costs the others nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.outages.cluster.hosts import Hosts, running_hosts
from tests.outages.cluster.member import Member
from tests.outages.stage import until
from tools.services.cassandra import Ring
from tools.services.ports import free_port
from tools.services.redis import Redis

COMMAND = [sys.executable, "-c", "from pushlane.cli import main; main()"]
QUEUE = "/v1/queues/q"
COUNT = 24


class Traffic:
    """Messages of a queue that are published through any node."""

    def __init__(self) -> None:
        self.sent = 0

    def publish(self, through: Member) -> None:
        """To all shards."""
        for _ in range(COUNT):
            self.sent += 1
            body = {"messages": [{"body": self.sent, "key": f"k{self.sent}"}]}
            through.node.ask("POST", f"{QUEUE}/messages", body)

    def check(self, at: Member) -> None:
        """All of them are there."""
        assert int(at.node.ask("GET", f"{QUEUE}/stats")["stored"]) == self.sent


def problems(at: Member) -> dict[str, str]:
    """By code, as people are told of them by `pushlane cluster status`."""
    status = json.loads(_run(at, "cluster", "status", "--json"))
    return {problem["code"]: problem["text"] for problem in status["problems"]}


def doctor(at: Member) -> str:
    return _run(at, "doctor", "--client-only")


def _run(at: Member, *words: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PUSHLANE_")}
    found = subprocess.run(
        [*COMMAND, *words, "--url", at.node.url], capture_output=True, text=True, env=clean,
        timeout=120, check=False,
    )  # fmt: skip
    assert found.stdout, found.stderr
    return found.stdout


@pytest.fixture
def hosts(single: Ring, redis: Redis, tmp_path: Path) -> Iterator[Hosts]:
    with running_hosts(tmp_path, 2, single, redis, {"cluster.doubt_ms": 3_000}) as hosts:
        hosts.members[0].node.ask("PUT", QUEUE, {"shards": 6})
        yield hosts


def test_each_is_reported_and_costs_nobody_anything(hosts: Hosts, tmp_path: Path) -> None:
    a, b = hosts.members
    traffic = Traffic()
    key = tmp_path / "other.key"
    key.write_text("a key that the others don't have")
    key.chmod(0o600)

    def tells(stray: Member, at: Member, code: str, *words: str) -> None:
        """One of the nodes says it in three places."""

        def said() -> bool:
            text = problems(at).get(code, "")
            return all(word in text for word in words)

        until(said, f"no {code} with {words}")
        found = doctor(at)
        assert all(word in found for word in words), found
        traffic.publish(a)
        traffic.publish(b)
        traffic.check(a)

    def visit(name: str, check: Callable[[Member], None], /, **options: Any) -> None:
        stray = hosts.start(name, **options)
        check(stray)
        assert stray.node.ask("GET", "/v1/cluster")["problems"], "it says nothing of itself"
        hosts.stop(stray)
        hosts.wait_until_up()

    def wrong_key(stray: Member) -> None:
        tells(stray, a, "refused", "wrong_key", "stray-key")
        tells(stray, a, "unreachable", "stray-key", "wrong_key")
        until(lambda: "wrong_key: stray-key" in a.log.read_text(), "not in the log")

    def other_cluster(stray: Member) -> None:
        tells(stray, a, "refused", "other_cluster", "stray-cluster")
        until(lambda: "stray-cluster is of cluster another" in a.log.read_text(), "not in the log")

    def hidden(stray: Member) -> None:
        tells(stray, a, "unreachable", "stray-hidden", "nobody listens")
        until(lambda: "no other node has reached this one" in stray.log.read_text(), "not told")
        assert "node stray-hidden can't be reached" in a.log.read_text()
        traffic.publish(stray)
        traffic.check(a)

    def twin(stray: Member) -> None:
        tells(stray, a, "same_name", "2 nodes are called node-2")
        until(lambda: "2 nodes are called node-2" in a.log.read_text(), "not in the log")
        traffic.publish(stray)

    def double(stray: Member) -> None:
        tells(stray, a, "same_address", "node-2 and stray-double")
        until(lambda: "node-2 and stray-double" in a.log.read_text(), "not in the log")
        traffic.publish(stray)
        fenced = [member.node.number("pushlane_cluster_fencings") for member in (a, b, stray)]
        assert fenced == before, "nobody was dead"

    def late(stray: Member) -> None:
        tells(stray, a, "clock", "stray-clock", "+3600 s")
        assert "the clock of node stray-clock is" in a.log.read_text()
        traffic.publish(stray)

    visit("stray-key", wrong_key, key_file=key)
    visit("stray-cluster", other_cluster, cluster="another")
    visit("stray-hidden", hidden, address=f"127.0.0.1:{free_port()}")
    visit("twin", twin, name="node-2")
    before = [member.node.number("pushlane_cluster_fencings") for member in (a, b)] + [0.0]
    visit("stray-double", double, address=b.site.settings["cluster.address"])
    visit("stray-clock", late, ahead_s=3_600)
    traffic.check(b)
