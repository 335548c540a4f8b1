"""A node of the cluster: a process on its site, with a wall clock of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.crash.node import Node
from tests.outages.cluster.clock import WallClock
from tests.outages.cluster.ground import Site

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


class Member:
    def __init__(
        self, folder: Path, name: str, site: Site, keyspace: str, clock: WallClock,
        plant: str = "", *, settings: Mapping[str, object] | None = None,
    ) -> None:  # fmt: skip
        """`settings` beside those that it needs, or instead of them."""
        self.name = name
        self.site = site
        self.clock = clock
        self.log = folder / f"{name}.log"
        own = {**QUICK, **site.settings, "cluster.name": name, **(settings or {})}
        self.node = Node(
            folder, plant, name=name, planted="tests.outages.cluster.plants", host=site.host,
            within=[*site.within, *clock.within],
            backing=[
                *("--store", f"{site.store}/{keyspace}", "--leases", site.leases),
                *_settings(own),
            ],
        )  # fmt: skip
        self.serves = False
        """Clients may be sent to it."""

    @property
    def address(self) -> tuple[int, str]:
        """Where clients reach it: port and host."""
        return self.node.port, self.site.host

    def start(self) -> None:
        self.node.spawn()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        self.node.wait_until_ready()
        self.site.reopen()
        self.serves = True

    def kill(self) -> None:
        self.serves = False
        self.node.kill()
        self.site.shut()

    def end(self) -> int:
        """In good order; its exit code."""
        self.serves = False
        code = self.node.terminate()
        self.site.shut()
        return code

    def close(self) -> None:
        self.node.close()
        self.site.close()


def _settings(settings: dict[str, object]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
