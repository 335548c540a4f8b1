"""Links break, shards move, nodes die, at random: what is promised holds all the same.

Credit that shards of several owners share is never exceeded, and nobody starves; nothing that was
acknowledged is lost, nothing is granted after its confirmed ack, keys keep their order, and when it
is over everything drains.
"""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import trio
from trio._core import _run as scheduler
from trio.testing import MockClock

from pushlane.wire.receipts import ReceiptRun
from pushlane_dispatcher.callers.feed import Spec
from pushlane_dispatcher.callers.gather import Gather
from pushlane_dispatcher.core.act import ACK
from pushlane_dispatcher.core.effects import Run
from tests.dispatcher.cluster.test_cluster import HOUR, Client, make
from tests.dispatcher.cluster.world import World, cluster, until
from tests.dispatcher.rig import TENANT, message
from tests.dispatcher.subscriber import Subscriber

KEYS, EACH = 12, 10
SECONDS = 20


class Judge:
    """Knows what was promised to whom. A message is its key's number and its own."""

    def __init__(self) -> None:
        self.stored: set[tuple[int, int]] = set()
        self.asked: set[tuple[int, int]] = set()
        """Somebody tried to ack them."""
        self.acked: set[tuple[int, int]] = set()
        self.unknown: set[tuple[int, int]] = set()
        """An ack of theirs may have counted: the next one may find them lost."""
        self.faults: list[str] = []
        self.told: list[tuple[float, str, int, int, int]] = []
        """All that came, and when."""

    def granted(self, place: tuple[int, int]) -> None:
        if place in self.acked:
            self.faults.append(f"{place} was acked before")
        key, n = place
        before = {(key, m) for m in range(n)}
        if not before <= self.asked:
            self.faults.append(f"{place} came before {sorted(before - self.asked)}")


class Consumer(Subscriber):
    """Acks what it has, a little later."""

    def __init__(self, judge: Judge, credit: int) -> None:
        super().__init__()
        self.judge = judge
        self.credit = credit
        self.has: dict[tuple[str, int], tuple[int, int]] = {}

    def deliver(
        self, runs: list[Run], place: str, prefix: str | None, lease_ms: int | None, again: bool
    ) -> None:
        assert prefix is not None
        for run in runs:
            for n, one in enumerate(run.messages, run.n):
                key, number = map(int, one.body.split())
                self.judge.granted((key, number))
                self.has[prefix, n] = key, number
                self.judge.told.append((trio.current_time(), prefix, n, key, number))
        # An ack that is under way, or has an unknown outcome, may have made room.
        holds = sum(place not in self.judge.asked for place in self.has.values())
        if holds > self.credit:
            self.judge.faults.append(f"{holds} messages at a credit of {self.credit}: {self.has}")

    def lost(self, receipts: list[ReceiptRun]) -> None:
        for prefix, low, high in receipts:
            for n in range(low, high + 1):
                self.has.pop((prefix, n), None)

    def ended(self, code: str, message: str) -> None:
        self.judge.faults.append(f"ended: {code} {message}")

    async def work(self, rng: Random) -> None:
        while True:
            await trio.sleep(rng.random() * 0.4)
            if self.has:
                receipt = rng.choice(sorted(self.has))
                await self._ack(receipt, self.has[receipt])

    async def _ack(self, receipt: tuple[str, int], place: tuple[int, int]) -> None:
        self.judge.asked.add(place)
        done: list[Gather] = []
        self.feed.settle(ACK, [(*receipt, receipt[1])], done.append)
        await until(lambda: done != [])
        (gather,) = done
        if gather.error is not None:  # it tries again
            self.judge.unknown.add(place)
            return
        self.has.pop(receipt, None)
        if not gather.lost:
            self.judge.acked.add(place)


async def publish(client: Client, key: int, judge: Judge, rng: Random) -> None:
    """One after the other, each until it is stored."""
    for n in range(EACH):
        await trio.sleep(rng.random() * SECONDS / EACH)
        one = message(b"%d %d" % (key, n), key=f"k{key}", producer=f"p{key}", producer_seq=n + 1)
        while (await client.publish(one)).failed:  # noqa: ASYNC110
            await trio.sleep(0.1)
        judge.stored.add((key, n))


async def meddle(world: World, rng: Random) -> None:
    """Things that happen to a cluster."""
    end = trio.current_time() + SECONDS
    while trio.current_time() < end:
        await trio.sleep(rng.random() * 4)
        chance, node = rng.random(), rng.choice(world.nodes)
        world.air.most_delay = rng.choice([0, 0.01, 0.2])
        if chance < 0.4:
            world.air.drop(node.address)
        elif chance < 0.6:
            one, other = rng.sample(world.nodes, 2)
            world.air.cut(one.address, other.address)
            await trio.sleep(rng.random() * 4)
            world.air.join(one.address, other.address)
        elif chance < 0.9:
            shards = node.dispatcher._shards
            slots = sorted(shards.slots_since())
            await node.cluster.give_up(rng.sample(slots, min(2, len(slots))))
        elif len(world.nodes) == 3:
            world.kill(next(node for node in world.nodes if node.name == "c"))
            await trio.sleep(rng.random() * 8)
            await world.start("c")
    world.air.most_delay = 0


def play(seed: int) -> Judge:
    """In a trio that does the same for the same seed."""
    with (
        patch.object(scheduler, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(scheduler, "_r", Random(seed)),
    ):
        return trio.run(chaos, seed, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_promised_holds(seed: int) -> None:
    judge = play(seed)
    assert judge.faults == []
    assert judge.stored == judge.acked | judge.unknown


def test_a_seed_does_the_same_each_time() -> None:
    assert play(0).told == play(0).told


async def chaos(seed: int) -> Judge:
    rng, judge = Random(seed), Judge()
    async with cluster(3, seed) as world:
        await make(world, shards=4)
        clients = [Client(node) for node in world.nodes[:2]]
        consumers = [Consumer(judge, credit) for credit in rng.sample([1, 2, 3, 5], 2)]
        async with trio.open_nursery() as nursery:
            for n, (client, it) in enumerate(zip(clients, consumers, strict=True)):
                await subscribe(client, it, f"s{n}")
                nursery.start_soon(it.work, rng)
            async with trio.open_nursery() as busy:
                for key in range(KEYS):
                    busy.start_soon(publish, clients[key % 2], key, judge, rng)
                busy.start_soon(meddle, world, rng)
            await until(
                lambda: bool(judge.faults) or len(judge.acked | judge.unknown) == KEYS * EACH
            )
            nursery.cancel_scope.cancel()
        for node in () if judge.faults else world.nodes:
            await until(lambda node=node: idle(node))  # type: ignore[misc]
    return judge


async def subscribe(client: Client, it: Consumer, session: str) -> None:
    spec = Spec(TENANT, "q", session, credit=it.credit, lease_ms=HOUR)
    client.door.subscribe(spec, it, it.subscribed)
    await until(lambda: hasattr(it, "feed"))


def idle(node: Any) -> bool:
    """Nothing is under way between nodes."""
    peers = node.cluster.peers._peers.values()
    askers = [peer.asker for peer in peers if peer.asker is not None]
    repeats = node.cluster.repeats
    return not any(asker._requests or asker._opening for asker in askers) and (
        repeats._queues,
        repeats._driven,
        repeats._bytes,
    ) == ({}, set(), 0)
