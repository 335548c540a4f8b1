"""The dispatcher: queues by name, their shards opened when they are needed.

    async with open_dispatcher(store, leases) as dispatcher:
        queue = await dispatcher.open("default", "orders", create=True)
        await queue.publish([...])

Every task of it lives inside that block. Leaving it in good order closes the shards: what was
accepted is stored and answered. An error or a cancellation ends them at once, with their callers
told that the outcome is unknown.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeVar

import msgspec
import trio

from pushlane.wire.errors import BadRequest, Conflict, NotFound, Unavailable
from pushlane.wire.limits import DEFAULTS, Limits
from pushlane_dispatcher.browsing import lookup
from pushlane_dispatcher.browsing.all_shards import Lookable, ask_each, stats_of
from pushlane_dispatcher.browsing.backlog import Page, peek
from pushlane_dispatcher.browsing.dropping import MOST, BucketName, Dropped, drop_archived
from pushlane_dispatcher.browsing.question import EVERYTHING, FlushUsage, ListConsumers, Look
from pushlane_dispatcher.browsing.redrive import Redrive, Redriven
from pushlane_dispatcher.browsing.redrive_call import redrive
from pushlane_dispatcher.browsing.standing import Standing, standing_of, stored_standing
from pushlane_dispatcher.browsing.view import Views
from pushlane_dispatcher.callers.door import Caller, Door
from pushlane_dispatcher.callers.publication import Publication
from pushlane_dispatcher.clock import Clock, adopt_time
from pushlane_dispatcher.cluster.cluster import Cluster, Network
from pushlane_dispatcher.cluster.sessions import SharedSessions
from pushlane_dispatcher.cluster.settings import ClusterSettings
from pushlane_dispatcher.cluster.status import ALONE, ClusterStatus
from pushlane_dispatcher.context import Context, make_prefix
from pushlane_dispatcher.core.bodies import Budget
from pushlane_dispatcher.core.bounds import Bounds
from pushlane_dispatcher.core.departures import Unsent
from pushlane_dispatcher.core.explain import Explanation, Stats
from pushlane_dispatcher.core.looking import ConsumerInfo
from pushlane_dispatcher.core.places import Claims
from pushlane_dispatcher.heart import Heart
from pushlane_dispatcher.queues.due import DueShards
from pushlane_dispatcher.queues.manager import Manager
from pushlane_dispatcher.queues.open_queue import OpenQueue
from pushlane_dispatcher.queues.queues import Name, Queues, store_answers
from pushlane_dispatcher.queues.transfers import Transfers
from pushlane_dispatcher.recording.recorder import Recorder
from pushlane_dispatcher.settings import Settings
from pushlane_dispatcher.shard.lease_guard import LeaseGuard
from pushlane_dispatcher.shard.port import ShardPort
from pushlane_dispatcher.shard.runner import ShardRunner
from pushlane_dispatcher.shard.shards import Shards
from pushlane_dispatcher.upkeep import Upkeep
from pushlane_dispatcher.usage.report import UsagePoint
from pushlane_dispatcher.usage.writer import UsageWriter
from pushlane_leases.interface import LeaseCache
from pushlane_storage.bucket import ShardKey
from pushlane_storage.interface import Backend, StoreError
from pushlane_storage.member import Member
from pushlane_storage.message import Message
from pushlane_storage.note import DueShard
from pushlane_storage.queue import QueueConfig, QueueRow

log = logging.getLogger(__name__)
A = TypeVar("A")


@asynccontextmanager
async def open_dispatcher(
    store: Backend,
    leases: LeaseCache | None = None,
    *,
    clock: Clock | None = None,
    settings: Settings | None = None,
    bounds: Bounds | None = None,
    limits: Limits = DEFAULTS,
    chance: Callable[[], float] = random.random,
    prefix: Callable[[], str] = make_prefix,
    owner: str | None = None,
    recorder: Recorder | None = None,
    network: Network | None = None,
    member: Member | None = None,
    cluster: ClusterSettings | None = None,
) -> AsyncIterator[Dispatcher]:
    """`owner` names this process in the slots' rows. With a `network`, and what it is to be known
    as there, it is a node of a cluster."""
    clock = clock or Clock()
    settings = settings or Settings()
    guard = None if leases is None else LeaseGuard(leases, clock, settings, store.ownership.confirm)
    bounds = bounds or Bounds()
    if network is not None:  # clients may come back at any node, when theirs died with the owner
        adopt_ms = max(bounds.adopt_ms, limits.resume_ms)
        bounds = msgspec.structs.replace(bounds, adopt_ms=adopt_ms)
    budget = Budget(settings.windows_bytes, settings.open_shards, bounds.window_bytes)
    cluster = cluster or ClusterSettings()
    heart = Heart() if network is None else Heart(store.ownership, cluster.judge_ms // 2)
    context = Context(
        store, guard, clock, settings, bounds, limits, chance, prefix, recorder, heart, budget
    )
    error: Exception | None = None
    try:
        await adopt_time(clock, store)
    except StoreError as fault:
        log.warning("the store does not say what time it is: %s", fault)
    async with trio.open_nursery() as nursery:
        dispatcher = Dispatcher(context, nursery, owner or f"node-{secrets.token_hex(8)}")
        if network is not None:
            assert member is not None
            dispatcher.join(network, member, cluster)
        dispatcher.upkeep.start(nursery)
        try:
            yield dispatcher
            await dispatcher.aclose()
        except Exception as raised:
            error = raised  # not from inside the nursery: it would come out in a group
        nursery.cancel_scope.cancel()
    if error is not None:
        raise error


class Dispatcher:
    def __init__(self, context: Context, nursery: trio.Nursery, owner: str) -> None:
        self._context = context
        self.chance = context.chance
        self._nursery = nursery
        self.start_soon = nursery.start_soon
        """For what outlives a call; such tasks end with the dispatcher."""
        self.clock = context.clock
        self.leases = context.leases
        self._queues = Queues(context, lambda row: self._manager.finish_soon(row))
        self.usage_writer = UsageWriter(context, f"{owner}.{secrets.token_hex(4)}")
        self._shards = Shards(
            context,
            nursery,
            owner,
            lambda tenant: self._transfers.of(tenant),
            self._shard_stopped,
            self._queues.confirm,
            self.usage_writer,
        )
        self.due = DueShards(
            context.store.ownership, context.settings, context.clock.wall, self._open_due,
            lambda slot: self.cluster is None or self.cluster.belongs_here(slot),
        )  # fmt: skip
        self._open: dict[Name, OpenQueue] = {}
        self._views = Views(context, self._shards.running, self._look_elsewhere)
        self._manager: Manager = Manager(
            self._queues, self._shards, self.usage_writer, nursery, context.settings,
            self._take_up,
        )  # fmt: skip
        manager = self._manager
        self.create, self.ensure = manager.create, manager.ensure
        self._transfers = Transfers(self.publish, self.ensure, context.limits.message_bytes)
        self.get, self.list = manager.get, manager.list
        self.update, self.delete = manager.update, manager.delete
        usage = self.usage_writer
        self.connected, self.disconnected = usage.connected, usage.disconnected
        self.put_bills = usage.put_bills
        self.upkeep = Upkeep(
            context, self._shards, self._queues, manager, self.due, usage, self._take_up
        )
        self.cluster: Cluster | None = None
        """With the other nodes of a cluster."""
        self.sessions: SharedSessions | None = None
        """What gateways of a cluster leave to each other; None where nobody could take it."""

    def join(self, network: Network, member: Member, settings: ClusterSettings) -> None:
        """Be a node among others from now on."""
        context = self._context
        self.cluster = cluster = Cluster(
            context.store.ownership, settings, member, network, self._shards, context.clock.now,
            context.clock.wall, context.chance, context.limits.resume_ms, self._nursery,
            self.open, self._row_of, self._queue_stopped,
        )  # fmt: skip
        if self.leases is not None and self.leases.instant is None:
            process = context.store.ownership.process
            self.sessions = SharedSessions(self.leases, cluster, process, settings.yield_ms)
        self._nursery.start_soon(cluster.run)

    @property
    def most_credit(self) -> int:
        """Of one subscription."""
        return self._context.bounds.credit

    @property
    def open_shards(self) -> int:
        return len(self._shards)

    def window_numbers(self) -> dict[str, int]:
        """What waits in memory, and what was left to the store for want of room."""
        budget = self._context.budget
        sums = self._shards.window_numbers()
        return {**sums, "bytes": budget.used, "squeezes": budget.squeezes}

    @property
    def was_fenced(self) -> bool:
        """Others took over what it had, a short while ago."""
        lost_at = self._shards.lost_at
        return lost_at is not None and self.clock.now() - lost_at < self._context.settings.fenced_ms

    @property
    def seems_dead(self) -> bool:
        """To others: its heartbeats do not reach the store, and it grants nothing."""
        return self._context.heart.stands_still

    def heart_numbers(self) -> dict[str, int]:
        """How well others can see that it lives."""
        heart, ownership = self._context.heart, self._context.store.ownership
        return {
            "failing_ms": ownership.beat_failing_ms,
            "stands_still": heart.stands_still,
            "stops": heart.stops,
        }

    def store_numbers(self) -> dict[str, int]:
        """What the store counts, and how big it is."""
        return msgspec.structs.asdict(self._context.store.stats())

    def lease_numbers(self) -> dict[str, int]:
        """How the lease cache does; nothing when it is in this process, or there is none."""
        guard = self.leases
        if guard is None or guard.instant is not None:
            return {}
        return {
            "broken": guard.broken,
            "failures": guard.failures,
            "forgotten": guard.forgotten,
            "overruled": guard.overruled,
            "skipped": guard.skipped,
            "trips": guard.trips,
        }

    def usage_numbers(self) -> dict[str, int]:
        """How writing usage does."""
        return {"failures": self.usage_writer.failures, "lost": self.usage_writer.lost}

    async def cluster_status(self) -> ClusterStatus:
        """The nodes that share the store, as this one sees them."""
        return ALONE if self.cluster is None else await self.cluster.observer.status()

    async def set_draining(self, node: str, draining: bool) -> None:
        """Have a node give its slots to the others, or let it take some again."""
        if self.cluster is None:
            raise NotFound("there is no cluster: this server's store is its own")
        with store_answers(f"node {node}"):
            await self.cluster.set_draining(node, draining)

    def due_numbers(self) -> dict[str, int]:
        """What was done for queues that nobody used."""
        return {"opened": self.due.opened}

    def endings(self) -> dict[str, int]:
        """How many messages ended without an ack since the start, by cause."""
        return self._context.endings

    def transfer_numbers(self) -> dict[str, int]:
        """How messages fare that go from one queue to another."""
        return {**self._transfers.numbers(), "leaving": self._shards.leaving}

    def clock_numbers(self) -> dict[str, int]:
        """How far the clocks disagree, and what that pauses."""
        clock = self.clock
        return {
            "doubted": clock.doubted,
            "store_ahead_ms": clock.store_ahead,
            "suspect_shards": self._shards.clock_suspects,
            "system_ahead_ms": clock.system_ahead,
        }

    def history_numbers(self) -> dict[str, int]:
        """How the recorder does; nothing when there is none."""
        recorder = self._context.recorder
        return {} if recorder is None else recorder.numbers()

    async def leave(self) -> None:
        """Give to other nodes what they can have. Everything goes on meanwhile."""
        if self.cluster is not None:
            await self.cluster.leave()

    async def aclose(self) -> None:
        """Finish what was accepted and close every shard. Nothing opens any more."""
        await self._shards.close()
        await self.usage_writer.flush()

    async def _open_due(self, due: DueShard) -> bool:
        """Open a shard because of its note. False: it is open anyway, or was deleted."""
        key = ShardKey(due.queue_id, due.shard)
        if key in self._shards:
            return False
        try:
            row = await self._queues.get(due.tenant, due.queue)
        except NotFound:
            return False
        if row.id != due.queue_id:
            return False
        await self._shards.open(row, due.shard)
        return True

    # Using queues

    def is_open(self, tenant: str, name: str) -> bool:
        """Whether a queue is open here."""
        return self.opened(tenant, name) is not None

    def opened(self, tenant: str, name: str) -> OpenQueue | None:
        """A queue that is open anyway: what `open` would answer without waiting."""
        found = self._open.get((tenant, name))
        return found if found is not None and found.running and found.claimed else None

    async def open(
        self, tenant: str, name: str, *, create: bool = False, claims: Claims | None = None
    ) -> OpenQueue:
        """A queue with all its shards open. `create`: with defaults, when there is none.

        With `claims` its shards count for who opened them: one that was opened without, to be
        looked at or for its dead letters, counts for the first who says who they are.
        """
        found = self._found(tenant, name, claims)
        if found is not None:
            return found
        if create:
            await self.ensure(tenant, name, QueueConfig())
        async with self._manager.lock(tenant, name):
            found = self._found(tenant, name, None)
            if found is not None:
                await self._claim(found, claims)
                return found
            row = await self._queues.read(tenant, name)
            if not row.deleting:
                return await self._open_queue(row, claims)
        await self._manager.finish(tenant, name)
        raise NotFound(f"there is no queue {name}")

    async def open_shard(
        self, tenant: str, name: str, queue_id: str, number: int, claims: Claims | None = None
    ) -> ShardPort:
        """One shard of a queue, though others may not be there. `NotFound` when the queue is
        another one by now."""
        found = self._found(tenant, name, claims)
        if found is None and self.cluster is not None:
            row = await self._row_of(tenant, name, queue_id)
            return await self._open_shard(row, number, claims)
        queue = found or await self.open(tenant, name, claims=claims)
        if queue.row.id != queue_id:
            raise NotFound(f"queue {name} was deleted")
        return queue.shards[number]

    async def open_for(self, caller: Caller, name: str) -> OpenQueue:
        """The same for a caller, who may have it made."""
        found = self.opened(caller.tenant, name)
        if found is not None:
            return found
        if caller.template is not None:
            await self._make_for(caller, name, caller.template)
        return await self.open(caller.tenant, name, claims=caller.claims)

    def remember(self, keep_ms: int, most: int) -> None:
        """For how long, and of how many receives, it is known which receipts were settled."""
        self._context.settled.keep_ms = keep_ms
        self._context.settled.most = most

    def door(self, caller: Caller, failed: Callable[[Exception], None]) -> Door:
        return Door(self, caller, failed)

    def _found(self, tenant: str, name: str, claims: Claims | None) -> OpenQueue | None:
        """A queue that is open, for these or for anybody."""
        found = self._open.get((tenant, name))
        if found is None or not found.running or (claims is not None and not found.claimed):
            return None
        return found

    async def _claim(self, queue: OpenQueue, claims: Claims | None) -> None:
        """A queue that is open counts for these from now on, unless it counts for somebody."""
        if claims is not None and not queue.claimed:
            row = queue.row
            await self._open_shards(row, claims)
            queue.claimed = True

    async def _open_queue(self, row: QueueRow, claims: Claims | None) -> OpenQueue:
        shards = await self._open_shards(row, claims)
        opened = OpenQueue(row, shards, self._context.chance)
        opened.claimed = claims is not None
        self._open[row.tenant, row.name] = opened
        if self.cluster is not None:
            self.cluster.repeats.flush(opened)
        # It may have been changed until its slots were ours; and some of its shards may have been
        # open for longer than that, for what is due in them.
        self._take_up(await self._queues.read(row.tenant, row.name))
        return opened

    async def _open_shards(self, row: QueueRow, claims: Claims | None) -> list[ShardPort]:
        """The first one decides who gets them all; the others recover together."""
        count = row.config.shards
        runners: dict[int, ShardPort] = {0: await self._open_shard(row, 0, claims)}
        faults: list[Exception] = []

        async def open_one(number: int) -> None:
            try:
                runners[number] = await self._open_shard(row, number, claims)
            except Exception as error:
                faults.append(error)

        async with trio.open_nursery() as nursery:
            for number in range(1, count):
                nursery.start_soon(open_one, number)
        if faults:
            if self.cluster is None:
                await self._shards.close_idle_of(row)  # another server may get them all
            raise faults[0]
        return [runners[number] for number in range(count)]

    async def _open_shard(self, row: QueueRow, number: int, claims: Claims | None) -> ShardPort:
        if self.cluster is None:
            return await self._shards.open(row, number, claims)
        return await self.cluster.router.open(row, number, claims)

    async def _row_of(self, tenant: str, name: str, queue_id: str) -> QueueRow:
        """The row of a queue that another node asks for; `NotFound` when it is another one."""
        row = await self._queues.get(tenant, name)
        if row.id != queue_id:
            row = await self._queues.read(tenant, name)
        if row.id != queue_id or row.deleting:
            raise NotFound(f"queue {name} was deleted")
        return row

    async def publish(
        self,
        tenant: str,
        name: str,
        messages: list[Message],
        lanes: Sequence[int] | None = None,
        *,
        create: bool = False,
    ) -> Publication:
        return await (await self.open(tenant, name, create=create)).publish(messages, lanes)

    async def _make_for(self, caller: Caller, name: str, config: QueueConfig) -> None:
        """`ensure` for who is about to open it. Who may not is refused before there is a queue."""
        with suppress(NotFound):
            await self._queues.get(caller.tenant, name)
            return
        await self._shards.check_room(caller.claims)
        await self.ensure(caller.tenant, name, config)

    async def purge(self, tenant: str, name: str, claims: Claims | None = None) -> int:
        """How many messages went."""
        return await (await self.open(tenant, name, claims=claims)).purge()

    async def redrive(
        self,
        tenant: str,
        name: str,
        wanted: Redrive,
        after: str = "",
        claims: Claims | None = None,
    ) -> Redriven:
        """Send dead letters back to where they came from, or to another queue.

        It may take several calls: `after` is where the last one said to go on.
        """
        if wanted.max < 1:
            raise BadRequest(f"max is {wanted.max}: at least 1")
        if wanted.to == name:
            raise BadRequest("dead letters can't be redriven to the queue they are in")
        if wanted.to is not None:
            await self._queues.get(tenant, wanted.to)
        queue = await self.open(tenant, name, claims=claims)
        return await redrive(queue, wanted, after)

    async def expire(
        self, tenant: str, name: str, queue_id: str, claims: Claims | None = None
    ) -> None:
        """Have what is past its retention end now: shards see to it as soon as they are open.

        `Conflict` when the queue is another one of the same name.
        """
        await self._open_that(tenant, name, queue_id, claims)

    async def _open_that(
        self, tenant: str, name: str, queue_id: str, claims: Claims | None
    ) -> OpenQueue:
        queue = await self.open(tenant, name, claims=claims)
        if queue.row.id != queue_id:
            raise Conflict(
                f"queue {name} was deleted and created again: it is no longer {queue_id}"
            )
        return queue

    async def drop_buckets(
        self,
        tenant: str,
        name: str,
        queue_id: str,
        names: Sequence[BucketName],
        claims: Claims | None = None,
    ) -> Dropped:
        """Drop what was archived, as far as nobody needs it; before that, what must end ends."""
        if len(names) > MOST:
            raise BadRequest(f"{len(names)} buckets: at most {MOST}")
        return await drop_archived(await self._open_that(tenant, name, queue_id, claims), names)

    # Looking

    async def _look(self, tenant: str, name: str) -> Lookable:
        """What is open here, else what is stored: who only looks takes nothing from anybody."""
        found = self._found(tenant, name, None)
        return found or self._views.of(await self._queues.get(tenant, name))

    async def _look_elsewhere(self, key: ShardKey, question: Look[A]) -> A:
        if self.cluster is None:
            raise Unsent("there are no other nodes to ask", retry_ms=1_000)
        return await self.cluster.router.look(key, question)

    @contextmanager
    def _in_time(self, name: str) -> Iterator[None]:
        """Who looks at a queue may read for so long, and wait for others who do; no longer."""
        with trio.move_on_after(self._context.settings.peek_ms / 1000) as scope:
            yield
        if scope.cancelled_caught:
            raise Unavailable(f"the store takes too long to read {name}", retry_ms=1_000)

    async def stats(self, tenant: str, name: str) -> Stats:
        with self._in_time(name):
            return await stats_of(await self._look(tenant, name))

    async def standing(self, tenant: str, name: str) -> Standing:
        """What a list of queues shows of one: from memory, or from what is stored."""
        if self.cluster is not None:
            with self._in_time(name):
                return await standing_of(await self._look(tenant, name), self.clock.wall())
        opened = self.opened(tenant, name)
        if opened is not None:
            return await standing_of(opened, self.clock.wall())
        stats = await self.stats(tenant, name)
        alone = not self._context.store.ownership.shared
        return stored_standing(stats, self.clock.wall(), alone)

    async def explain(self, tenant: str, name: str, message_id: str) -> Explanation:
        """Where a message stands and why, or how it ended."""
        with self._in_time(name):
            return await lookup.explain(await self._look(tenant, name), message_id)

    async def message(self, tenant: str, name: str, message_id: str) -> tuple[Message, int]:
        """A message that has not ended, and how often it was started."""
        with self._in_time(name):
            return await lookup.find(await self._look(tenant, name), message_id)

    async def cancel(
        self, tenant: str, name: str, message_id: str, claims: Claims | None = None
    ) -> None:
        """End a delayed message. `Conflict` when it is not delayed (any more)."""
        queue = await self.open(tenant, name, claims=claims)
        await lookup.cancel(queue, message_id)

    async def peek(
        self, tenant: str, name: str, limit: int, after: str = "", most_bytes: int = EVERYTHING
    ) -> Page:
        """What would be delivered next; `after` is where another peek said to go on.

        About `most_bytes` are read for it, and more than they allow is left out.
        """
        with self._in_time(name):
            return await peek(await self._look(tenant, name), limit, after, most_bytes)

    async def consumers(self, tenant: str, name: str) -> list[ConsumerInfo]:
        """Without a cluster only those on this server: what is stored names nobody, so that is
        not read."""
        queue: Lookable | None = self._found(tenant, name, None)
        if self.cluster is not None:
            queue = await self._look(tenant, name)
        if queue is None:
            await self._queues.get(tenant, name)
            return []
        found = await ask_each(queue.shards, lambda shard: shard.ask(ListConsumers()))
        return [info for part in found for info in part]

    async def usage(
        self,
        tenant: str,
        first: int,
        last: int,
        step: int,
        queue: str | None,
        most: int,
        claims: Claims | None = None,
    ) -> list[UsagePoint]:
        """What queues did from one minute to another, in stretches of `step` minutes.

        Of one queue it is exact up to now. `BadRequest` when there are more than `most` points.
        """
        if queue is not None:
            await self._settle_usage(tenant, queue, claims)
        await self.usage_writer.flush()
        return await self.usage_writer.report(tenant, first, last, step, queue, most)

    async def _settle_usage(self, tenant: str, name: str, claims: Claims | None) -> None:
        """Have written what a queue's shards know; one that is gone has nothing to tell.

        After a crash, opening it writes what its owner could not. Where another server may be that
        owner, nothing is opened for who only looks: then it is written with the next opening.
        """
        opened = self._found(tenant, name, None)
        if opened is None:
            if self._context.store.ownership.shared:
                return
            try:
                opened = await self.open(tenant, name, claims=claims)
            except NotFound:
                return
        await ask_each(opened.shards, lambda shard: shard.ask(FlushUsage()))

    # Behind the scenes

    def _take_up(self, row: QueueRow) -> None:
        """Have what is open of a queue, or of some of its shards, go by its row."""
        opened = self._open.get((row.tenant, row.name))
        if opened is not None and opened.row.id != row.id:
            opened = None
        if opened is not None and opened.row.version > row.version:
            return  # it was read before somebody changed it again
        self._shards.configure(row)
        if opened is not None:
            opened.configure(row)

    def _shard_stopped(self, row: QueueRow, runner: ShardRunner | None) -> None:
        self._queue_stopped(row)
        if self.cluster is not None and runner is not None:
            self.cluster.shard_stopped(runner)

    def _queue_stopped(self, row: QueueRow) -> None:
        """A shard of it has stopped, here or elsewhere."""
        found = self._open.get((row.tenant, row.name))
        if found is not None and found.row.id == row.id:
            del self._open[row.tenant, row.name]
