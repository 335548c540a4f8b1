"""The ground: what a cluster stands on, with ways between its parts, each of which can be cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tests.outages.door import Door
from tools.services.cassandra import Ring
from tools.services.ports import free_port
from tools.services.redis import Redis


class Way(Protocol):
    """A door, or a cut in a network."""

    def hold(self) -> None:
        """Let nothing through, and tell nobody, until `let_go`."""
        ...

    def let_go(self) -> None: ...


class Site(Protocol):
    """Where one node is, and how it reaches the others."""

    host: str
    within: Sequence[str]
    """Stands before its command."""
    settings: dict[str, str]
    store: str
    """Without the keyspace."""
    leases: str

    @property
    def peer_ways(self) -> Sequence[Way]:
        """How other nodes reach it."""
        ...

    @property
    def store_ways(self) -> Sequence[Way]: ...

    @property
    def lease_ways(self) -> Sequence[Way]: ...

    def shut(self) -> None:
        """Nobody listens there, as far as other nodes can tell."""
        ...

    def reopen(self) -> None: ...

    def close(self) -> None: ...


class Ground(Protocol):
    ring: Ring
    redis: Redis

    def site(self, name: str) -> Site:
        """A place for a node."""
        ...

    def door(self) -> Door:
        """A door for clients, who are where it is."""
        ...

    def client_ways(self, site: Site, doors: Sequence[Door]) -> Sequence[Way]:
        """Between a node and the clients of these doors."""
        ...


class Loopback:
    """One machine, with a door in each way, and one Cassandra node."""

    def __init__(self, ring: Ring, redis: Redis) -> None:
        self.ring = ring
        self.redis = redis

    def site(self, name: str) -> Site:
        return _BehindDoors(self.ring, self.redis)

    def door(self) -> Door:
        return Door()

    def client_ways(self, site: Site, doors: Sequence[Door]) -> Sequence[Way]:
        return doors


class _BehindDoors:
    def __init__(self, ring: Ring, redis: Redis) -> None:
        inside = free_port()
        [cassandra] = ring.nodes
        self._peer, self._store, self._lease = Door(inside), Door(cassandra.port), Door(redis.port)
        self.host = redis.host
        self.within: Sequence[str] = ()
        self.settings = {
            "cluster.listen": f"{self.host}:{inside}",
            "cluster.address": f"{self.host}:{self._peer.port}",
        }
        self.store = f"cassandra://{self.host}:{self._store.port}"
        self.leases = f"redis://{self.host}:{self._lease.port}"
        self.peer_ways = [self._peer]
        self.store_ways = [self._store]
        self.lease_ways = [self._lease]

    def shut(self) -> None:
        self._peer.shut()

    def reopen(self) -> None:
        self._peer.reopen_if_shut()

    def close(self) -> None:
        for door in (self._peer, self._store, self._lease):
            door.close()
