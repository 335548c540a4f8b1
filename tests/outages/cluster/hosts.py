"""A few nodes that are well, without clients of their own."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.outages.cluster.clock import WallClock, compile_clock
from tests.outages.cluster.ground import Ground, Loopback
from tests.outages.cluster.member import Member
from tests.outages.stage import until
from tools.services.cassandra import Ring
from tools.services.redis import Redis


class Hosts:
    def __init__(
        self, folder: Path, ground: Ground, keyspace: str, settings: Mapping[str, object]
    ) -> None:
        self._folder = folder
        self._ground = ground
        self._keyspace = keyspace
        self._settings = settings
        self._clock_library = compile_clock(folder)
        self.members: list[Member] = []

    def start(self, name: str, /, *, ahead_s: float = 0.0, **settings: object) -> Member:
        """With a wall clock that is so far ahead; `settings` of `[cluster]` beside those of all."""
        clock = WallClock(self._folder / f"{name}.clock", self._clock_library)
        clock.set_ahead(ahead_s)
        site = self._ground.site(name)
        own = {f"cluster.{key}": value for key, value in settings.items()}
        member = Member(
            self._folder, name, site, self._keyspace, clock, settings={**self._settings, **own}
        )
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
def running_hosts(
    folder: Path, count: int, ring: Ring, redis: Redis, settings: Mapping[str, object]
) -> Iterator[Hosts]:
    """So many, called node-1, node-2 …, until the end of the block."""
    hosts = Hosts(folder, Loopback(ring, redis), f"hosts_{secrets.token_hex(4)}", settings)
    try:
        for number in range(count):
            hosts.start(f"node-{number + 1}")
        hosts.wait_until_up()
        yield hosts
    finally:
        for member in hosts.members:
            member.close()
