"""A node: a process of the replicated world that is one of a cluster, with clients of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.dispatcher import open_dispatcher
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_storage.bucket import ShardKey
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.member import Member
from tests.simulation.cluster_world.gateway import LIMITS, Gateway
from tests.simulation.cluster_world.links import NodeNetwork
from tests.simulation.replicated.cache import SimulatedLeases
from tests.simulation.replicated.process import SETTINGS, Process
from tests.simulation.replicated.witness import ProcessWitness

if TYPE_CHECKING:
    from tests.simulation.clients import Client, Connection
    from tests.simulation.cluster_world.cluster import ClusterOfNodes

CLUSTER = ClusterSettings(
    look_ms=100, heart_ms=150, judge_ms=900, haste_ms=300, redial_base_ms=10, redial_max_ms=200,
    shard_bytes=2_000, repeat_bytes=20_000, publish_ms=3_000, reroute_ms=20, tenure_ms=1_500,
    moves=2, place_ms=300, pair_ms=500, hold_bytes=1_000, yield_ms=200, leave_ms=2_000,
)  # fmt: skip
"""Short times, so that much happens; few bytes, so that publishers wait."""


class ClusterNode(Process):
    cluster: ClusterOfNodes

    def __init__(self, cluster: ClusterOfNodes, member: str, life: int, port: int) -> None:
        """`member` is what it is called in every life of its."""
        super().__init__(cluster, f"{member}.{life}")
        self.member = member
        self.address = f"{member}:{port}"
        self.network = NodeNetwork(cluster.air, self)
        self.gateway: Gateway | None = None

    @property
    def process(self) -> str:
        assert self._store is not None
        return self._store.ownership.process

    async def _work(self, store: CassandraStore) -> None:
        witness = ProcessWitness(self, store, self.cluster.known, self.cluster.bodies)
        leases = SimulatedLeases(self, self.cluster.redis)
        self.clock = Clock(lambda: self.wall() / 1000)
        member = Member(
            process="", name=self.member, address=self.address, roles=("gateway", "dispatcher")
        )
        async with (
            open_dispatcher(
                witness, leases, clock=self.clock, settings=SETTINGS, bounds=self.cluster.bounds,
                chance=self.world.rng.random, prefix=self._prefix, owner=self.member,
                network=self.network, member=member, cluster=CLUSTER, limits=LIMITS,
            ) as dispatcher,
            trio.open_nursery() as nursery,
        ):  # fmt: skip
            self.gateway = Gateway(self, dispatcher, nursery)
            self.dispatcher, self._tasks = dispatcher, nursery
            await self._stop.wait()
            await dispatcher.leave()
            await self.gateway.sessions.drain()
            self.dispatcher = None
            self.cluster.leave(self)
            nursery.cancel_scope.cancel()
        await leases.close()

    def kill(self) -> None:
        if not self.dead:
            super().kill()
            self.cluster.air.died(self, machine=self.world.rng.random() < 0.3)
            self.cluster.leave(self)

    def pause(self, ms: int) -> None:
        if not self.paused:
            super().pause(ms)
            self.cluster.air.fell_silent(self)

    # As clients see it

    @property
    def alive(self) -> bool:
        return self.dispatcher is not None and not self.dead

    @property
    def now(self) -> int:
        return self.world.now

    def guarded(self, action: Callable[..., None]) -> Callable[..., None]:
        """The action, when the node is not paused, and if it serves by then."""

        def run(*args: Any) -> None:
            if self.alive:
                action(*args)

        return lambda *args: self.take(run, *args)

    def answer(self, client: Client, conn: Connection | None, action: Any, *args: Any) -> None:
        """To a client, over a connection that it has."""

        def answer() -> None:
            if conn is not None and client.conn is conn:
                conn.answer(action, *args)

        self.send_now(answer)

    # Its shards

    def runner(self, key: ShardKey) -> ShardRunner | None:
        """A shard that is open here."""
        if self.dispatcher is None or self.dead:
            return None
        return self.dispatcher._shards.running(key)
