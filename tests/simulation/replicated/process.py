"""A process: the real dispatcher on the real store and the real lease cache, in a world of models.

It can be paused: nothing leaves it and nothing reaches it, however long, and then it goes on as if
nothing was. It can be killed in the middle of anything, or stopped in good order. Whatever it had
sent arrives all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import trio

from pushlane.wire.errors import PushlaneError
from pushlane_dispatcher.clock import Clock
from pushlane_dispatcher.dispatcher import Dispatcher, open_dispatcher
from pushlane_dispatcher.queues.queues import Elsewhere
from pushlane_dispatcher.settings import Settings
from pushlane_history import event as history
from pushlane_storage.cassandra.limits import Limits
from pushlane_storage.cassandra.store import CassandraStore
from pushlane_storage.interface import StoreError, StoreUnknown
from tests.simulation.population import TENANT
from tests.simulation.replicated.cache import SimulatedLeases
from tests.simulation.replicated.ring import Reply, SimulatedRing
from tests.simulation.replicated.tenure import Tenure
from tests.simulation.replicated.witness import ProcessWitness
from tests.simulation.world import EPOCH_MS

if TYPE_CHECKING:
    from tests.simulation.replicated.cluster import ReplicatedCluster

LIMITS = Limits(
    beat_ms=150, judge_ms=600, poll_ms=70, alive_ms=200, close_ms=1_500, decisions=5, page_rows=4,
    batch_rows=2, places=4, reads=4,
)  # fmt: skip
"""Small, so that reads take several pages, what is known is forgotten, and owners change often."""
SETTINGS = Settings(
    shared_idle_ms=1_000, row_ms=300,
    decide_ms=4_000, repeat_base_ms=15, repeat_max_ms=300, close_ms=1_500, room_ms=1_000,
    cache_ms=60, cache_claim_ms=300, cache_failures=3, cache_rest_ms=500, clock_ms=1_000,
    open_ms=10_000, recovery_reads=4, compare_ms=3_000,
)  # fmt: skip

LOOK_MS = 700
"""How often a process looks who else is there."""


class Process:
    def __init__(self, cluster: ReplicatedCluster, name: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.scope = trio.CancelScope()
        self.dead = False
        self.paused = False
        self.skew = self._draw_skew()
        """How far its wall clock is wrong."""
        self.clock: Clock | None = None
        self.stamp_skew = self._draw_stamp_skew()
        """How far the clock is wrong that stamps what the store gives no stamp."""
        self.tenures: dict[str, Tenure] = {}
        """By the name of the queue that it serves, or thinks that it does."""
        self.dispatcher: Dispatcher | None = None
        self._tasks: trio.Nursery | None = None
        self._opening: set[str] = set()
        self._stop = trio.Event()
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._waits: dict[Reply, None] = {}
        self._store: CassandraStore | None = None
        self._prefixes = 0

    def _draw_stamp_skew(self) -> int:
        if self.world.calm or self.world.rng.random() < 0.5:
            return 0
        self.world.fault("clock.stamps")
        return self.world.rng.choice((-30_000, -3_000, 3_000, 30_000))

    def _draw_skew(self) -> int:
        if not self.world.happens(10 * self.world.ring_chances.clock_jump):
            return 0
        skew = self.world.rng.choice(self.cluster.steps)
        self.world.fault("clock.ahead" if skew > 0 else "clock.behind")
        return skew

    def wall(self) -> int:
        return EPOCH_MS + self.world.now + self.skew

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def at_work(self) -> bool:
        """It takes requests."""
        return self.dispatcher is not None and not self.is_away and not self.stopping

    @property
    def is_away(self) -> bool:
        """Nobody here waits for an answer, at least for now."""
        return self.dead or self.paused

    # Its network

    def send(self, action: Callable[..., None], *args: Any) -> None:
        """A request leaves."""
        if self.paused:
            self._held.append((self.send, (action, *args)))
        elif not self.dead:
            self.world.after(self.world.latency(), action, *args)

    def send_now(self, action: Callable[..., None], *args: Any) -> None:
        """The same, when the way takes its own time."""
        if self.paused:
            self._held.append((self.send_now, (action, *args)))
        elif not self.dead:
            action(*args)

    def receive(self, action: Callable[..., None], *args: Any) -> None:
        """An answer is on its way here."""
        self.world.after(self.world.latency(), self.take, action, *args)

    def take(self, action: Callable[..., None], *args: Any) -> None:
        """Something arrives."""
        if self.paused:
            self._held.append((self.take, (action, *args)))
        elif not self.dead:
            action(*args)

    async def wait(self, ask: Callable[[Reply], None]) -> Any:
        """For the store's answer. Of a process that is dead nobody waits any more, not even where
        it can't be cancelled."""
        if self.dead:
            raise StoreUnknown("its process is dead")
        reply = Reply()
        ask(reply)
        self._waits[reply] = None
        try:
            return await reply.wait()
        finally:
            del self._waits[reply]

    # What befalls it

    def maybe_fail(self, where: str) -> None:
        """Now, of all moments: with requests under way."""
        world, chances = self.world, self.world.ring_chances
        if self.dead or self.paused:
            return
        if world.happens(chances.kill_request):
            world.fault(f"kill.{where}")
            self.kill()
        elif world.happens(chances.pause_request):
            world.fault(f"pause.{where}")
            self.cluster.pause(self)

    def kill(self) -> None:
        if not self.dead:
            self.dead = True
            self._held.clear()
            self.world.record(history.Crash(self.world.now, self.name))
            if self._store is not None:
                self._store.ownership.abandon()
            self.scope.cancel()
            for reply in self._waits:
                reply(None, StoreUnknown("its process is dead"))
            self._end_tenures()

    def stop(self) -> None:
        """In good order: everything is given back."""
        self._stop.set()

    def pause(self, ms: int) -> None:
        if not self.paused:
            self.paused = True
            self.world.after(ms, self.resume)

    def resume(self) -> None:
        if self.paused:
            self.paused = False
            held, self._held = self._held, []
            for action, args in held:
                action(*args)

    # Its life

    async def run(self) -> None:
        with self.scope:
            await self._live()
        self._end_tenures()
        self.dead = True
        self.cluster.over(self)

    async def _live(self) -> None:
        async with AsyncExitStack() as stack:
            self._store = store = await self._join(stack)
            await self._work(store)
        self.world.record(history.Crash(self.world.now, self.name, clean=True))

    async def _work(self, store: CassandraStore) -> None:
        witness = ProcessWitness(self, store, self.cluster.known, self.cluster.bodies)
        assert witness.ownership.shared, "or nothing that is not stored is confirmed"
        leases = SimulatedLeases(self, self.cluster.redis)
        self.clock = Clock(lambda: self.wall() / 1000)
        async with (
            open_dispatcher(
                witness, leases, clock=self.clock, settings=SETTINGS,
                bounds=self.cluster.bounds, chance=self.world.rng.random, prefix=self._prefix,
                owner=self.name,
            ) as dispatcher,
            trio.open_nursery() as nursery,
        ):  # fmt: skip
            self.dispatcher, self._tasks = dispatcher, nursery
            nursery.start_soon(self._look_around, store)
            await self._stop.wait()
            self.dispatcher = None
            nursery.cancel_scope.cancel()
        await leases.close()

    async def _look_around(self, store: CassandraStore) -> None:
        """See who is there, again and again."""
        while True:
            await trio.sleep(LOOK_MS / 1000)
            try:
                members = await store.ownership.members()
            except StoreError:
                continue
            found = [member.process for member in members]
            assert found == sorted(set(found)), "somebody is there twice"
            assert store.ownership.process in found, "it does not see itself"
            if len(found) > 1:
                self.world.fault("members.others")

    def _prefix(self) -> str:
        self._prefixes += 1
        return f"{self.name}:{self._prefixes}"

    async def _join(self, stack: AsyncExitStack) -> CassandraStore:
        ring = SimulatedRing(self, self.cluster.network)
        while True:
            try:
                return await stack.enter_async_context(
                    CassandraStore.over(
                        ring, LIMITS, address=self.name, randbytes=self.world.rng.randbytes,
                        wall=self.wall,
                    )
                )  # fmt: skip
            except StoreError:
                await trio.sleep(0.1)

    # Its work

    def want(self, queue: str) -> None:
        """A client asks for a queue that is not open here."""
        if self.at_work and queue not in self._opening:
            self._opening.add(queue)
            self._start(self._serve, queue)

    def manage(self, action: Callable[[Dispatcher], Awaitable[object]]) -> None:
        """An operator asks for something."""
        if self.at_work:
            self._start(self._manage, action)

    def _start(self, task: Callable[..., Awaitable[None]], *args: Any) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(task, self.dispatcher, *args)

    async def _manage(
        self, dispatcher: Dispatcher, action: Callable[[Dispatcher], Awaitable[object]]
    ) -> None:
        try:
            await action(dispatcher)
        except PushlaneError:
            self.world.fault("queue.not_managed")

    async def _serve(self, dispatcher: Dispatcher, queue: str) -> None:
        """Own a queue for as long as that lasts."""
        try:
            opened = await dispatcher.open(TENANT, queue)
        except Elsewhere:
            self.world.fault("process.refused")
            return
        except PushlaneError:
            return
        finally:
            self._opening.discard(queue)
        tenure = Tenure(self, opened)
        if not tenure.alive or self.stopping:
            return
        tenure.audit()
        self.tenures[queue] = tenure
        await tenure.last()
        self._end_tenure(tenure)

    def _end_tenures(self) -> None:
        for tenure in list(self.tenures.values()):
            self._end_tenure(tenure)

    def _end_tenure(self, tenure: Tenure) -> None:
        if self.tenures.get(tenure.name) is tenure:
            del self.tenures[tenure.name]
        tenure.ended = True
        if not self.dead:
            tenure.send_away()
        self.cluster.lose(tenure)
