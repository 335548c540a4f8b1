"""The ground of the long form: each part on a host of its own, in a network that loses packets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from tests.outages.cluster.ground import Site, Way
from tests.outages.cluster.network import Cut, Host, Network, cuts
from tests.outages.door import Door
from tools.services.cassandra import RING_OF_THREE, Ring, running_cassandra
from tools.services.cassandra import Site as RingSite
from tools.services.redis import Redis, running_redis_at

CASSANDRA, STORAGE, REDIS, PEER = 9042, 7000, 6379, 8421
"""Ports: nobody else is on these hosts."""


class Namespaces:
    def __init__(
        self, network: Network, ring: Ring, redis: Redis, ring_hosts: list[Host], redis_host: Host
    ) -> None:
        self._network = network
        self._numbers = count(1)
        self.ring = ring
        self.redis = redis
        self.ring_hosts = ring_hosts
        self.redis_host = redis_host
        self.nodes: dict[str, Host] = {}
        """By name."""
        self.clients: list[Host] = []

    def site(self, name: str) -> Site:
        self.nodes[name] = host = self._network.host(name)
        return _OnHost(self, host)

    def door(self) -> Door:
        host = self._network.host(f"clients-{next(self._numbers)}")
        self.clients.append(host)
        return Door(place=host)

    def client_ways(self, site: Site, doors: Sequence[Door]) -> Sequence[Way]:
        there = {door.place.address for door in doors}
        clients = [host for host in self.clients if host.address in there]
        node = [host for host in self.nodes.values() if host.address == site.host]
        return cuts(clients, node)


class _OnHost:
    def __init__(self, namespaces: Namespaces, host: Host) -> None:
        self._namespaces = namespaces
        self._host = host
        self.host = host.address
        self.within: Sequence[str] = host.within
        self.settings = {"cluster.listen": f"{host.address}:{PEER}", "auth.insecure": "true"}
        self.store = f"cassandra://{','.join(namespaces.ring.hosts)}:{namespaces.ring.port}"
        self.leases = f"redis://{namespaces.redis.host}:{namespaces.redis.port}"

    @property
    def peer_ways(self) -> Sequence[Way]:
        return [Cut(list(self._namespaces.nodes.values()), [self._host])]

    @property
    def store_ways(self) -> Sequence[Way]:
        return cuts([self._host], self._namespaces.ring_hosts)

    @property
    def lease_ways(self) -> Sequence[Way]:
        return cuts([self._host], [self._namespaces.redis_host])

    def shut(self) -> None:
        """The process is gone, so its port refuses."""

    def reopen(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def running_namespaces() -> Iterator[Namespaces]:
    """A ring of three and a Redis; nodes and clients come on. This process has left the world."""
    network = Network()
    ring_hosts = [network.host(f"cassandra-{n}") for n in range(1, RING_OF_THREE + 1)]
    redis_host = network.host("redis")
    sites = [RingSite(host.address, host.within) for host in ring_hosts]
    with (
        running_cassandra(RING_OF_THREE, port=CASSANDRA, storage_port=STORAGE, sites=sites) as ring,
        running_redis_at(redis_host.address, REDIS, redis_host.within) as redis,
    ):
        yield Namespaces(network, ring, redis, ring_hosts, redis_host)
