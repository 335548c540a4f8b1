"""A few nodes that are well, without clients of their own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.outages.cluster.member import Backing, Member
from tests.outages.stage import until
from tools.services.cassandra import Ring
from tools.services.redis import Redis


class Hosts:
    def __init__(self, folder: Path, backing: Backing) -> None:
        self._folder = folder
        self._backing = backing
        self.members: list[Member] = []

    def start(self, name: str, **options: Any) -> Member:
        """`options` as `Member` takes them."""
        member = Member(self._folder, name, self._backing, **options)
        self.members.append(member)
        member.start()
        return member

    def stop(self, member: Member) -> None:
        """For good."""
        self.members.remove(member)
        assert member.end() == 0
        member.close()

    def wait_until_up(self) -> None:
        """Until all say that just these are there, and up."""
        wanted = {member.name: "up" for member in self.members}
        until(lambda: all(states(each) == wanted for each in self.members), f"not just {wanted}")


def states(at: Member) -> dict[str, str]:
    return {node["name"]: node["state"] for node in at.node.ask("GET", "/v1/cluster")["nodes"]}


@contextmanager
def running_hosts(folder: Path, count: int, ring: Ring, redis: Redis) -> Iterator[Hosts]:
    """So many, called node-1, node-2 …, until the end of the block."""
    [cassandra] = ring.nodes
    hosts = Hosts(folder, Backing(cassandra.port, redis.port, f"hosts_{secrets.token_hex(4)}"))
    try:
        for number in range(count):
            hosts.start(f"node-{number + 1}")
        hosts.wait_until_up()
        yield hosts
    finally:
        for member in hosts.members:
            member.close()
