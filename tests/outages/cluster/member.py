"""A node of the cluster, with a door on each side: clients, other nodes, Cassandra, Redis."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tests.crash.node import LOOPBACK, Node
from tests.outages.door import Door
from tools.services.ports import free_port

BEAT_MS, JUDGE_MS = 500, 4_000
"""Shorter than usual, for tests that are to end. On a busy machine a beat may well be late."""
QUICK = {
    "cassandra.beat_ms": BEAT_MS,
    "cassandra.judge_ms": JUDGE_MS,
    "cluster.tenure_ms": 3_000,
    "limits.heartbeat_ms": 2_000,
    "queues.auto_create": "false",
}
"""With the last one a queue that was deleted stays deleted."""


class Backing(NamedTuple):
    """What all nodes stand on."""

    cassandra: int
    """The port of the only Cassandra node."""
    redis: int
    keyspace: str


class Member:
    def __init__(
        self, folder: Path, name: str, backing: Backing, plant: str = "",
        planted: str = "tests.outages.cluster.plants", **settings: object,
    ) -> None:  # fmt: skip
        """`settings` of `[cluster]` beside those that it needs, or instead of them."""
        inside = free_port()
        self.name = name
        self.store_door = Door(backing.cassandra)
        self.lease_door = Door(backing.redis)
        self.peer_door = Door(inside)
        """Other nodes come through this one."""
        self.log = folder / f"{name}.log"
        self.node = Node(
            folder, plant, name=name, planted=planted,
            backing=[
                *("--store", f"cassandra://{LOOPBACK}:{self.store_door.port}/{backing.keyspace}"),
                *("--leases", f"redis://{LOOPBACK}:{self.lease_door.port}"),
                *_settings(
                    {
                        **QUICK,
                        "cluster.name": name,
                        "cluster.listen": f"{LOOPBACK}:{inside}",
                        "cluster.address": f"{LOOPBACK}:{self.peer_door.port}",
                        **{f"cluster.{key}": value for key, value in settings.items()},
                    }
                ),
            ],
        )  # fmt: skip
        self.serves = False
        """Clients may be sent to it."""

    def start(self) -> None:
        self.node.spawn()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        self.node.wait_until_ready()
        self.peer_door.reopen_if_shut()
        self.serves = True

    def kill(self) -> None:
        """Afterwards nobody listens at its address, as far as others can tell."""
        self.serves = False
        self.node.kill()
        self.peer_door.shut()

    def end(self) -> int:
        """In good order; its exit code."""
        self.serves = False
        code = self.node.terminate()
        self.peer_door.shut()
        return code

    def close(self) -> None:
        self.node.close()
        for door in (self.store_door, self.lease_door, self.peer_door):
            door.close()


def _settings(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
